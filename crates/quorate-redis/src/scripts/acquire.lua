-- Sets the owner if the resource is free, or reserved for the owner's worker, and no other waiter comes
-- first. Increments the counter.
-- KEYS  lock, counter; queue
-- ARGV  owner, initial value of a missing counter (µs) followed by = and a ticket or by nothing
-- SHARED  ttl (ms), retention of the counter (ms), largest distance of the initial value from this clock (µs)
return serve(true, true, 2, 2, function(k, a, s, q)
  local lock, fence = KEYS[k], KEYS[k + 1]
  local holder = call('GET', lock)
  if holder and not may_take(ARGV[a], holder) then
    return held(holder, lock)
  end
  local initial, ticket = string.match(ARGV[a + 1], '^(%d+)(.*)$')
  -- A reservation for the owner's worker takes precedence over the queue.
  if not holder then
    local first = blocked_by_queue(KEYS[q], ticket)
    if first then
      return first
    end
  end
  local last = counter(fence)
  if not last then
    last = initial
    local apart = math.abs(now - tonumber(last))
    if apart > tonumber(ARGV[s + 2]) then
      refuse('clock', decimal(apart))
    end
  end
  if tonumber(last) >= 9007199254740991 then
    refuse('full')
  end
  local count = decimal(tonumber(last) + 1)
  -- The counter is written first. If the node fails between the two writes, it has counted a grant that no
  -- worker received, which is harmless.
  call('SET', fence, count, 'PX', ARGV[s + 1])
  call('SET', lock, ARGV[a], 'PX', ARGV[s])
  return { 'granted', count }
end)
