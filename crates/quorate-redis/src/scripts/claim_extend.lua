-- Extends the claim to ttl from now, and never shortens it. Sets the owner again if the claim is free and no later
-- grant has been counted.
-- KEYS  the claim
-- ARGV  owner, token
-- SHARED  ttl (ms), retention of the counter (ms)
return serve(true, true, 1, 2, function(k, a, s)
  local kind, owner, held, count, _, attempts, counted, payload = claim_at(KEYS[k])
  if kind == 'd' then
    return { 'done', held }
  end
  if owner and owner ~= ARGV[a] then
    return held_claim(owner, held)
  end
  if not owner and count and less(ARGV[a + 1], count) then
    refuse('later', count)
  end
  if not count or less(count, ARGV[a + 1]) then
    count = ARGV[a + 1]
  end
  held = math.max(held or 0, now_ms + ARGV[s])
  local set = kind and put_over or put
  set(KEYS[k], ARGV[a], held, count, now_ms + ARGV[s + 1], attempts, counted, payload)
  return 'extended'
end)
