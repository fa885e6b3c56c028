-- Removes the counted attempts and the dead-letter record of a claim that no worker holds and that is not
-- completed. The counter continues from the token of the dead-letter record, so that the next token is
-- larger.
-- KEYS  the claim
-- ARGV  retention of the counter (ms)
return serve(true, true, 1, 1, function(k, a)
  local kind, owner, held, count, kept = claim_at(KEYS[k])
  if kind == 'd' then
    local token, record = owner, held
    if not string.find(record, '^d:%d+:%d+:%x*:%d') then
      return { 'done', record }
    end
    count, kept = token, now_ms + ARGV[a]
  elseif owner then
    return held_claim(owner, held)
  end
  if kind then
    put_over(KEYS[k], nil, nil, count, kept)
  end
  return 'attempts_reset'
end)
