-- Sets the retention of the ledger: the time for which the node stores it after its last seal, write, prune
-- or keep. That time starts again now. Does not create a ledger.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (retention, ms), r:KEY (record)
-- ARGV  retention (ms)
return serve(true, true, 1, 1, function(k, a)
  if call('HGET', KEYS[k], 't') then
    call('PEXPIRE', KEYS[k], ARGV[a])
    call('HSET', KEYS[k], 'l', ARGV[a])
  end
  return 'kept'
end)
