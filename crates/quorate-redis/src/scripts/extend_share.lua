-- Has a reader hold on from now, never shortening; adds it again where nobody but readers holds the resource and no
-- writer waits.
-- KEYS  lock, readers, queue
-- ARGV  owner, ttl (ms)
return serve(true, true, 3, 2, function(k, a)
  local lock, readers = KEYS[k], KEYS[k + 1]
  local holder = call('GET', lock)
  if holder and holder ~= READERS then
    return held(holder, lock)
  end
  if not holder or not reads(readers, ARGV[a]) then
    local first = writer_ahead(KEYS[k + 2], '')
    if first then
      return first
    end
  end
  join(lock, readers, holder, ARGV[a], ARGV[a + 1])
  return { 'extended' }
end)
