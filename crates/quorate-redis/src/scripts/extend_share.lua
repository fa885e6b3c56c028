-- Extends the lease of a reader to ttl from now, and never shortens it. Adds the reader again if the resource
-- is free or held by readers, and no waiter needs exclusive access.
-- KEYS  lock, readers, queue
-- ARGV  owner, ttl (ms)
return serve(true, true, 3, 2, function(k, a)
  local lock, readers = KEYS[k], KEYS[k + 1]
  local holder = call('GET', lock)
  if holder and holder ~= READERS then
    return held(holder, lock)
  end
  if not holder or not reader_end(readers, ARGV[a]) then
    local first = blocked_by_writer(KEYS[k + 2], '')
    if first then
      return first
    end
  end
  add_reader(lock, readers, holder, ARGV[a], ARGV[a + 1])
  return { 'extended' }
end)
