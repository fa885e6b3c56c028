-- Writes a record if the stored one is the record that the leader expects, or already the new record.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (retention, ms), r:KEY (record, as AT:TERM:LAST:VALUE)
-- ARGV  term, key, the expected record or nothing, the new record, its time
return serve(true, true, 1, 5, function(k, a)
  local ledger, field = KEYS[k], 'r:' .. ARGV[a + 1]
  local seen, record = ARGV[a + 2], ARGV[a + 3]
  local head, stored = ledger_head(ledger, field)
  check_term(head, ARGV[a])
  if less(ARGV[a + 4], head[2]) then
    refuse('pruned')
  end
  if stored == record then
    extend_retention(ledger, head)
    return 'written'
  end
  if stored then
    local last = string.match(stored, '^%d+:%d+:([01]):')
    if not last then
      refuse('wrongtype', 'the key ' .. ledger .. ' holds no record at ' .. field)
    end
    if last == '1' or stored ~= seen then
      return { 'stored', stored }
    end
  end
  call('HSET', ledger, 't', ARGV[a], field, record)
  head[1] = ARGV[a]
  extend_retention(ledger, head)
  return 'written'
end)
