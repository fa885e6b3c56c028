-- From now on the ledger refuses the writes of earlier terms; says what stands there, a page at a time. No page after the
-- first misses what stood at the seal: no earlier term writes any more, and a later one is said to have come.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (how long it lives, ms), r:KEY (record)
-- ARGV  term, where the last page ended or nothing
return serve(true, true, 1, 2, function(k, a)
  local standing = sealed(KEYS[k], ARGV[a])
  low_water(KEYS[k])
  if less(standing, ARGV[a]) then
    call('HSET', KEYS[k], 't', ARGV[a])
  end
  live_on(KEYS[k])
  return told(KEYS[k], ARGV[a + 1])
end)
