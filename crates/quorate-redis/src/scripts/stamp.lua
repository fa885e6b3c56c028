-- Merges the stamps of the other nodes by maximum, and changes the node's own stamp. What the worker knows of the node's
-- own stamp counts only for 'raise': otherwise the reply would hide that the node has lost data.
-- KEYS  the stamps: a hash of the nodes' names
-- ARGV  tell, advance or raise; the node's own name; then each node's name and the stamp that the worker knows
return serve(true, true, 1, 0, function(k, a)
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
