-- Buries values where they are: what `values::reclaim::bury` does, without a round trip for every wave, and for no longer
-- than it is told. It reads rows as `values::stored` writes them, and everything is worked out before the first write.
--
-- A *unit* is what one value refers to, or one debt. Values that die and refer to nothing go at once; those that refer
-- to others wait for their own unit, in this call or, as rows of `zero`, in a later one. What is left of a unit when time is up
-- becomes a debt again. Whatever is not plain (a value that owns something, a row that is damaged, a count that cannot be) is left to
-- the client, who finds it where it was.
--
-- KEYS: rows, names. ARGV: field, wanted and new content of the sweeper's row; the beginnings of the fields of values, counts,
-- zero and owed; the name of a debt this call may leave; how many it may touch, and for how many microseconds.
-- Answers { 1, found } if the sweeper's row is another, or { 0, buried, paid, touched, is there more, is there something odd }.

local rows_key, names_key = KEYS[1], KEYS[2]
local VALUE, COUNT, ZERO, OWED, debt_name = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local sub, byte, char, call, bxor = string.sub, string.byte, string.char, redis.call, bit.bxor
local WORD = 4294967296
local INLINE, LOST, REFS, READ_MAX, READ_BYTES, CANDIDATES, CHUNK = 1, 4, 12, 64, 32768, 128, 2000
local DEBT_MAX, TOUCH_MAX, US_MAX = 600, tonumber(ARGV[9]), tonumber(ARGV[10])
-- To read so much takes as long as to touch one more; so few are sooner touched than written down.
local TOUCH_BYTES, FEW = 4096, 64

local found = call('HGET', rows_key, ARGV[1])
if found ~= ARGV[2] then return { 1, found } end

-- Processor time where the server tells it (7.4); else what is on the clock, which stands still in a script of 7.2: there it
-- is the count that ends a call.
local _, processor_time = pcall(function() return os.clock end)
local function now_us()
  if type(processor_time) == 'function' then return processor_time() * 1000000 end
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end
local start = now_us()

-- The sum that rows carry. What follows from a byte is looked up for each distance to the end; sixteen bytes at a time.
local T2, T3, T4, T5, T6 = near_tables()
local far
local function sum_of(row, from, to)
  far = far or { far_tables() }
  -- Locals of this function are found faster.
  local T0, T1, T7, T8, T9, T10, T11, T12, T13, T14, T15 = unpack(far)
  local T2, T3, T4, T5, T6, byte, bxor, c = T2, T3, T4, T5, T6, byte, bxor, -1
  for from = from, to - 15, 16 do
    local c0 = c % 256
    c = (c - c0) / 256
    local c1 = c % 256
    c = (c - c1) / 256
    local c2 = c % 256
    c = (c - c2) / 256
    local b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15 = byte(row, from, from + 15)
    c = bxor(T15[c0], T14[c1], T13[c2], T12[c % 256], T15[b0], T14[b1], T13[b2], T12[b3], T11[b4], T10[b5], T9[b6],
      T8[b7], T7[b8], T6[b9], T5[b10], T4[b11], T3[b12], T2[b13], T1[b14], T0[b15])
  end
  for at = to - (to - from + 1) % 16 + 1, to do
    local low = c % 256
    c = bxor((c % WORD - low) / 256, T0[low], T0[byte(row, at)])
  end
  return (-1 - c) % WORD
end

-- How many references a value has; nothing if it owns something, or is damaged as far as is seen without reading them.
local function refs_count(row)
  local s0, s1, s2, s3, kind, b0, b1, b2, b3, low, high = byte(row, 1, REFS - 1)
  if not high or kind ~= INLINE and kind ~= LOST then return nil end
  local count = low + 256 * high
  if count == 0 then
    -- Most values: the sum of seven bytes, two of them zero.
    local sum = bxor(SUM_OF_SEVEN, T6[kind], T5[b0], T4[b1], T3[b2], T2[b3]) % WORD
    if sum ~= s0 + 256 * s1 + 65536 * s2 + 16777216 * s3 then return nil end
  end
  return count
end

-- Those references, as often as they occur; nothing if they are damaged.
local function refs_of(row, count)
  local byte, sub, ids, at = byte, sub, {}, REFS
  for n = 1, count do
    local past = at + (byte(row, at) or 0) + 2
    ids[n] = sub(row, at + 1, past - 1)
    at = past
  end
  if at - 1 > #row or sum_of(row, 5, at - 1) ~= struct.unpack('<I4', row) then return nil end
  return ids
end

