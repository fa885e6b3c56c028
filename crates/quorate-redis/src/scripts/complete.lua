-- Records that a claim is done, and frees it. Its counter ends: the record has the token.
-- KEYS  the claim
-- ARGV  owner, token, the done record, how long it lives (ms)
return serve(true, true, 1, 4, function(k, a)
  local kind, owner, held, count = claim_at(KEYS[k])
  local token = ARGV[a + 1]
  if kind == 'd' then
    if less(token, owner) then
      return { 'done', held }
    end
    owner = nil
  elseif owner and owner ~= ARGV[a] then
    return claimed(owner, held)
  elseif not owner and count and less(token, count) then
    refuse('superseded')
  end
  call('SET', KEYS[k], ARGV[a + 2], 'PX', ARGV[a + 3])
  if owner then
    tell(KEYS[k], owner)
  end
  return { 'completed' }
end)
