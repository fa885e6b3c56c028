-- Counts an attempt on a claim if the given owner holds the claim and fewer attempts have been counted. Or
-- reverses the count if exactly this many attempts have been counted. If no attempt remains, the payload's
-- fingerprint is removed too.
-- KEYS  the claim
-- ARGV  owner, attempts, the payload's fingerprint or nothing, + to count or - to reverse
-- SHARED  retention of the count (ms)
return serve(true, true, 1, 4, function(k, a, s)
  local kind, owner, held, count, kept, stored, _, of = claim_at(KEYS[k])
  if kind ~= 'c' or owner ~= ARGV[a] then
    refuse('notowner')
  end
  local attempts, payload = ARGV[a + 1], ARGV[a + 2]
  if ARGV[a + 3] == '-' then
    if stored ~= attempts then
      refuse('superseded')
    end
    attempts = decimal(math.max(tonumber(attempts) - 1, 0))
  elseif not less(stored or '0', attempts) then
    refuse('superseded')
  end
  if attempts == '0' then
    payload = ''
  elseif payload == '' then
    payload = of
  end
  put(KEYS[k], owner, held, count, kept, attempts, now_ms + ARGV[s], payload)
  return 'counted'
end)
