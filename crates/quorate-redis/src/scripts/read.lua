-- Returns the records of the ledger, a page at a time, or the record under one key. Changes nothing.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (retention, ms), r:KEY (record)
-- ARGV  the cursor that the previous page returned or nothing; '=' and the key of the only record to return, or
--       nothing
return serve(false, false, 1, 2, function(k, a)
  if ARGV[a + 1] == '' then
    return page_reply(KEYS[k], ARGV[a])
  end
  local ledger, field = KEYS[k], 'r:' .. string.sub(ARGV[a + 1], 2)
  local record = call('HGET', ledger, field)
  local chunk = record and { field, record } or {}
  return { 'ledger', '', call('HGET', ledger, 't') or '0', call('HGET', ledger, 'w') or '0', { chunk } }
end)
