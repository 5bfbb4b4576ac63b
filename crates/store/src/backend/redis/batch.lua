-- One batch. Everything is worked out on the side first (`after`), because Redis does not roll back: when the first write
-- happens nothing can go wrong any more.
--
-- ARGV[1] is { fields, wanted, ops, claim }, packed: of each required row the field, and its content, or whether it is
-- there at all; ARGV[2] is the channel that wakes those who wait. A batch that only puts and deletes plain rows, each once,
-- is { fields, wanted, nil, gone, put } instead.
-- Answers { 0, enabled, fired, claimed } or { 1, which, found } or { 2, what is wrong, where }.

local turns_key, clock_key = KEYS[5], KEYS[6]
local batch = cmsgpack.unpack(ARGV[1])
local fields, wanted, ops, claim = batch[1], batch[2], batch[3], batch[4]
local PUT, DELETE, DELETE_GROUP, SET_BIT, ADD = 0, 1, 2, 3, 4
local LANE_BYTES, CHUNK = 8, 2000
local sub, byte, char, call = string.sub, string.byte, string.char, redis.call

-- Calls a command with many arguments, some at a time.
local function call_all(command, key, arguments)
  local count = #arguments
  for first = 1, count, CHUNK do
    call(command, key, unpack(arguments, first, math.min(first + CHUNK - 1, count)))
  end
end

