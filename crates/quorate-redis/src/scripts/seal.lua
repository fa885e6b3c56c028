-- Makes the ledger refuse the writes of earlier terms, and returns the first page of its content. The client reads
-- the next page with HSCAN, and then calls this script again, which returns no records. The pages after the first
-- miss no record that was stored at the time of the seal, because earlier terms can no longer write. If a later term
-- has sealed the ledger, the script refuses the call, and so the page.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (retention, ms), r:KEY (record)
-- ARGV  term, nothing for the first page or '=' for no records
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
