-- Adds a waiter to the queue, or extends the entry of the waiter with the same ticket. The entries are
-- ordered by the start of the wait, then by ticket. A full queue keeps the entries that come first.
-- KEYS  queue
-- ARGV  ticket, start of the wait (µs of the waiter), the waiter's clock (µs), its largest distance from this clock (µs),
--       time for which the entry is kept (ms), w for exclusive access, else r
return serve(true, true, 1, 6, function(k, a)
  local key, tolerance = KEYS[k], tonumber(ARGV[a + 3])
  local apart = math.max(math.abs(now - tonumber(ARGV[a + 2])), tonumber(ARGV[a + 1]) - now)
  if apart > tolerance then
    refuse('clock', decimal(apart))
  end
  local places, own = live_places(key), nil
  for _, place in ipairs(places) do
    if place.ticket == ARGV[a] then
      own = place
    end
  end
  local ends = ms + tonumber(ARGV[a + 4])
  if own then
    own.ends = decimal(math.max(ends, tonumber(own.ends)))
  else
    own = { ticket = ARGV[a], at = ARGV[a + 1], ends = decimal(ends), exclusive = ARGV[a + 5] == 'w' }
    local at = #places + 1
    if at > QUEUE_MAX then
      at = 1
      for i = 2, #places do
        if comes_first(places[at], places[i]) then
          at = i
        end
      end
      if not comes_first(own, places[at]) then
        refuse('crowded', decimal(QUEUE_MAX))
      end
      call('HDEL', key, places[at].ticket)
    end
    places[at] = own
  end
  call('HSET', key, own.ticket, own.at .. ':' .. own.ends .. ':' .. (own.exclusive and 'w' or 'r'))
  call('PEXPIREAT', key, decimal(last_end(places)))
  local ahead = 0
  for _, place in ipairs(places) do
    if comes_first(place, own) and (place.exclusive or own.exclusive) then
      ahead = ahead + 1
    end
  end
  return { 'queued', decimal(ahead) }
end)
