-- The functions of the scripts that use readers or queues.
--
-- While readers hold a lock, its key holds the value READERS, so that other clients of the same lock find it
-- held. The key expires with the last reader. The readers are the members of a sorted set. The score of a
-- member is the end of its lease, in milliseconds of this server's clock.

local READERS, READERS_MAX = 'quorate:readers', 1024
local QUEUE, QUEUE_MAX = 'quorate:queue', 128

-- The queue of a lock is three sorted sets, so that no request reads all its entries. The set at the queue's key has an
-- entry's end, in milliseconds of this server's clock, under its kind (w for exclusive access, r for a reader) and its
-- ticket. The sets at the keys of the two kinds have the ticket under the start of its wait. All three expire with the
-- last entry. Their names share the hash tag of the lock.
local function order_of(key, kind)
  return key .. ':' .. kind
end

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

-- Returns whether a wait that began at `at` under `ticket` comes before another one.
local function comes_first(at, ticket, other_at, other_ticket)
  if at ~= other_at then
    return less(at, other_at)
  end
  return bytes_less(ticket, other_ticket)
end

-- Removes the entry `member`, a kind and a ticket, from the queue at `key`.
local function remove_place(key, member)
  call('ZREM', key, member)
  call('ZREM', order_of(key, sub(member, 1, 1)), sub(member, 2))
end

local function remove_ended(key)
  for _, member in ipairs(call('ZRANGE', key, '-inf', decimal(ms), 'BYSCORE')) do
    remove_place(key, member)
  end
end

-- Returns the start of the wait of `ticket` and the kind of its entry in the queue at `key`; nothing if it has none.
local function place_of(key, ticket)
  for _, kind in ipairs({ 'w', 'r' }) do
    local at = call('ZSCORE', order_of(key, kind), ticket)
    if at then
      return at, kind
    end
  end
end

-- Returns the time at which the last entry of the queue at `key`, which is not empty, expires.
local function last_end(key)
  return tonumber(call('ZRANGE', key, -1, -1, 'WITHSCORES')[2])
end

-- Returns the number of entries of one kind that come before the entry of `ticket`, whose wait began at `at`. Without
-- `at` all of them do.
local function ahead_in(order, at, ticket)
  if not at then
    return call('ZCARD', order)
  end
  local ahead = call('ZCOUNT', order, '-inf', '(' .. at)
  for _, other in ipairs(call('ZRANGE', order, at, at, 'BYSCORE')) do
    if bytes_less(other, ticket) then
      ahead = ahead + 1
    end
  end
  return ahead
end

-- Returns the number of entries of the queue at `key` that must be served before the entry of `ticket`, or before a
-- request without an entry. A reader (`reads`) waits only for entries that need exclusive access.
local function ahead_of(key, ticket, reads)
  local at = place_of(key, ticket)
  return ahead_in(order_of(key, 'w'), at, ticket) + (reads and 0 or ahead_in(order_of(key, 'r'), at, ticket))
end

-- Ends the item if an entry of the queue must be served before it. `given` is `=` and the ticket's text, or '' without a
-- ticket.
local function wait_in_queue(key, given, reads)
  remove_ended(key)
  -- Most locks have no queue.
  if call('ZCARD', key) > 0 and ahead_of(key, sub(given, 2), reads) > 0 then
    answer('held', QUEUE, decimal(last_end(key) - ms))
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

