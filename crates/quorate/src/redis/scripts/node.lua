-- Serves the requests on the node itself, and refuses invalid ones.

-- Sets the node's marker if the stored one is the expected one, and tries each command that a lease needs, on a key that
-- does not exist. A server that refuses one of them refuses this request.
-- KEYS  the marker; a key under which nothing is ever stored
-- ARGV  1 if a marker is expected, else 0; the expected marker; the new marker
define('a', true, false, 2, 3, function(k, a)
  local stored = call('GET', KEYS[k])
  if not stored then
    if ARGV[a] ~= '0' then
      refuse('unmarked')
    end
  elseif ARGV[a] ~= '1' or stored ~= ARGV[a + 1] then
    refuse('marker', stored)
  end
  call('SET', KEYS[k + 1], '', 'XX', 'PX', '1')
  call('PEXPIRE', KEYS[k + 1], '1')
  call('DEL', KEYS[k + 1])
  if stored ~= ARGV[a + 2] then
    call('SET', KEYS[k], ARGV[a + 2])
  end
  return 'marked'
end)

-- Merges the stamps of the other nodes by maximum, and changes the node's own stamp. What the worker knows of the node's
-- own stamp counts only for 'raise': otherwise the reply would hide that the node has lost data.
-- KEYS  the stamps: a hash of the nodes' names
-- ARGV  tell, advance or raise; the node's own name; then each node's name and the stamp that the worker knows
define('b', true, true, 1, 0, function(k, a)
  local key, step, own = KEYS[k], ARGV[a], ARGV[a + 1]
  local reply = { 'stamps' }
  for i = a + 2, #ARGV, 2 do
    local name, count = ARGV[i], ARGV[i + 1]
    local stored = call('HGET', key, name) or '0'
    if not is_number(stored) then
      refuse('wrongtype', 'the key ' .. key .. ' holds no stamp')
    end
    if name == own and step ~= 'raise' or less(count, stored) then
      count = stored
    end
    if name == own and step ~= 'tell' then
      count = decimal(tonumber(count) + 1)
    end
    if count ~= stored then
      call('HSET', key, name, count)
    end
    reply[#reply + 1] = count
  end
  return reply
end)

-- Refuses a request that does not apply to its resource: a request for locks on a claim, or a request for
-- claims on another resource.
-- KEYS  none
-- ARGV  none
define('c', true, true, 0, 0, function()
  refuse('failed', 'readers, queues and reservations do not apply to a claim; attempts and done records apply only to a claim; the key of a record of a led ledger begins with a letter')
end)

