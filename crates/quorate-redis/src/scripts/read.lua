-- Returns the first page of the ledger's records, or the record under one key. Changes nothing. The client reads the
-- next page with HSCAN, and then calls this script again, which returns no records.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (retention, ms), r:KEY (record)
-- ARGV  nothing for the first page or '=' for no records; '=' and the key of the only record to return, or
--       nothing
return serve(false, false, 1, 2, function(k, a)
  local ledger, only = KEYS[k], ARGV[a + 1]
  if only == '' then
    return page_reply(ledger, nil, ARGV[a])
  end
  local field = 'r:' .. string.sub(only, 2)
  local head, record = ledger_head(ledger, field)
  return { 'ledger', '', head[1], head[2], { record and { field, record } or {} } }
end)
