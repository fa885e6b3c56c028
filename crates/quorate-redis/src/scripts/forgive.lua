-- Forgets what was counted on a claim, and that it was given up, where nobody holds it and it is not done.
-- KEYS  lock, a claim's record
-- ARGV  unused: one for each item
return serve(true, true, 2, 1, function(k)
  local holder = call('GET', KEYS[k])
  if holder then
    return held(holder, KEYS[k])
  end
  local kind, _, record = claim_record(KEYS[k + 1])
  if kind == 'd' and not string.find(record, '^d:%d+:%d+:%x*:%d') then
    return { 'done', record }
  end
  if kind then
    call('DEL', KEYS[k + 1])
  end
  return { 'forgiven' }
end)
