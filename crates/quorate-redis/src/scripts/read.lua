-- Returns the content of the ledger, a page at a time. Changes nothing.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (retention, ms), r:KEY (record)
-- ARGV  the end of the last page or nothing
return serve(false, false, 1, 1, function(k, a)
  return page_reply(KEYS[k], ARGV[a])
end)
