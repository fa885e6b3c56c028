-- The functions of the scripts that use readers or queues.
--
-- While readers hold a lock, its key holds the value READERS, so that other clients of the same lock find it
-- held. The key expires with the last reader. The readers are the members of a sorted set. The score of a
-- member is the end of its lease, in milliseconds of this server's clock.

local READERS, READERS_MAX = 'quorate:readers', 1024
local QUEUE, QUEUE_MAX = 'quorate:queue', 128

-- Returns whether the string a comes before the string b, byte by byte. Lua's own order of strings depends on
-- the locale.
local function bytes_less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

local function comes_first(a, b)
  if a.at ~= b.at then
    return less(a.at, b.at)
  end
  return bytes_less(a.ticket, b.ticket)
end

-- Returns the fields of `value`, the entry of a ticket in the queue at `key`: the start of the wait, the end of the
-- entry in milliseconds, and its kind, w (exclusive access) or r (reader). The queue is a hash of TICKET to AT:END:KIND.
local function place_of(key, value)
  local at, ends, kind = match(value, '^(%d+):(%d+):([rw])$')
  if not at then
    refuse('wrongtype', 'the key ' .. key .. ' holds no queue')
  end
  return at, ends, kind
end

-- Returns the live entries of the queue at `key`, in any order, and removes the expired entries.
local function live_places(key)
  local fields, places = call('HGETALL', key), {}
  for i = 1, #fields, 2 do
    local at, ends, kind = place_of(key, fields[i + 1])
    if tonumber(ends) > ms then
      places[#places + 1] = { ticket = fields[i], at = at, ends = ends, exclusive = kind == 'w' }
    else
      call('HDEL', key, fields[i])
    end
  end
  return places
end

-- Returns the time at which the last of the entries `places` expires.
local function last_end(places)
  local last = 0
  for _, place in ipairs(places) do
    last = math.max(last, tonumber(place.ends))
  end
  return last
end

-- Returns the entry of the ticket `given`, or nil. `given` is `=` and the ticket's text, or '' without a ticket.
local function own_of(places, given)
  for _, place in ipairs(places) do
    if '=' .. place.ticket == given then
      return place
    end
  end
end

-- Returns the number of entries of `places` that must be served before the entry `own`, or before a request without an
-- entry. A reader (`reads`) waits only for entries that need exclusive access.
local function ahead_of(places, own, reads)
  local ahead = 0
  for _, place in ipairs(places) do
    if place ~= own and (place.exclusive or not reads) and (not own or comes_first(place, own)) then
      ahead = ahead + 1
    end
  end
  return ahead
end

-- Ends the item under the ticket `given` if an entry of the queue must be served before it.
local function wait_in_queue(key, given, reads)
  local places = live_places(key)
  if ahead_of(places, own_of(places, given), reads) > 0 then
    answer('held', QUEUE, decimal(last_end(places) - ms))
  end
end

-- Returns the end of the lease of the reader `owner`; nil or false if the reader has no lease, or if its
-- lease has ended.
local function reader_end(readers, owner)
  local ends = call('ZSCORE', readers, owner)
  ends = ends and tonumber(ends)
  return ends and ends > ms and ends
end

-- Makes the keys of the lock and of its readers expire with the last reader's lease. Deletes the lock if it
-- has no reader.
local function expire_with_last(lock, readers)
  local last = call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2]
  if not last then
    call('DEL', lock)
    return
  end
  last = decimal(tonumber(last))
  call('PEXPIREAT', readers, last)
  call('PEXPIREAT', lock, last)
end

-- Adds a reader to a lock that readers hold, or that is free.
local function add_reader(lock, readers, holder, owner, ttl)
  if holder then
    call('ZREMRANGEBYSCORE', readers, '-inf', decimal(ms))
  else
    -- Another client may have deleted the lock's key. Then the readers that are still in the set are stale.
    call('DEL', readers)
  end
  local ends, end_before = ms + tonumber(ttl), reader_end(readers, owner)
  if not end_before and call('ZCARD', readers) >= READERS_MAX then
    refuse('crowded', decimal(READERS_MAX))
  end
  if not end_before or end_before < ends then
    call('ZADD', readers, decimal(ends), owner)
  end
  if not holder then
    call('SET', lock, READERS, 'NX', 'PX', ttl)
  end
  expire_with_last(lock, readers)
end

