-- Forgets what was counted on a claim, and that it was given up, where nobody holds it and it is not done. Of what was given
-- up the token goes on in the counter, so that the next one is larger.
-- KEYS  lock, counter, a claim's record
-- ARGV  how long the counter lives (ms)
return serve(true, true, 3, 1, function(k, a)
  local lock, fence, claim = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local holder = call('GET', lock)
  if holder then
    return held(holder, lock)
  end
  local kind, token, record = claim_record(claim)
  if kind == 'd' then
    if not string.find(record, '^d:%d+:%d+:%x*:%d') then
      return { 'done', record }
    end
    count_to(fence, counter(fence), token, ARGV[a])
  end
  if kind then
    call('DEL', claim)
  end
  return { 'forgiven' }
end)
