-- Serves the requests on ledgers whose records are compared and set, and on all ledgers.

-- Returns the first page of the ledger's records, or the record under one key. Changes nothing. The client reads the
-- next page with HSCAN, and then calls this script again, which returns no records.
-- KEYS  ledger
-- ARGV  nothing for the first page or '=' for no records; '=' and the key of the only record to return, or
--       nothing
define('a', false, false, 1, 2, function(k, a)
  local ledger, only = KEYS[k], ARGV[a + 1]
  if only == '' then
    return page_reply(ledger, ARGV[a])
  end
  local field = 'r:' .. sub(only, 2)
  local head, record = ledger_head(ledger, field)
  return { 'ledger', '0', head[1], { record and { field, record } or {} } }
end)

-- Writes a record if the stored one is the record that the client expects, or already the new record.
-- KEYS  ledger
-- ARGV  key, the expected record or nothing, the new record, its time
define('b', true, true, 1, 4, function(k, a)
  local ledger, field = KEYS[k], 'r:' .. ARGV[a]
  local seen, record = ARGV[a + 1], ARGV[a + 2]
  local head, stored = ledger_head(ledger, field)
  if less(ARGV[a + 3], head[1]) then
    refuse('pruned')
  end
  if stored == record then
    return written(ledger)
  end
  if stored then
    local last = match(stored, '^%d+:%d+:([01]):')
    if not last then
      refuse('wrongtype', 'the key ' .. ledger .. ' holds no record at ' .. field)
    end
    if last == '1' or stored ~= seen then
      return { 'stored', stored }
    end
  end
  call('HSET', ledger, field, record)
  return written(ledger)
end)

-- Raises the ledger's low-water mark and removes the records before it, a page at a time.
-- KEYS  ledger
-- ARGV  mark, the cursor that the previous page returned, or 0
define('c', true, true, 1, 2, function(k, a)
  local ledger, mark = KEYS[k], ARGV[a]
  local head = ledger_head(ledger)
  -- A client whose clock is ahead must not raise the mark above the time of records that will be written
  -- later.
  if less(decimal(now), mark) then
    mark = decimal(now)
  end
  if less(mark, head[1]) then
    mark = head[1]
  end
  -- The mark is written first: no record may be removed before the ledger reports the mark.
  call('HSET', ledger, 'w', mark)
  head[1] = mark
  written(ledger)
  local cursor, chunks = page(ledger, ARGV[a + 1], 250)
  for _, chunk in ipairs(chunks) do
    local old = {}
    for i = 1, #chunk, 2 do
      local at = match(chunk[i + 1], '^(%d+):')
      if sub(chunk[i], 1, 2) == 'r:' and at and less(at, mark) then
        old[#old + 1] = chunk[i]
      end
    end
    -- A call in Lua takes a few thousand arguments at most.
    for i = 1, #old, 500 do
      call('HDEL', ledger, unpack(old, i, math.min(i + 499, #old)))
    end
  end
  return { 'pruned', cursor }
end)

-- Sets the retention of the ledger: the time for which the node stores it after the last request that may have changed
-- it. That time starts again now. Does not create a ledger.
-- KEYS  ledger
-- ARGV  retention (ms)
define('d', true, true, 1, 1, function(k, a)
  if call('PEXPIRE', KEYS[k], ARGV[a]) == 1 then
    call('HSET', KEYS[k], 'l', ARGV[a])
    heads[KEYS[k]] = nil
  end
  return 'kept'
end)

