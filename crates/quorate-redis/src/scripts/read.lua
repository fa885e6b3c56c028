-- Says what stands in the ledger. Changes nothing.
-- KEYS  ledger: a hash of t (term), w (low-water mark), r:KEY (record)
-- ARGV  unused: one for each item
return serve(false, false, 1, 1, function(k)
  local reply = call('HGETALL', KEYS[k])
  table.insert(reply, 1, 'ledger')
  return reply
end)
