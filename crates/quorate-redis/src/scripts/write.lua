-- Writes a record where nothing stands but what the leader has seen, or the record itself.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (how long it lives, ms), r:KEY (record, as AT:TERM:LAST:VALUE)
-- ARGV  term, key, the record seen or nothing, the new record, its time
return serve(true, true, 1, 5, function(k, a)
  local ledger, field = KEYS[k], 'r:' .. ARGV[a + 1]
  local seen, record = ARGV[a + 2], ARGV[a + 3]
  sealed(ledger, ARGV[a])
  if less(ARGV[a + 4], low_water(ledger)) then
    refuse('pruned')
  end
  local standing = call('HGET', ledger, field)
  if standing == record then
    live_on(ledger)
    return { 'written' }
  end
  if standing then
    local last = string.match(standing, '^%d+:%d+:([01]):')
    if not last then
      refuse('wrongtype', 'the key ' .. ledger .. ' holds no record at ' .. field)
    end
    if last == '1' or standing ~= seen then
      return { 'standing', standing }
    end
  end
  call('HSET', ledger, 't', ARGV[a], field, record)
  live_on(ledger)
  return { 'written' }
end)
