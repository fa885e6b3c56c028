-- Adds a reader where nobody but readers holds the resource, and no writer waits before it.
-- KEYS  lock, readers, queue
-- ARGV  owner, ttl (ms), = and a ticket or nothing
return serve(true, true, 3, 3, function(k, a)
  local lock, readers = KEYS[k], KEYS[k + 1]
  local holder = call('GET', lock)
  if holder and holder ~= READERS then
    return held(holder, lock)
  end
  local first = writer_ahead(KEYS[k + 2], ARGV[a + 2])
  if first then
    return first
  end
  join(lock, readers, holder, ARGV[a], ARGV[a + 1])
  return { 'shared' }
end)
