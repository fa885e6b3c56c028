-- Serves the requests on locks that begin and extend leases.

-- Returns whether an acquire by `owner` treats a lock with the value `holder` as free: `holder` is a
-- reservation for the same worker.
local function may_take(owner, holder)
  if sub(holder, -9) ~= ':reserved' then
    return false
  end
  local reserved_for, bits = match(holder, '^(.*):(%x+):reserved$')
  local worker, owner_bits = match(owner, '^(.*):(%x+)$')
  return reserved_for ~= nil and reserved_for == worker and #bits == 32 and #owner_bits == 32
end

-- Sets the owner if the resource is free, or reserved for the owner's worker, and no other waiter comes
-- first. Increments the counter.
-- KEYS  lock, counter, queue
-- ARGV  owner, initial value of a missing counter (µs), '=' and the ticket or nothing
-- SHARED  ttl (ms), retention of the counter (ms), largest distance of the initial value from this clock (µs)
define('a', true, true, 3, 3, function(k, a, s)
  local lock, fence = KEYS[k], KEYS[k + 1]
  local holder = call('GET', lock)
  if holder and not may_take(ARGV[a], holder) then
    answer_held(holder, lock)
  end
  -- A reservation for the owner's worker takes precedence over the queue.
  if not holder then
    wait_in_queue(KEYS[k + 2], ARGV[a + 2], false)
  end
  local count = next_count(counter(fence), ARGV[a + 1], ARGV[s + 2])
  -- The counter is written first. If the node fails between the two writes, it has counted a grant that no
  -- worker received, which is harmless.
  call('SET', fence, decimal(count), 'PX', ARGV[s + 1])
  call('SET', lock, ARGV[a], 'PX', ARGV[s])
  return count
end)

-- Extends the lease from now, and never shortens it. Sets the owner again if the resource is free, its queue is
-- empty, and no later grant has been counted.
-- KEYS  lock, counter, queue
-- ARGV  owner, token
-- SHARED  ttl (ms), retention of the counter (ms)
define('b', true, true, 3, 2, function(k, a, s)
  local lock, fence = KEYS[k], KEYS[k + 1]
  local owner, ttl = ARGV[a], ARGV[s]
  local holder = holder_of(lock, owner)
  if not holder then
    wait_in_queue(KEYS[k + 2], '', false)
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
  return 'extended'
end)

-- Sets the counter to the given count if the given owner holds the resource and the counter does not exceed
-- that count.
-- KEYS  lock, counter
-- ARGV  owner, the count
-- SHARED  (unused), retention of the counter (ms)
define('c', true, true, 2, 2, function(k, a, s)
  if call('GET', KEYS[k]) ~= ARGV[a] then
    refuse('notowner')
  end
  local last = counter(KEYS[k + 1])
  -- If the counter has expired before the lease, its last value is unknown.
  if not last or less(ARGV[a + 1], last) then
    refuse('superseded')
  end
  count_to(KEYS[k + 1], last, ARGV[a + 1], ARGV[s + 1])
  return 'raised'
end)

