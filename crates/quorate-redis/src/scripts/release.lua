-- Releases locks, and notifies their waiters. Served even after the deadline and under another marker.
--
-- A call:
--   KEYS     the node's marker, the locks
--   ARGV     the owner of each lock
--   returns  { the node's time in microseconds, 'freed' or 'absent' for each lock }

local run, keys, args = redis.pcall, KEYS, ARGV
local clock = redis.call('TIME')
local out, released, owners = { clock[1] .. string.sub('00000' .. clock[2], -6) }, {}, {}

-- A key of another type seems to be missing. Without the permission for MGET, the keys are read one by one.
local stored = run('MGET', unpack(keys))
for i = 1, #args do
  local key, reply = keys[i + 1], 'absent'
  local holder = stored[i + 1]
  if stored.err then
    holder = run('GET', key)
  end
  if holder == args[i] then
    local deleted = run('DEL', key)
    if deleted == 1 then
      reply = 'freed'
      released[#released + 1] = key
      owners[#owners + 1] = args[i]
    elseif deleted ~= 0 then
      -- Redis 6.2 encloses the error: '@user_script: 12: -READONLY …\r\n'.
      local text = string.match(deleted.err, '^@user_script: %d+: (.*)$') or deleted.err
      reply = { 'refused', 'failed', string.match(text, '^%-?(.-)%s*$') }
    end
  end
  out[i + 1] = reply
end

