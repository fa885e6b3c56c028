-- Makes the ledger refuse the writes of earlier terms, and returns its content, a page at a time. The pages
-- after the first miss no record that was stored at the time of the seal, because earlier terms can no longer
-- write. If a later term seals the ledger, the next page is refused.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (retention, ms), r:KEY (record)
-- ARGV  term, the cursor that the previous page returned or nothing
return serve(true, true, 1, 2, function(k, a)
  local stored = check_term(KEYS[k], ARGV[a])
  low_water(KEYS[k])
  if less(stored, ARGV[a]) then
    call('HSET', KEYS[k], 't', ARGV[a])
  end
  extend_retention(KEYS[k])
  return page_reply(KEYS[k], ARGV[a + 1])
end)
