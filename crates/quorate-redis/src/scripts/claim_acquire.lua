-- Sets the owner where the claim is free and not done, and counts one more grant.
-- KEYS  the claim
-- ARGV  owner, ttl (ms), where a missing counter starts (µs), how far that may be from this clock (µs),
--       how long the counter lives (ms)

-- What first_count was asked last, and said: most items of a call ask the same.
local proposed, tolerated, first

-- The first count of a counter that starts at `propose`; false where none does.
local function first_count(propose, tolerance)
  if propose ~= proposed or tolerance ~= tolerated then
    local last = tonumber(propose)
    local counts = math.abs(now - last) <= tonumber(tolerance) and last < 9007199254740991
    proposed, tolerated, first = propose, tolerance, counts and decimal(last + 1)
  end
  return first
end

-- Most claims are new, which takes one command: nothing has changed where it was none.
local function acquire_new(key, owner, held, first, kept)
  local left = text_of(math.max(held, kept) - now_ms)
  local value = 'c:' .. text_of(held) .. ':' .. first .. ':' .. text_of(kept) .. ':0:0::' .. owner
  return call('SET', key, value, 'NX', 'PX', left)
end

return serve(true, true, 1, 5, function(k, a)
  local key, held, kept = KEYS[k], now_ms + ARGV[a + 1], now_ms + ARGV[a + 4]
  local first = first_count(ARGV[a + 2], ARGV[a + 3])
  if first and acquire_new(key, ARGV[a], held, first, kept) then
    return { 'granted', first }
  end
  local kind, owner, ends, count, _, attempts, counted, payload = claim_at(key)
  if kind == 'd' then
    return { 'done', ends }
  end
  if owner then
    return claimed(owner, ends)
  end
  if not count then
    count = ARGV[a + 2]
    local apart = math.abs(now - count)
    if apart > tonumber(ARGV[a + 3]) then
      refuse('clock', decimal(apart))
    end
  end
  count = tonumber(count)
  if count >= 9007199254740991 then
    refuse('full')
  end
  count = decimal(count + 1)
  put(key, ARGV[a], held, count, kept, attempts, counted, payload)
  return { 'granted', count, begun_of(attempts, payload) }
end)
