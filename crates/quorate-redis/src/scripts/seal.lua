-- Makes the ledger refuse the writes of earlier terms, and returns its content, a page at a time. The pages
-- after the first miss no record that was stored at the time of the seal, because earlier terms can no longer
-- write. If a later term seals the ledger, the next page is refused.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (retention, ms), r:KEY (record)
-- ARGV  term, the cursor that the previous page returned or nothing
return serve(true, true, 1, 2, function(k, a)
  local ledger, term = KEYS[k], ARGV[a]
  local head = ledger_head(ledger, 't')
  check_term(head, term)
  if less(head[1], term) then
    call('HSET', ledger, 't', term)
    head[1] = term
  end
  extend_retention(ledger, head)
  return page_reply(ledger, head, ARGV[a + 1])
end)