-- The short way: what the rows held does not matter, since a name that is there can be added, and one that is not removed.
if not ops then
  for first = 1, #fields, CHUNK do
    local found = call('HMGET', rows_key, unpack(fields, first, math.min(first + CHUNK - 1, #fields)))
    for at = 1, #found do
      local row, want = found[at], wanted[first + at - 1]
      if row ~= want and not (want == true and row) then return { 1, first + at - 2, row } end
    end
  end
  local gone, put = batch[4], batch[5]
  if #gone > 0 then
    call_all('HDEL', rows_key, gone)
    local names = {}
    for at = 1, #gone do
      if byte(gone[at]) == 0 then names[#names + 1] = sub(gone[at], 2) end
    end
    call_all('ZREM', names_key, names)
  end
  if #put > 0 then
    call_all('HSET', rows_key, put)
    local names = {}
    for at = 1, #put, 2 do
      if byte(put[at]) == 0 then
        local n = #names
        names[n + 1], names[n + 2] = 0, sub(put[at], 2)
      end
    end
    call_all('ZADD', names_key, names)
  end
  return { 0, 0, {}, false }
end

local before, after = {}, {} -- by field: what the row held, what it shall hold; false is nothing
local order = {}             -- the fields of `after`, as they came
local cleared = {}           -- groups of plain rows that go as a whole: the beginning of their fields
local enabled = {}           -- places of queue rows that were put or whose claim went, as they came
local queue_places = {}      -- places whose freedom or claim may have changed
local wrong                  -- what is wrong with the batch, and where
local BELL = '\3\0\4bellbell' -- the row that never exists: deleting it wakes those who wait
local rings = 0

-- Reads what is not known yet of these fields.
local function load(fields)
  local count = #fields
  for first = 1, count, CHUNK do
    local last = math.min(first + CHUNK - 1, count)
    local found = call('HMGET', rows_key, unpack(fields, first, last))
    for at = first, last do
      local field, row = fields[at], found[at - first + 1]
      if #cleared > 0 then
        for _, group in ipairs(cleared) do
          if sub(field, 1, #group) == group then row = false end
        end
      end
      if before[field] == nil then before[field] = row end
    end
  end
end

local function get(field)
  local row = after[field]
  if row ~= nil then return row end
  row = before[field]
  if row == nil then
    load({ field })
    row = before[field]
  end
  return row
end

-- Rows of queues: ready, claimed, with a deadline.
local function is_queued(field)
  local kind = byte(field)
  return kind > 0 and kind < HEAP
end

local function set(field, row)
  if after[field] == nil then order[#order + 1] = field end
  after[field] = row
  if is_queued(field) then queue_places[sub(field, 2)] = true end
end

local function put(field, row)
  if byte(field) == 1 then enabled[#enabled + 1] = sub(field, 2) end
  set(field, row)
end

local function delete(field)
  if field == BELL then rings = 1 end
  if not get(field) then return end
  set(field, false)
  if byte(field) == 2 then enabled[#enabled + 1] = sub(field, 2) end
end

local function delete_group(group)
  local kind = byte(group)
  if kind == 0 then
    for field in pairs(before) do
      if sub(field, 1, #group) == group then before[field] = false end
    end
    for field in pairs(after) do
      if sub(field, 1, #group) == group then after[field] = false end
    end
    cleared[#cleared + 1] = group
    return
  end
  local from = sub(group, 2)
  local found = page(kind, '[' .. from, just_past(from), 1e6)
  local fields, known = {}, {}
  for at = 1, #found, 2 do
    fields[#fields + 1] = char(kind) .. found[at]
    known[fields[#fields]] = true
  end
  for _, field in ipairs(order) do
    if sub(field, 1, #group) == group and not known[field] then fields[#fields + 1] = field end
  end
  table.sort(fields, is_before)
  load(fields)
  for _, field in ipairs(fields) do delete(field) end
end

-- A bitmap is its size (four bytes, the lowest first) and a bit for each number, the lowest of the first byte first.
local function is_bitmap(row, of)
  return #row == 4 + math.ceil(of / 8) and struct.unpack('<I4', row) == of
    and (of % 8 == 0 or byte(row, -1) < 2 ^ (of % 8))
end

local function is_full(row)
  if #row < 4 then return false end
  local of = struct.unpack('<I4', row)
  if not is_bitmap(row, of) then return false end
  local last = of % 8 > 0 and char(2 ^ (of % 8) - 1) or ''
  return sub(row, 5) == string.rep('\255', math.floor(of / 8)) .. last
end

local function is_zero(row) return row == '\0\0\0\0\0\0\0\0' end

local function set_bit(field, number, of)
  local row = get(field)
  if row and not is_bitmap(row, of) then
    wrong = { 2, 'bitmap', field }
    return
  end
  row = row or struct.pack('<I4', of) .. string.rep('\0', math.ceil(of / 8))
  local at = 5 + math.floor(number / 8)
  local with = bit.bor(byte(row, at), bit.lshift(1, number % 8))
  put(field, sub(row, 1, at - 1) .. char(with) .. sub(row, at + 1))
end

-- Numbers here have 53 bits and counters 64, so they are added in halves.
local function add(field, delta)
  local row = get(field)
  if row and #row ~= 8 then
    wrong = { 2, 'counter', field }
    return
  end
  local low, high = struct.unpack('<I4i4', row or '\0\0\0\0\0\0\0\0')
  local delta_low, delta_high = struct.unpack('<I4i4', delta)
  low, high = low + delta_low, high + delta_high
  if low >= 4294967296 then low, high = low - 4294967296, high + 1 end
  if high >= 2147483648 or high < -2147483648 then
    wrong = { 2, 'overflow', field }
    return
  end
  put(field, struct.pack('<I4i4', low, high))
end

-- What these operations will look at, and what a queue row's freedom hangs on, is read in one go.
local function load_for(some, fields)
  for _, op in ipairs(some) do
    local field = op[2]
    if op[1] ~= DELETE_GROUP then
      if is_queued(field) then
        local place = sub(field, 2)
        for kind = 1, 3 do
          local one = char(kind) .. place
          if before[one] == nil then fields[#fields + 1] = one end
        end
      elseif before[field] == nil then
        fields[#fields + 1] = field
      end
    end
  end
  load(fields)
end

local function apply(some, bitmaps, counters)
  for _, op in ipairs(some) do
    local what = op[1]
    if what == PUT then
      put(op[2], op[3])
    elseif what == DELETE then
      delete(op[2])
    elseif what == DELETE_GROUP then
      delete_group(op[2])
    elseif what == SET_BIT then
      set_bit(op[2], op[3], op[4])
      bitmaps[#bitmaps + 1] = { op[2], op[5] }
    else
      add(op[2], op[3])
      counters[#counters + 1] = { op[2], op[4] }
    end
    if wrong then return end
  end
end

-- Takes away the rows that are complete.
local function complete(touched, is_complete)
  local done = {}
  for _, trigger in ipairs(touched) do
    local row = get(trigger[1])
    if row and is_complete(row) then
      delete(trigger[1])
      done[#done + 1] = trigger
    end
  end
  return done
end

-- 1. Whatever is required.
if #ops > 0 then load_for(ops, fields) else load(fields) end
for which = 1, #wanted do
  local found, want = before[fields[which]], wanted[which]
  if found ~= want and not (want == true and found) then return { 1, which - 1, found } end
end

-- 2. Operations, then triggers in rounds: full bitmaps first; counters at zero only when no bitmap is full.
local bitmaps, counters, fired = {}, {}, {}
apply(ops, bitmaps, counters)
while not wrong do
  local touched = bitmaps
  bitmaps = {}
  local done = complete(touched, is_full)
  if #done == 0 then
    touched, counters = counters, {}
    done = complete(touched, is_zero)
  end
  if #done == 0 then break end
  for _, trigger in ipairs(done) do
    if #trigger[2] > 0 then
      load_for(trigger[2], {})
      apply(trigger[2], bitmaps, counters)
    end
    fired[#fired + 1] = trigger[1]
    if wrong then break end
  end
end
if wrong then return wrong end

-- The part of a place that says in which queue it is.
local function queue_of(place)
  return sub(place, 1, 2 + struct.unpack('>I2', place))
end

local function is_free(place)
  return get('\1' .. place) and not get('\2' .. place)
end

-- 3. A claim of what this batch made ready is worked out with it.
local claimed, claimed_queue
local function deadline_row()
  if claim[3] < 0 then
    claimed[4] = -1
    return string.rep('\255', 8)
  end
  local ms = now_ms(clock_key, ARGV[3]) + claim[3]
  claimed[4] = ms
  return struct.pack('>I4I4', math.floor(ms / 4294967296), ms % 4294967296)
end
if claim and claim[4] == 1 then
  for _, place in ipairs(enabled) do
    local queue = queue_of(place)
    for at, one in ipairs(claim[1]) do
      if one == queue and is_free(place) then
        claimed, claimed_queue = { at - 1, place, get('\1' .. place) }, queue
        break
      end
    end
    if claimed then break end
  end
end
local wakes = rings
for _, place in ipairs(enabled) do
  if (not claimed or claimed[2] ~= place) and is_free(place) then wakes = 1 end
end
-- A claim that takes another row in its turn may yet take one of these: then it is looked at again below.

-- From here on nothing can go wrong.
if claimed then
  set('\2' .. claimed[2], claim[2])
  set('\3' .. claimed[2], deadline_row())
end

-- 4. Writes what has changed.
for _, group in ipairs(cleared) do
  local from = sub(group, 2)
  local past = '(' .. just_past(from)
  while true do
    local places = call('ZRANGEBYLEX', names_key, '[' .. from, past, 'LIMIT', 0, CHUNK)
    if #places == 0 then break end
    local gone = {}
    for at, place in ipairs(places) do gone[at] = '\0' .. place end
    call_all('HDEL', rows_key, gone)
    call_all('ZREM', names_key, places)
  end
end
local rows_put, rows_gone, names_put, names_gone = {}, {}, {}, {}
for _, field in ipairs(order) do
  local was, is = before[field], after[field]
  if was == nil then
    load({ field })
    was = before[field]
  end
  if is ~= was then
    if is then
      rows_put[#rows_put + 1] = field
      rows_put[#rows_put + 1] = is
    else
      rows_gone[#rows_gone + 1] = field
    end
    if byte(field) == 0 then
      if is and not was then
        names_put[#names_put + 1] = 0
        names_put[#names_put + 1] = sub(field, 2)
      elseif was and not is then
        names_gone[#names_gone + 1] = sub(field, 2)
      end
    end
  end
end
if #rows_gone > 0 then call_all('HDEL', rows_key, rows_gone) end
if #rows_put > 0 then call_all('HSET', rows_key, rows_put) end
if #names_gone > 0 then call_all('ZREM', names_key, names_gone) end
if #names_put > 0 then call_all('ZADD', names_key, names_put) end
local touched_queues = {}
for place in pairs(queue_places) do
  touched_queues[queue_of(place)] = true
  local ready, fence, deadline = '\1' .. place, '\2' .. place, '\3' .. place
  local is_now, was_before = is_free(place), before[ready] and not before[fence]
  if is_now and not was_before then
    call('ZADD', free_key, 0, place)
  elseif was_before and not is_now then
    call('ZREM', free_key, place)
  end
  local is_held, was_held = get(fence) or get(deadline), before[fence] or before[deadline]
  if is_held and not was_held then
    call('ZADD', held_key, 0, place)
  elseif was_held and not is_held then
    call('ZREM', held_key, place)
  end
end

-- 5. Or else a claim of whatever is free: the first row of the lane after the one that was served last.
if claim and not claimed and call('ZCARD', free_key) > 0 then
  for at, queue in ipairs(claim[1]) do
    local past = '(' .. just_past(queue)
    local served, place = call('HGET', turns_key, queue), nil
    if served then
      local from = queue .. served
      from = #served < LANE_BYTES and '(' .. from or '[' .. just_past(from)
      place = call('ZRANGEBYLEX', free_key, from, past, 'LIMIT', 0, 1)[1]
    end
    place = place or call('ZRANGEBYLEX', free_key, '[' .. queue, past, 'LIMIT', 0, 1)[1]
    if place then
      claimed, claimed_queue = { at - 1, place, call('HGET', rows_key, '\1' .. place) }, queue
      call('HSET', rows_key, '\2' .. place, claim[2], '\3' .. place, deadline_row())
      call('ZREM', free_key, place)
      call('ZADD', held_key, 0, place)
      -- Did it take what this batch made ready?
      wakes = rings
      for _, one in ipairs(enabled) do
        if one ~= place and is_free(one) then wakes = 1 end
      end
      break
    end
  end
end

-- 6. Whose turn it was is remembered while somebody waits for one.
if claimed then touched_queues[claimed_queue] = true end
if next(touched_queues) then
  if call('ZCARD', free_key) == 0 then
    call('DEL', turns_key)
  else
    for queue in pairs(touched_queues) do
      local waits = call('ZRANGEBYLEX', free_key, '[' .. queue, '(' .. just_past(queue), 'LIMIT', 0, 1)[1]
      if not waits then
        call('HDEL', turns_key, queue)
      elseif queue == claimed_queue then
        local name = #queue + 1
        call('HSET', turns_key, queue, sub(claimed[2], name, name + LANE_BYTES - 1))
      end
    end
  end
end
if wakes == 1 then call('PUBLISH', ARGV[2], '') end

-- 7. What was claimed is answered with its inbox.
if claimed then
  local row = claimed[3]
  local kind, id, at = struct.unpack('<BHc0', row)
  local group = struct.pack('>I2', #id) .. id .. struct.unpack('<Hc0', row, at)
  local inputs, more = page(kind, '[' .. group, just_past(group), claim[5])
  claimed[5], claimed[6] = more and 1 or 0, inputs
end
return { 0, wakes, fired, claimed or false }
