-- Raises the ledger's low-water mark and removes the records before it, a page at a time.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (retention, ms), r:KEY (record, as AT:TERM:LAST:VALUE)
-- ARGV  term, mark, the cursor that the previous page returned or nothing
return serve(true, true, 1, 3, function(k, a)
  local ledger, mark = KEYS[k], ARGV[a + 1]
  local head = ledger_head(ledger, 't')
  check_term(head, ARGV[a])
  -- A leader whose clock is ahead must not raise the mark above the time of records that will be written
  -- later.
  if less(decimal(now), mark) then
    mark = decimal(now)
  end
  if less(mark, head[2]) then
    mark = head[2]
  end
  -- The mark is written first: no record may be removed before the ledger reports the mark.
  call('HSET', ledger, 't', ARGV[a], 'w', mark)
  head[1], head[2] = ARGV[a], mark
  extend_retention(ledger, head)
  local cursor, chunks = page(ledger, ARGV[a + 2], 250)
  for _, chunk in ipairs(chunks) do
    local old = {}
    for i = 1, #chunk, 2 do
      local at = string.match(chunk[i + 1], '^(%d+):')
      if string.sub(chunk[i], 1, 2) == 'r:' and at and less(at, mark) then
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
