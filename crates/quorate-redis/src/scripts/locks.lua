-- Serves the requests on locks that alternate in practice.

-- Sets the owner if the resource is free, or reserved for the owner's worker, and no other waiter comes
-- first. Increments the counter.
-- KEYS  lock, counter; queue
-- ARGV  owner, initial value of a missing counter (µs) followed by = and a ticket or by nothing
-- SHARED  ttl (ms), retention of the counter (ms), largest distance of the initial value from this clock (µs)
define('a', true, true, 2, 2, function(k, a, s, q)
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

-- Frees the resource if the given owner holds it, and notifies its waiters. Served even after the deadline
-- and under another marker.
-- KEYS  lock
-- ARGV  owner
define('b', false, false, 1, 1, function(k, a)
  if call('GET', KEYS[k]) ~= ARGV[a] then
    return 'absent'
  end
  free(KEYS[k], ARGV[a])
  return 'freed'
end)

-- Extends the lease from now, and never shortens it. Sets the owner again if the resource is free, its queue is
-- empty, and no later grant has been counted.
-- KEYS  lock, counter; queue
-- ARGV  owner, token
-- SHARED  ttl (ms), retention of the counter (ms)
define('c', true, true, 2, 2, function(k, a, s, q)
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

-- Sets the counter to the given count if the given owner holds the resource and the counter does not exceed
-- that count.
-- KEYS  lock, counter
-- ARGV  owner, the count
-- SHARED  (unused), retention of the counter (ms)
define('d', true, true, 2, 2, function(k, a, s)
  if call('GET', KEYS[k]) ~= ARGV[a] then
    refuse('notowner')
  end
  local last = counter(KEYS[k + 1])
  -- If the counter has expired before the lease, its last value is unknown.
  if not last or less(ARGV[a + 1], last) then
    refuse('superseded')
  end
  count_to(KEYS[k + 1], last, ARGV[a + 1], ARGV[s + 1])
  return { 'raised' }
end)

