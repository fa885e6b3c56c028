-- Says what stands in the ledger, a page at a time. Changes nothing.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (how long it lives, ms), r:KEY (record)
-- ARGV  where the last page ended or nothing
return serve(false, false, 1, 1, function(k, a)
  return told(KEYS[k], ARGV[a])
end)