local buried, paid, touched, spent, odd = 0, 0, 0, 0, 0
local rows_gone, rows_gone_count, rows_put, names_gone, names_put = {}, 0, {}, {}, {}
local left = {}   -- counts that are lower now, by id
local pages = {}  -- dead values that refer to others: id, row, how often they do, whether they stand in `zero`
local rest = {}   -- what was not settled: id, how much
local read_many = 4
local is_first = true -- of the values that refer to others

local function gone(field)
  rows_gone_count = rows_gone_count + 1
  rows_gone[rows_gone_count] = field
end

-- The counts and values of some ids, from one on: as many as are soon read. Answers them in turns.
local function read(ids, first)
  local fields, n, last = {}, 0, math.min(first + read_many - 1, #ids)
  for at = first, last do
    local id = ids[at]
    fields[n + 1], fields[n + 2] = COUNT .. id, VALUE .. id
    n = n + 2
  end
  local rows, bytes = call('HMGET', rows_key, unpack(fields)), 0
  for at = 2, n, 2 do
    local row = rows[at]
    if row then bytes = bytes + #row end
  end
  if bytes > READ_BYTES then
    read_many = math.max(math.floor(read_many / 4), 1)
  else
    read_many = math.min(2 * read_many, READ_MAX)
  end
  touched = touched + n / 2
  spent = spent + n / 2 + bytes / TOUCH_BYTES
  return fields, rows, last
end

-- A value that nothing needs any more. Answers whether it can be dealt with here.
local function inter(id, field, row, is_queued)
  local count = refs_count(row)
  if not count then return false end
  if count == 0 then
    gone(field)
    buried = buried + 1
  else
    pages[#pages + 1] = { id, row, count, is_queued }
  end
  return true
end

-- Takes from a count what it is owed. Answers whether it could.
local function settle(id, owed, count_field, count, value_field, value)
  local known = left[id]
  if not known then
    if not count or #count ~= 8 then return false end
    local low, high = struct.unpack('<I4i4', count)
    if high ~= 0 then return false end
    known = low
  end
  if known < owed then return false end
  if known > owed then
    left[id] = known - owed
    return true
  end
  if value and not inter(id, value_field, value, false) then
    -- It owns something, or is damaged: from the queue the client takes it.
    local kind = byte(value, 5)
    if kind == INLINE or kind == LOST then return false end
    pages[#pages + 1] = { id, value, 0, false }
  end
  left[id] = nil
  gone(count_field)
  return true
end

-- How much of what the call may do is done, by its count or by the clock.
local function done()
  return math.max(spent / TOUCH_MAX, (now_us() - start) / US_MAX)
end

-- Settles what these ids are owed, one each unless it is said, until time is up. One that occurs twice is settled twice.
local function unit(ids, owed)
  local first, ONE = 1, '\1\0\0\0\0\0\0\0'
  while first <= #ids do
    if first > 1 and #ids - first >= FEW and done() >= 1 then
      for at = first, #ids do
        rest[#rest + 1] = ids[at]
        rest[#rest + 1] = owed and owed[at] or 1
      end
      return
    end
    local fields, rows, last = read(ids, first)
    local n = 1
    for at = first, last do
      local id, many, count, row = ids[at], owed and owed[at] or 1, rows[n], rows[n + 1]
      -- Most of them are leaves with one reference.
      if many == 1 and count == ONE and row and not left[id] and refs_count(row) == 0 then
        rows_gone[rows_gone_count + 1], rows_gone[rows_gone_count + 2] = fields[n], fields[n + 1]
        rows_gone_count = rows_gone_count + 2
        buried, paid = buried + 1, paid + 1
      elseif settle(id, many, fields[n], count, fields[n + 1], row) then
        paid = paid + many
      else
        odd = 1
        rest[#rest + 1] = id
        rest[#rest + 1] = many
      end
      n = n + 2
    end
    first = last + 1
  end
end

local function first_names(group, many)
  local place = sub(group, 2)
  local past = sub(place, 1, -2) .. char(byte(place, -1) + 1)
  return call('ZRANGEBYLEX', names_key, '[' .. place, '(' .. past, 'LIMIT', 0, many), #place + 1
end

-- 1. A debt, if there is one.
local function pay()
  local places, name = first_names(OWED, 1)
  local place = places[1]
  if not place then return true end
  if sub(place, name, name) ~= 'd' then return false end
  local field = char(0) .. place
  local row = call('HGET', rows_key, field)
  if not row or #row < 4 or struct.unpack('<I4', row) ~= sum_of(row, 5, #row) then return false end
  local ids, owed, at = {}, {}, 5
  while at + 5 <= #row do
    local b0, b1, b2, b3, length = byte(row, at, at + 4)
    ids[#ids + 1], owed[#owed + 1] = sub(row, at + 5, at + 5 + length), b0 + 256 * (b1 + 256 * (b2 + 256 * b3))
    at = at + 6 + length
  end
  if at ~= #row + 1 or #ids > DEBT_MAX then return false end
  gone(field)
  names_gone[1] = place
  unit(ids, owed)
  return true
end
if not pay() then return { 0, 0, 0, 0, 1, 1 } end

-- 2. Values that may be dead.
local function bury_candidates()
  read_many = 2
  local places, name = first_names(ZERO, CANDIDATES)
  local ids = {}
  for at, place in ipairs(places) do ids[at] = sub(place, name) end
  local first = 1
  while first <= #ids and #pages == 0 and (first == 1 or done() < 1) do
    local fields, rows, last = read(ids, first)
    for at = first, last do
      local id, n = ids[at], 2 * (at - first)
      local count, value, settled = rows[n + 1], rows[n + 2], true
      -- One that was in use again until this very call waits for the next.
      if left[id] then
        settled = false
      elseif value and not count then
        local waiting = #pages
        settled = inter(id, fields[n + 2], value, true)
        if not settled then odd = 1 end
        settled = settled and #pages == waiting
      end
      if settled then
        gone(ZERO .. id)
        names_gone[#names_gone + 1] = places[at]
      end
    end
    first = last + 1
  end
end
if #rest == 0 then bury_candidates() end

-- 3. What the dead referred to, while there is time for all of it, judged by how long it took so far.
local function is_time_for(count)
  return is_first and spent <= CANDIDATES or done() * (1 + count / spent) <= 1
end
local function open(page)
  local ids = refs_of(page[2], page[3])
  if not ids then
    odd = 1
    return false
  end
  local id = page[1]
  gone(VALUE .. id)
  buried = buried + 1
  if page[4] then
    gone(ZERO .. id)
    names_gone[#names_gone + 1] = sub(ZERO, 2) .. id
  end
  unit(ids)
  return true
end
local waiting = {}
while #pages > 0 do
  local page = table.remove(pages)
  local count = page[3]
  if count == 0 or #rest > 0 or not is_time_for(count) or not open(page) then waiting[#waiting + 1] = page end
  is_first = false
end

-- 4. Nothing can go wrong any more.
local function wait_for_turn(page)
  if page[4] then return end
  local field = ZERO .. page[1]
  rows_put[#rows_put + 1] = field
  rows_put[#rows_put + 1] = ''
  names_put[#names_put + 1] = 0
  names_put[#names_put + 1] = sub(field, 2)
end
for _, page in ipairs(waiting) do wait_for_turn(page) end
for id, count in pairs(left) do
  rows_put[#rows_put + 1] = COUNT .. id
  rows_put[#rows_put + 1] = struct.pack('<I4i4', count, 0)
end
if #rest > 0 then
  local parts = {}
  local ones = {} -- by the length of the id: most of what is owed is one
  for at = 1, #rest, 2 do
    local id, many = rest[at], rest[at + 1]
    local head = many == 1 and ones[#id]
    if not head then
      head = struct.pack('<I4B', many, #id - 1)
      if many == 1 then ones[#id] = head end
    end
    parts[at], parts[at + 1] = head, id
  end
  local body = table.concat(parts)
  local field = OWED .. debt_name
  rows_put[#rows_put + 1] = field
  rows_put[#rows_put + 1] = struct.pack('<I4', sum_of(body, 1, #body)) .. body
  names_put[#names_put + 1] = 0
  names_put[#names_put + 1] = sub(field, 2)
end
if rows_gone_count + #rows_put > 0 then
  rows_put[#rows_put + 1] = ARGV[1]
  rows_put[#rows_put + 1] = ARGV[3]
end
local function call_all(command, key, arguments)
  for first = 1, #arguments, CHUNK do
    call(command, key, unpack(arguments, first, math.min(first + CHUNK - 1, #arguments)))
  end
end
call_all('HDEL', rows_key, rows_gone)
call_all('HSET', rows_key, rows_put)
call_all('ZREM', names_key, names_gone)
call_all('ZADD', names_key, names_put)
local more = first_names(ZERO, 1)[1] or first_names(OWED, 1)[1]
return { 0, buried, paid, touched, more and 1 or 0, odd }
