-- Runs before the scripts that know of readers and of queues.
--
-- While readers hold a lock, its key holds this word, so that other clients of the same lock find it held. It ends
-- with the last reader. Readers: a sorted set, scored by their ends in this server's milliseconds.

local READERS, READERS_MAX = 'quorate:readers', 1024
local QUEUE, QUEUE_MAX = 'quorate:queue', 128
local ms = math.floor(now / 1000)

-- The string a before the string b, byte by byte: Lua's own order is the locale's.
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

-- The places in the queue at `key` that have not ended, in their order. The others are dropped.
-- The queue is a hash of TICKET to AT:END:KIND, with the end in milliseconds and the kind w (alone) or r.
local function line(key)
  local fields, places = call('HGETALL', key), {}
  for i = 1, #fields, 2 do
    local at, ends, kind = string.match(fields[i + 1], '^(%d+):(%d+):([rw])$')
    if not at then
      refuse('wrongtype', 'the key ' .. key .. ' holds no queue')
    end
    if tonumber(ends) > ms then
      places[#places + 1] = { ticket = fields[i], at = at, ends = ends, alone = kind == 'w' }
    else
      call('HDEL', key, fields[i])
    end
  end
  if #places > 1 then
    table.sort(places, comes_first)
  end
  return places
end

-- When the last of `places` ends.
local function last_end(places)
  local last = 0
  for _, place in ipairs(places) do
    last = math.max(last, tonumber(place.ends))
  end
  return last
end

local function queued(places)
  return { 'held', QUEUE, decimal(last_end(places) - ms) }
end

-- Whether `given`, `=` and a ticket or nothing, is of this place.
local function is_of(place, given)
  return '=' .. place.ticket == given
end

-- What to say under `ticket` where somebody comes first, or nil.
local function first_in_line(key, ticket)
  local places = line(key)
  if places[1] and not is_of(places[1], ticket) then
    return queued(places)
  end
end

-- What to say to a reader under `ticket` where somebody who wants to be alone comes first, or nil.
local function writer_ahead(key, ticket)
  local places = line(key)
  for _, place in ipairs(places) do
    if is_of(place, ticket) then
      return nil
    elseif place.alone then
      return queued(places)
    end
  end
end

-- Whether `owner` reads, and until when.
local function reads(readers, owner)
  local ends = call('ZSCORE', readers, owner)
  ends = ends and tonumber(ends)
  return ends and ends > ms and ends
end

-- Lets the lock and its readers live as long as the last of these.
local function live_with_last(lock, readers)
  local last = call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2]
  if not last then
    call('DEL', lock)
    return
  end
  last = decimal(tonumber(last))
  call('PEXPIREAT', readers, last)
  call('PEXPIREAT', lock, last)
end

-- Adds a reader to `holder`: readers, or nobody.
local function join(lock, readers, holder, owner, ttl)
  if holder then
    call('ZREMRANGEBYSCORE', readers, '-inf', decimal(ms))
  else
    -- Whoever is in there lost the lock: somebody took its key away.
    call('DEL', readers)
  end
  local ends, mine = ms + tonumber(ttl), reads(readers, owner)
  if not mine and call('ZCARD', readers) >= READERS_MAX then
    refuse('crowded', decimal(READERS_MAX))
  end
  if not mine or mine < ends then
    call('ZADD', readers, decimal(ends), owner)
  end
  if not holder then
    call('SET', lock, READERS, 'NX', 'PX', ttl)
  end
  live_with_last(lock, readers)
end

