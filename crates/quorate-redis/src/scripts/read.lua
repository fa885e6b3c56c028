-- Returns the records of the ledger, a page at a time, or the record under one key. Changes nothing.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (retention, ms), r:KEY (record)
-- ARGV  the cursor that the previous page returned or nothing; '=' and the key of the only record to return, or
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
