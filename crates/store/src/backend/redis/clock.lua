-- The store's clock: the server's, held so that it never goes back and never stands still. While the server's is behind,
-- after it was set back, time passes at half its speed. `clock_key` holds the latest time given and what the server's
-- clock said then.
-- A test may give the time instead.
local function now_ms(clock_key, instead)
  local world = tonumber(instead)
  if not world then
    local time = redis.call('TIME')
    world = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  local known = redis.call('HMGET', clock_key, 'given', 'world')
  local given, before = tonumber(known[1] or 0), tonumber(known[2] or world)
  local was = given
  if world >= given then
    given, before = world, world
  else
    local half = world > before and math.floor((world - before) / 2) or 0
    if half > 0 or world < before then given, before = given + half, world end
  end
  if given ~= was or tostring(before) ~= known[2] then
    redis.call('HSET', clock_key, 'given', string.format('%.0f', given), 'world', string.format('%.0f', before))
    -- The clock of a store that no client asks any more expires: after 400 days, as in `identity.rs`.
    redis.call('PEXPIRE', clock_key, '34560000000')
  end
  return given
end
