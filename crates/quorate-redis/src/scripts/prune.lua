-- Raises the ledger's low-water mark and forgets the records before it, a page at a time.
-- KEYS  ledger: a hash of t (term), w (low-water mark), l (how long it lives, ms), r:KEY (record, as AT:TERM:LAST:VALUE)
-- ARGV  term, mark, where the last page ended or nothing
return serve(true, true, 1, 3, function(k, a)
  local ledger, mark = KEYS[k], ARGV[a + 1]
  sealed(ledger, ARGV[a])
  -- A leader whose clock is ahead must not have the ledger forget what is yet to come.
  if less(decimal(now), mark) then
    mark = decimal(now)
  end
  local standing = low_water(ledger)
  if less(mark, standing) then
    mark = standing
  end
  -- The mark first: a record must not go before the ledger says that it forgets.
  call('HSET', ledger, 't', ARGV[a], 'w', mark)
  live_on(ledger)
  local cursor, chunks = page(ledger, ARGV[a + 2], 250)
  for _, chunk in ipairs(chunks) do
    local old = {}
    for i = 1, #chunk, 2 do
      local at = string.match(chunk[i + 1], '^(%d+):')
      if string.sub(chunk[i], 1, 2) == 'r:' and at and less(at, mark) then
        old[#old + 1] = chunk[i]
      end
    end
    -- Lua passes no more than a few thousand arguments.
    for i = 1, #old, 500 do
      call('HDEL', ledger, unpack(old, i, math.min(i + 499, #old)))
    end
  end
  return { 'pruned', cursor }
end)
