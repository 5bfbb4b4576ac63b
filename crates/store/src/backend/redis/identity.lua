-- What tells this store from every other, in the hash of its clock. Without one it gets the one that is given, if one is.
local id = redis.call('HGET', KEYS[1], 'id')
if not id and ARGV[1] ~= '' then
  id = ARGV[1]
  redis.call('HSET', KEYS[1], 'id', id)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return id or ''
