-- Takes a place in the queue, or holds on to it. Places are ordered by when their waiters began, then by ticket.
-- KEYS  queue
-- ARGV  ticket, when the waiter began (its µs), its clock (µs), how far that may be from this clock (µs), for how
--       long the place stands (ms), w for one who wants to be alone, else r
return serve(true, true, 1, 6, function(k, a)
  local key, tolerance = KEYS[k], tonumber(ARGV[a + 3])
  local apart = math.max(math.abs(now - tonumber(ARGV[a + 2])), tonumber(ARGV[a + 1]) - now)
  if apart > tolerance then
    refuse('clock', decimal(apart))
  end
  local places, mine = line(key), nil
  for _, place in ipairs(places) do
    if place.ticket == ARGV[a] then
      mine = place
    end
  end
  local ends = ms + tonumber(ARGV[a + 4])
  if mine then
    mine.ends = decimal(math.max(ends, tonumber(mine.ends)))
  elseif #places >= QUEUE_MAX then
    refuse('crowded', decimal(QUEUE_MAX))
  else
    mine = { ticket = ARGV[a], at = ARGV[a + 1], ends = decimal(ends), alone = ARGV[a + 5] == 'w' }
    places[#places + 1] = mine
  end
  call('HSET', key, mine.ticket, mine.at .. ':' .. mine.ends .. ':' .. (mine.alone and 'w' or 'r'))
  call('PEXPIREAT', key, decimal(last_end(places)))
  local ahead = 0
  for _, place in ipairs(places) do
    if comes_first(place, mine) and (place.alone or mine.alone) then
      ahead = ahead + 1
    end
  end
  return { 'queued', decimal(ahead) }
end)
