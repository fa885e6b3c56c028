-- Releases locks, and notifies their waiters. Served even after the deadline and under another marker.
--
-- A call:
--   KEYS     the node's marker, the locks
--   ARGV     the owner of each lock
--   returns  { the node's time in microseconds, 'freed' or 'absent' for each lock }

local run, keys, args = redis.pcall, KEYS, ARGV
local clock = redis.call('TIME')
local out, released, owners = { clock[1] .. string.sub('00000' .. clock[2], -6) }, {}, {}

-- A key of another type seems to be missing. Without the permission for MGET, all do.
local stored = run('MGET', unpack(keys))
for i = 1, #args do
  local key, reply = keys[i + 1], 'absent'
  local holder = stored[i + 1] or run('GET', key)
  if holder == args[i] then
    holder = run('DEL', key)
    if holder == 1 then
      reply = 'freed'
      released[#released + 1] = key
      owners[#owners + 1] = args[i]
    end
  end
  out[i + 1] = type(holder) == 'table' and refusal(key, holder.err) or reply
end

