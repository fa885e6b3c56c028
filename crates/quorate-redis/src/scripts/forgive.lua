-- Forgets what was counted on a claim, and that it was given up, where nobody holds it and it is not done. Of what was given
-- up the token goes on in the counter, so that the next one is larger.
-- KEYS  the claim
-- ARGV  how long the counter lives (ms)
return serve(true, true, 1, 1, function(k, a)
  local kind, owner, held, count, kept = claim_at(KEYS[k])
  if kind == 'd' then
    local token, record = owner, held
    if not string.find(record, '^d:%d+:%d+:%x*:%d') then
      return { 'done', record }
    end
    count, kept = token, now_ms + ARGV[a]
  elseif owner then
    return claimed(owner, held)
  end
  if kind then
    put_over(KEYS[k], nil, nil, count, kept)
  end
  return 'forgiven'
end)
