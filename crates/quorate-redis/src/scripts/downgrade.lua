-- Where the owner holds the resource alone, makes it the lease of one reader.
-- KEYS  lock, readers
-- ARGV  owner, the reader, ttl (ms)
return serve(true, true, 2, 3, function(k, a)
  local lock, readers = KEYS[k], KEYS[k + 1]
  local holder = call('GET', lock)
  if not holder then
    refuse('notowner')
  elseif holder ~= ARGV[a] then
    return held(holder, lock)
  end
  call('DEL', readers)
  -- The reader first: a server that is out of memory leaves the writer's lease as it was.
  call('ZADD', readers, decimal(ms + tonumber(ARGV[a + 2])), ARGV[a + 1])
  call('SET', lock, READERS, 'PX', ARGV[a + 2])
  live_with_last(lock, readers)
  return { 'shared' }
end)
