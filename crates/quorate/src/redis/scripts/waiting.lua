-- Serves the other requests on locks.

-- Adds a reader if the resource is free or held by readers, and no waiter that needs exclusive access is
-- ahead of the reader.
-- KEYS  lock, readers, queue
-- ARGV  owner, ttl (ms), '=' and the ticket or nothing
define('a', true, true, 3, 3, function(k, a)
  local lock, readers = KEYS[k], KEYS[k + 1]
  local holder = holder_of(lock, READERS)
  wait_in_queue(KEYS[k + 2], ARGV[a + 2], true)
  add_reader(lock, readers, holder, ARGV[a], ARGV[a + 1])
  return 'shared'
end)

-- Extends the lease of a reader to ttl from now, and never shortens it. Adds the reader again if the resource
-- is free or held by readers, and no waiter needs exclusive access.
-- KEYS  lock, readers, queue
-- ARGV  owner, ttl (ms)
define('b', true, true, 3, 2, function(k, a)
  local lock, readers = KEYS[k], KEYS[k + 1]
  local holder = holder_of(lock, READERS)
  if not holder or not reader_end(readers, ARGV[a]) then
    wait_in_queue(KEYS[k + 2], '', true)
  end
  add_reader(lock, readers, holder, ARGV[a], ARGV[a + 1])
  return 'extended'
end)

-- Removes a reader. Frees the resource if no reader remains. Served even after the deadline and under another
-- marker.
-- KEYS  lock, readers
-- ARGV  owner
define('c', false, false, 2, 1, function(k, a)
  local lock, readers = KEYS[k], KEYS[k + 1]
  if call('GET', lock) ~= READERS then
    return 'absent'
  end
  call('ZREMRANGEBYSCORE', readers, '-inf', decimal(ms))
  local removed = call('ZREM', readers, ARGV[a])
  if removed == 1 and call('ZCARD', readers) == 0 then
    free(lock, READERS)
  else
    expire_with_last(lock, readers)
  end
  return removed == 1 and 'freed' or 'absent'
end)

-- Replaces the exclusive lease of the owner by the lease of one reader, if no later grant has been counted.
-- KEYS  lock, readers, counter
-- ARGV  owner, token, the reader, ttl (ms)
define('d', true, true, 3, 4, function(k, a)
  local lock, readers = KEYS[k], KEYS[k + 1]
  if not holder_of(lock, ARGV[a]) then
    refuse('notowner')
  end
  local last = counter(KEYS[k + 2])
  if not last or less(ARGV[a + 1], last) then
    refuse('superseded')
  end
  call('DEL', readers)
  -- The reader is written first: a server that is out of memory then leaves the writer's lease unchanged.
  call('ZADD', readers, decimal(ms + tonumber(ARGV[a + 3])), ARGV[a + 2])
  call('SET', lock, READERS, 'PX', ARGV[a + 3])
  expire_with_last(lock, readers)
  notify(lock, ARGV[a])
  return 'shared'
end)

-- Returns the last entry of the queue at `key`, which is not empty.
local function last_place(key)
  local last
  for _, kind in ipairs({ 'w', 'r' }) do
    local place = call('ZRANGE', order_of(key, kind), -1, -1, 'WITHSCORES')
    if place[1] and not (last and comes_first(place[2], place[1], last.at, last.ticket)) then
      last = { at = place[2], ticket = place[1], member = kind .. place[1] }
    end
  end
  return last
end

-- Adds a waiter to the queue, or extends the entry of the waiter with the same ticket. The entries are
-- ordered by the start of the wait, then by ticket. A full queue keeps the entries that come first.
-- KEYS  queue
-- ARGV  ticket, start of the wait (µs of the waiter), the waiter's clock (µs), its largest distance from this clock (µs),
--       time for which the entry is kept (ms), w for exclusive access, else r
define('e', true, true, 1, 6, function(k, a)
  local key, ticket, at, tolerance = KEYS[k], ARGV[a], ARGV[a + 1], tonumber(ARGV[a + 3])
  local apart = math.max(abs(now - tonumber(ARGV[a + 2])), tonumber(at) - now)
  if apart > tolerance then
    refuse('clock', decimal(apart))
  end
  remove_ended(key)
  local stored_at, kind = place_of(key, ticket)
  if not stored_at then
    kind = ARGV[a + 5]
    if call('ZCARD', key) >= QUEUE_MAX then
      local last = last_place(key)
      if not comes_first(at, ticket, last.at, last.ticket) then
        refuse('crowded', decimal(QUEUE_MAX))
      end
      remove_place(key, last.member)
    end
    call('ZADD', order_of(key, kind), at, ticket)
  end
  call('ZADD', key, 'GT', decimal(ms + tonumber(ARGV[a + 4])), kind .. ticket)
  local last = decimal(last_end(key))
  for _, each in ipairs({ key, order_of(key, 'w'), order_of(key, 'r') }) do
    call('PEXPIREAT', each, last)
  end
  return { 'queued', decimal(ahead_of(key, ticket, kind == 'r')) }
end)

-- Removes a waiter from the queue. Served even after the deadline and under another marker.
-- KEYS  queue
-- ARGV  ticket
define('f', false, false, 1, 1, function(k, a)
  remove_ended(KEYS[k])
  local at, kind = place_of(KEYS[k], ARGV[a])
  if not at then
    return 'absent'
  end
  remove_place(KEYS[k], kind .. ARGV[a])
  return 'freed'
end)

-- Replaces the lease by a reservation if the given owner holds the lock. Notifies the waiters, one of which
-- may be the worker that the reservation names.
-- KEYS  lock
-- ARGV  owner, the reservation's token, its duration (ms)
define('g', true, true, 1, 3, function(k, a)
  if call('GET', KEYS[k]) ~= ARGV[a] then
    refuse('notowner')
  end
  call('SET', KEYS[k], ARGV[a + 1], 'PX', ARGV[a + 2])
  notify(KEYS[k], ARGV[a])
  return 'reserved'
end)

-- Returns the holder of the resource. Changes nothing.
-- KEYS  lock, counter
-- ARGV  none
define('h', false, false, 2, 0, function(k)
  local holder, count = call('GET', KEYS[k]), counter(KEYS[k + 1])
  -- Missing values are empty strings, because Redis ends an array at its first nil.
  return { 'state', holder and left_of(KEYS[k]) or '-2', holder or '', count or '', '' }
end)

