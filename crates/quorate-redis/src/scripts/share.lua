-- Adds a reader if the resource is free or held by readers, and no waiter that needs exclusive access is
-- ahead of the reader.
-- KEYS  lock, readers, queue
-- ARGV  owner, ttl (ms), '=' and the ticket or nothing
return serve(true, true, 3, 3, function(k, a)
  local lock, readers = KEYS[k], KEYS[k + 1]
  local holder = call('GET', lock)
  if holder and holder ~= READERS then
    return held(holder, lock)
  end
  local first = blocked_by_writer(KEYS[k + 2], ARGV[a + 2])
  if first then
    return first
  end
  add_reader(lock, readers, holder, ARGV[a], ARGV[a + 1])
  return { 'shared' }
end)
