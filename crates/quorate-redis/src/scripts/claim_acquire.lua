-- Sets the owner if the claim is free and not done. Increments the counter.
-- KEYS  the claim
-- ARGV  owner
-- SHARED  ttl (ms), initial value of a missing counter (µs), its largest distance from this clock (µs), retention of the
--         counter (ms)
return serve(true, true, 1, 1, function(k, a, s)
  local kind, owner, ends, last, _, attempts, counted, payload = claim_at(KEYS[k])
  if kind == 'd' then
    return { 'done', ends }
  end
  if owner then
    return held_claim(owner, ends)
  end
  if not last then
    last = ARGV[s + 1]
    local apart = math.abs(now - tonumber(last))
    if apart > tonumber(ARGV[s + 2]) then
      refuse('clock', decimal(apart))
    end
  end
  if tonumber(last) >= 9007199254740991 then
    refuse('full')
  end
  local count = decimal(tonumber(last) + 1)
  put(KEYS[k], ARGV[a], now_ms + ARGV[s], count, now_ms + ARGV[s + 3], attempts, counted, payload)
  return { 'granted', count, begun_of(attempts, payload) }
end)
