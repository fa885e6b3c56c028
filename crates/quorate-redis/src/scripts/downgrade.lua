-- Replaces the exclusive lease of the owner by the lease of one reader, if no later grant has been counted.
-- KEYS  lock, readers, counter
-- ARGV  owner, token, the reader, ttl (ms)
return serve(true, true, 3, 4, function(k, a)
  local lock, readers = KEYS[k], KEYS[k + 1]
  local holder = call('GET', lock)
  if not holder then
    refuse('notowner')
  elseif holder ~= ARGV[a] then
    return held(holder, lock)
  end
  local last = counter(KEYS[k + 2])
  if not last or less(ARGV[a + 1], last) then
    refuse('superseded')
  end
  call('DEL', readers)
  -- The reader is written first: a server that is out of memory then leaves the writer's lease unchanged.
  call('ZADD', readers, decimal(ms + tonumber(ARGV[a + 3])), ARGV[a + 2])
  call('SET', lock, READERS, 'PX', ARGV[a + 3])
  expire_with_last(lock, readers)
  notify(lock, ARGV[a])
  return { 'shared' }
end)
