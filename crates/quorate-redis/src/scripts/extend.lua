-- Extends the lease to ttl from now, and never shortens it. Sets the owner again if the resource is free and
-- its queue is empty.
-- KEYS  lock, counter, queue
-- ARGV  owner, ttl (ms), token, retention of the counter (ms)
return serve(true, true, 3, 4, function(k, a)
  local lock, fence = KEYS[k], KEYS[k + 1]
  local owner, ttl = ARGV[a], ARGV[a + 1]
  local holder = call('GET', lock)
  if holder and holder ~= owner then
    return held(holder, lock)
  end
  if not holder then
    local first = blocked_by_queue(KEYS[k + 2], '')
    if first then
      return first
    end
  end
  count_to(fence, counter(fence), ARGV[a + 2], ARGV[a + 3])
  if not holder then
    call('SET', lock, owner, 'NX', 'PX', ttl)
  else
    local left = call('PTTL', lock)
    if left >= 0 and left < tonumber(ttl) then
      call('PEXPIRE', lock, ttl)
    end
  end
  return { 'extended' }
end)
