-- Raises the ledger's low-water mark and forgets the records before it.
-- KEYS  ledger: a hash of t (term), w (low-water mark), r:KEY (record, as AT:TERM:LAST:VALUE)
-- ARGV  term, mark
return serve(true, true, 1, 2, function(k, a)
  local ledger, mark = KEYS[k], ARGV[a + 1]
  sealed(ledger, ARGV[a])
  -- A leader whose clock is ahead must not have the ledger forget what is yet to come.
  if less(decimal(now), mark) then
    mark = decimal(now)
  end
  local standing = low_water(ledger)
  if less(mark, standing) then
    mark = standing
  end
  -- The mark first: a record must not go before the ledger says that it forgets.
  call('HSET', ledger, 't', ARGV[a], 'w', mark)
  local fields = call('HGETALL', ledger)
  for i = 1, #fields, 2 do
    local at = string.match(fields[i + 1], '^(%d+):')
    if string.sub(fields[i], 1, 2) == 'r:' and at and less(at, mark) then
      call('HDEL', ledger, fields[i])
    end
  end
  return { 'written' }
end)
