-- Sets how long the ledger outlives its last seal, write, prune or keep, and lets it live for as long from now. Creates
-- none.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (how long it lives, ms), r:KEY (record)
-- ARGV  how long (ms)
return serve(true, true, 1, 1, function(k, a)
  if call('HGET', KEYS[k], 't') then
    call('PEXPIRE', KEYS[k], ARGV[a])
    call('HSET', KEYS[k], 'l', ARGV[a])
  end
  return { 'kept' }
end)
