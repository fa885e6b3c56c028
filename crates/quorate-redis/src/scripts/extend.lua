-- Extends the lease from now, and never shortens it. Sets the owner again if the resource is free, its queue is
-- empty, and no later grant has been counted.
-- KEYS  lock, counter; queue
-- ARGV  owner, token
-- SHARED  ttl (ms), retention of the counter (ms)
return serve(true, true, 2, 2, function(k, a, s, q)
  local lock, fence = KEYS[k], KEYS[k + 1]
  local owner, ttl = ARGV[a], ARGV[s]
  local holder = call('GET', lock)
  if holder and holder ~= owner then
    return held(holder, lock)
  end
  if not holder then
    local first = blocked_by_queue(KEYS[q], '')
    if first then
      return first
    end
  end
  local last = counter(fence)
  if not holder and last and less(ARGV[a + 1], last) then
    refuse('later', last)
  end
  count_to(fence, last, ARGV[a + 1], ARGV[s + 1])
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
