-- Sets the owner where the resource is free, or reserved for its worker, and nobody comes first, and counts one
-- more grant.
-- KEYS  lock, counter, the queue
-- ARGV  owner, ttl (ms), where a missing counter starts (µs), how far that may be from this clock (µs),
--       how long the counter lives (ms), = and a ticket or nothing
return serve(true, true, 3, 6, function(k, a)
  local lock, fence = KEYS[k], KEYS[k + 1]
  local holder = call('GET', lock)
  if holder and not may_take(ARGV[a], holder) then
    return held(holder, lock)
  end
  -- Whoever it is reserved for goes before those who wait in line.
  if not holder then
    local first = first_in_line(KEYS[k + 2], ARGV[a + 5])
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
  -- The counter first: a node that fails between the two has counted a grant that nobody got.
  call('SET', fence, count, 'PX', ARGV[a + 4])
  call('SET', lock, ARGV[a], 'PX', ARGV[a + 1])
  return { 'granted', count }
end)
