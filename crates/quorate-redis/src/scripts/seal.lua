-- From now on the ledger refuses the writes of earlier terms; says what stands there.
-- KEYS  ledger: a hash of t (term), w (low-water mark), r:KEY (record)
-- ARGV  term
return serve(true, true, 1, 1, function(k, a)
  local standing = sealed(KEYS[k], ARGV[a])
  low_water(KEYS[k])
  if less(standing, ARGV[a]) then
    call('HSET', KEYS[k], 't', ARGV[a])
  end
  local reply = call('HGETALL', KEYS[k])
  table.insert(reply, 1, 'ledger')
  return reply
end)
