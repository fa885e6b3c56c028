-- Sets the owner where the resource is free, or reserved for its worker, and nobody comes first, and counts one
-- more grant. On a claim that is done, says so.
-- KEYS  lock, counter, a claim's record or the queue
-- ARGV  owner, ttl (ms), where a missing counter starts (µs), how far that may be from this clock (µs),
--       how long the counter lives (ms), 1 for a claim, = and a ticket or nothing

-- A claim that is new takes two commands, which is what most are: what is held, or has a counter, comes back from them
-- empty-handed, and nothing has changed.
local function acquire_new(lock, fence, a)
  local seed = tonumber(ARGV[a + 2])
  if math.abs(now - seed) > tonumber(ARGV[a + 3]) or seed >= 9007199254740991 then
    return nil
  end
  local count = decimal(seed + 1)
  if not call('SET', fence, count, 'NX', 'PX', ARGV[a + 4]) then
    return nil
  end
  local ok, set = pcall(call, 'SET', lock, ARGV[a], 'NX', 'PX', ARGV[a + 1])
  if ok and set then
    return count
  end
  call('DEL', fence)
  return nil
end

return serve(true, true, 3, 7, function(k, a)
  local lock, fence = KEYS[k], KEYS[k + 1]
  local kind, begun, _
  if ARGV[a + 5] == '1' then
    kind, _, begun = claim_record(KEYS[k + 2])
    if kind == 'd' then
      return { 'done', begun }
    end
    local count = not kind and acquire_new(lock, fence, a)
    if count then
      return { 'granted', count }
    end
  end
  local holder = call('GET', lock)
  if holder and not may_take(ARGV[a], holder) then
    return held(holder, lock)
  end
  -- Whoever it is reserved for goes before those who wait in line.
  if not holder and ARGV[a + 5] ~= '1' then
    local first = first_in_line(KEYS[k + 2], ARGV[a + 6])
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
  return { 'granted', count, begun }
end)
