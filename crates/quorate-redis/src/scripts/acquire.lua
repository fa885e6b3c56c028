-- Sets the owner if the resource is free, or reserved for the owner's worker, and no other waiter comes
-- first. Increments the counter.
-- KEYS  lock, counter, queue
-- ARGV  owner, ttl (ms), initial value of a missing counter (µs), its largest distance from this clock (µs),
--       retention of the counter (ms), '=' and the ticket or nothing
return serve(true, true, 3, 6, function(k, a)
  local lock, fence = KEYS[k], KEYS[k + 1]
  local holder = call('GET', lock)
  if holder and not may_take(ARGV[a], holder) then
    return held(holder, lock)
  end
  -- The worker for which the lock is reserved comes before the waiters in the queue.
  if not holder then
    local first = blocked_by_queue(KEYS[k + 2], ARGV[a + 5])
    if first then
      return first
    end
  end
  local last = counter(fence)
  if not last then
    last = ARGV[a + 2]
    local apart = math.abs(now - tonumber(last))
    if apart > tonumber(ARGV[a + 3]) then
      refuse('clock', decimal(apart))
    end
  end
  if tonumber(last) >= 9007199254740991 then
    refuse('full')
  end
  local count = decimal(tonumber(last) + 1)
  -- The counter is written first. A node that fails between the two writes has then counted a grant that no
  -- worker received, which is harmless.
  call('SET', fence, count, 'PX', ARGV[a + 4])
  call('SET', lock, ARGV[a], 'PX', ARGV[a + 1])
  return { 'granted', count }
end)
