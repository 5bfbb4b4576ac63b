-- Walking names in order. Names stand in sorted sets without scores; rows stand in one hash, under a byte for their
-- kind and their place; those of kind 4 are in no order, and no names are kept. A place is the length of the group's id (two bytes, the higher first), the id, and the name.

local rows_key, names_key, free_key, held_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- The least text above everything that begins with this one. A place's first byte is never the highest.
local function just_past(text)
  for at = #text, 1, -1 do
    local byte = text:byte(at)
    if byte < 255 then return text:sub(1, at - 1) .. string.char(byte + 1) end
  end
end

-- Whether one text comes before another, byte by byte. Lua itself would compare them by the server's locale.
local function is_before(one, other)
  for at = 1, math.min(#one, #other) do
    local a, b = one:byte(at), other:byte(at)
    if a ~= b then return a < b end
  end
  return #one < #other
end

-- The places of a queue's rows: those that are free and those that are held, as one walk. Answers the last one that it
-- has walked up to, if there may be more.
local function queue_places_from(from, past, most)
  local places = redis.call('ZRANGEBYLEX', free_key, from, past, 'LIMIT', 0, most)
  local last = places[most]
  local held = redis.call('ZRANGEBYLEX', held_key, from, last and '[' .. last or past, 'LIMIT', 0, most)
  if held[most] then
    last = held[most]
    places = redis.call('ZRANGEBYLEX', free_key, from, '[' .. last)
  end
  local is_there = {}
  for _, place in ipairs(places) do is_there[place] = true end
  for _, place in ipairs(held) do
    if not is_there[place] then places[#places + 1] = place end
  end
  table.sort(places, is_before)
  return places, last
end

local HEAP = 4

-- The places of rows that are in no order: all of them are looked at.
local function heap_places(from, past, most)
  local places, cursor, seen = {}, '0', {}
  local after, is_open = string.sub(from, 2), string.sub(from, 1, 1) == '('
  past = string.sub(past, 2)
  repeat
    local found = redis.call('HSCAN', rows_key, cursor, 'COUNT', 1000)
    cursor = found[1]
    for at = 1, #found[2], 2 do
      local field = found[2][at]
      local place = string.sub(field, 2)
      if string.byte(field) == HEAP and not seen[place] and is_before(place, past)
        and (is_before(after, place) or not is_open and place == after) then
        seen[place] = true
        places[#places + 1] = place
      end
    end
  until cursor == '0'
  table.sort(places, is_before)
  for at = #places, most + 1, -1 do places[at] = nil end
  return places
end

-- The rows of a kind from one place up to another, at most so many, as place, row, place, row; and whether there are more.
local function page(kind, from, past, limit)
  local found, count, most, letter = {}, 0, limit + 1, string.char(kind)
  past = '(' .. past
  repeat
    local places, last
    if kind == 1 then
      places, last = queue_places_from(from, past, most)
    elseif kind == HEAP then
      places = heap_places(from, past, most)
    else
      places = redis.call('ZRANGEBYLEX', kind == 0 and names_key or held_key, from, past, 'LIMIT', 0, most)
      last = places[most]
    end
    local fields = {}
    for at, place in ipairs(places) do fields[at] = letter .. place end
    for first = 1, #fields, 4000 do
      local rows = redis.call('HMGET', rows_key, unpack(fields, first, math.min(first + 3999, #fields)))
      for at = 1, #rows do
        if rows[at] and count < most then
          count = count + 1
          found[2 * count - 1], found[2 * count] = places[first + at - 1], rows[at]
        end
      end
    end
    from = last and '(' .. last
  until count == most or not from
  if count == most then
    found[2 * most - 1], found[2 * most] = nil, nil
  end
  return found, count == most
end
