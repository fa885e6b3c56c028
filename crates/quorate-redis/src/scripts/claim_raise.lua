-- If the owner is still the same and the counter no larger, makes the counter what is asked.
-- KEYS  the claim
-- ARGV  owner, the count, how long the counter lives (ms)
return serve(true, true, 1, 3, function(k, a)
  local kind, owner, held, count, _, attempts, counted, payload = claim_at(KEYS[k])
  if kind ~= 'c' or owner ~= ARGV[a] then
    refuse('notowner')
  end
  -- A counter forgotten under a live claim: nobody can say what was counted here.
  if not count or less(ARGV[a + 1], count) then
    refuse('superseded')
  end
  put_over(KEYS[k], owner, held, ARGV[a + 1], now_ms + ARGV[a + 2], attempts, counted, payload)
  return 'raised'
end)
