-- Sets the counter to the given count if the given owner holds the claim and the counter is no larger.
-- KEYS  the claim
-- ARGV  owner, the count
-- SHARED  retention of the counter (ms)
return serve(true, true, 1, 2, function(k, a, s)
  local kind, owner, held, count, _, attempts, counted, payload = claim_at(KEYS[k])
  if kind ~= 'c' or owner ~= ARGV[a] then
    refuse('notowner')
  end
  -- If the counter has expired before the claim, its last value is unknown.
  if not count or less(ARGV[a + 1], count) then
    refuse('superseded')
  end
  put_over(KEYS[k], owner, held, ARGV[a + 1], now_ms + ARGV[s], attempts, counted, payload)
  return 'raised'
end)
