-- Sets the owner where the claim is free and not done, and counts one more grant.
-- KEYS  the claim
-- ARGV  owner, ttl (ms), where a missing counter starts (µs), how far that may be from this clock (µs),
--       how long the counter lives (ms)
return serve(true, true, 1, 5, function(k, a)
  local kind, owner, held, count, _, attempts, counted, payload = claim_at(KEYS[k])
  if kind == 'd' then
    return { 'done', held }
  end
  if owner then
    return claimed(owner, held)
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
  count = text_of(count + 1)
  put(KEYS[k], ARGV[a], now_ms + ARGV[a + 1], count, now_ms + ARGV[a + 4], attempts, counted, payload)
  return { 'granted', count, begun_of(attempts, payload) }
end)
