-- Defines the common functions. A script that serves one kind of request ends by returning serve(...).
--
-- redis.pcall returns errors as tables; `call` turns them into the item's refusal, so that a key of another
-- type fails only its own item.

-- Lua finds a local faster than a global, so functions that a script uses many times are locals.
local pcall, type, tonumber, redis_pcall = pcall, type, tonumber, redis.pcall

local function decimal(number)
  return string.format('%.0f', number)
end

-- Returns the same text as decimal(now), built from the two strings that TIME returns.
local function node_time()
  return clock[1] .. string.sub('00000' .. clock[2], -6)
end

local function refuse(...)
  error({ 'refused', ... }, 0)
end

local function call(command, key, ...)
  local reply = redis_pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    -- Redis 6.2 encloses errors that the script's call itself causes, such as OOM: '@user_script: 12: -OOM …\r\n'.
    local text = string.match(reply.err, '^@user_script: %d+: (.*)$') or reply.err
    text = string.match(text, '^%-?(.-)%s*$')
    if string.sub(text, 1, 9) == 'WRONGTYPE' then
      refuse('wrongtype', 'the key ' .. key .. ' holds another type')
    end
    refuse('failed', text)
  end
  return reply
end

-- Returns whether the decimal string a is less than b.
local function less(a, b)
  return #a < #b or (#a == #b and a < b)
end

-- Returns whether text is a decimal number as Quorate writes it: no sign, no leading zero, within 64 bits.
local function is_number(text)
  return (text == '0' or string.find(text, '^[1-9]%d*$') ~= nil) and not less('18446744073709551615', text)
end

-- Returns the count of a fencing counter as a decimal string, or nil.
local function counter(key)
  local value = call('GET', key)
  if not value then
    return nil
  end
  if not is_number(value) then
    refuse('wrongtype', 'the key ' .. key .. ' holds no count')
  end
  return value
end

-- Sets the counter to the larger of the stored count and `count`, and keeps it for `keep` milliseconds. An
-- unchanged count is not written again, so that a lease can be extended on a node that is out of memory.
local function count_to(key, stored, count, keep)
  if stored and not less(stored, count) then
    call('PEXPIRE', key, keep)
  else
    call('SET', key, count, 'PX', keep)
  end
end

-- Returns the remaining milliseconds of `lock`: -1 for a key that never expires. Another client may have set
-- a time so long that tostring would round the number.
local function left_of(lock)
  return decimal(call('PTTL', lock))
end

-- Returns the reply for a lock that `holder` holds.
local function held(holder, lock)
  return { 'held', holder, left_of(lock) }
end

-- Makes the script notify the waiters for `lock`, at its end, that `owner` released the lock.
local function notify(lock, owner)
  released[#released + 1] = lock
  owners[#owners + 1] = owner
end

-- Returns the number of sessions with waiters. Each such session is subscribed to the channel of all waiters.
-- An error, for instance without the permission for PUBSUB NUMSUB, counts as one session.
local function sessions_with_waiters()
  return redis_pcall('PUBSUB', 'NUMSUB', KEYS[1] .. ':waiters')[2] or 1
end

-- Publishes the released leases, each on the channel of its own waiters, with the number of subscribers. A
-- failure, for instance without the permission for PUBLISH, does not fail the release, because waiters also
-- poll.
local function publish_releases()
  if #released == 0 or sessions_with_waiters() == 0 then
    return
  end
  local channels = {}
  for i = 1, #released do
    channels[i] = released[i] .. ':freed'
  end
  local listen = redis_pcall('PUBSUB', 'NUMSUB', unpack(channels))
  for i = 1, #channels do
    local subscribers = listen[2 * i] or 1
    if subscribers > 0 then
      redis_pcall('PUBLISH', channels[i], subscribers .. ' ' .. owners[i])
    end
  end
end

-- Frees `lock`, and makes the script notify its waiters.
local function free(lock, owner)
  call('DEL', lock)
  notify(lock, owner)
end

-- Returns whether an acquire by `owner` treats a lock with the value `holder` as free: `holder` is a
-- reservation for the same worker.
local function may_take(owner, holder)
  if string.sub(holder, -9) ~= ':reserved' then
    return false
  end
  local reserved_for, bits = string.match(holder, '^(.*):(%x+):reserved$')
  local worker, owner_bits = string.match(owner, '^(.*):(%x+)$')
  return reserved_for ~= nil and reserved_for == worker and #bits == 32 and #owner_bits == 32
end

-- The heads of the ledgers that this call has read, by key. The scripts of a call that change a head also change it
-- here. KEEP changes a retention, so it never shares a call with them.
local heads = {}

-- Returns the head of the ledger at `key`: its term, its low-water mark, its retention in milliseconds, and whether
-- this call has extended the retention. Also returns the value of `field`. A call reads each head once, because a
-- command costs much more than the rest of an item.
local function ledger_head(key, field)
  local head = heads[key]
  if head then
    return head, call('HGET', key, field)
  end
  local found = redis_pcall('HMGET', key, 't', 'w', 'l', field)
  if found.err then
    -- The user may lack the permission for HMGET.
    found = { call('HGET', key, 't'), call('HGET', key, 'w'), call('HGET', key, 'l'), call('HGET', key, field) }
  end
  -- The retention is 30 days by default.
  head = { found[1] or '0', found[2] or '0', found[3] or '2592000000', false }
  if not (is_number(head[1]) and is_number(head[2]) and is_number(head[3])) or #head[3] > 16 then
    refuse('wrongtype', 'the key ' .. key .. ' holds no ledger')
  end
  heads[key] = head
  return head, found[4]
end

-- Refuses the item if the term of the ledger is later than `term`.
local function check_term(head, term)
  if less(term, head[1]) then
    refuse('sealed', head[1])
  end
end

-- Extends the retention of the ledger at `key`, once in a call. So the ledger of a group that no worker uses any
-- more expires.
local function extend_retention(key, head)
  if not head[4] then
    -- The reply is 0 if there is no such key yet. A later item of the call may create the ledger.
    head[4] = call('PEXPIRE', key, head[3]) == 1
  end
end

-- Returns about `most` fields of the ledger, or about 256 KiB of their values, from `cursor` on. The cursor is '' for
-- the first part. The fields are in arrays in which each field is followed by its value. Also returns the
-- cursor of the next part, which is '' at the end. A field that exists from the first part to the last is in
-- at least one part, and may be in two. A short hash, which a server stores packed, is returned whole.
local function page(ledger, cursor, most)
  local chunks, fields, bytes = {}, 0, 0
  if cursor == '' then
    cursor = '0'
  end
  repeat
    local reply = call('HSCAN', ledger, cursor, 'COUNT', 125)
    local chunk = reply[2]
    cursor = reply[1]
    chunks[#chunks + 1] = chunk
    fields = fields + #chunk / 2
    for i = 2, #chunk, 2 do
      bytes = bytes + #chunk[i]
    end
  until cursor == '0' or #chunks == 10 or fields >= most or bytes >= 262144
  if cursor == '0' then
    cursor = ''
  end
  return cursor, chunks
end

-- Returns the first page of the ledger as a reply, or a reply without records if `mode` is '='. `head` is nil if the
-- caller has not read it.
local function page_reply(ledger, head, mode)
  if mode == '=' then
    head = head or ledger_head(ledger, 't')
    return { 'ledger', '', head[1], head[2], {} }
  end
  local cursor, chunks = page(ledger, '', 500)
  if not head and cursor == '' and #chunks[1] == 0 then
    -- No hash is empty, so the ledger does not exist.
    return { 'ledger', '', '0', '0', chunks }
  end
  head = head or ledger_head(ledger, 't')
  return { 'ledger', cursor, head[1], head[2], chunks }
end

-- Refuses every item of a script that stores keys (`sets`) if the deadline has passed. Refuses every item of
-- a script that votes (`votes`) if the stored marker is not the stamp.
local function check_deadline_and_marker(sets, votes)
  if sets and now > tonumber(ARGV[1]) then
    refuse('stale')
  end
  if votes then
    local marker = call('GET', KEYS[1])
    if not marker then
      refuse('unmarked')
    elseif marker ~= ARGV[2] then
      refuse('marker', marker)
    end
  end
end

-- Returns the result of a pcall, or its refusal. Any other error is a fault of the script, and is raised
-- again.
local function outcome(ok, reply)
  if ok or type(reply) == 'table' then
    return reply
  end
  publish_releases()
  error(reply, 0)
end

-- Calls item(k, a) for each item. KEYS[k] is the item's first key, and ARGV[a] is its first argument.
local function serve(sets, votes, keys, args, item)
  local out = { node_time() }
  local refusal = outcome(pcall(check_deadline_and_marker, sets, votes))
  for i = 0, (#KEYS - 1) / keys - 1 do
    out[i + 2] = refusal or outcome(pcall(item, 2 + i * keys, 3 + i * args))
  end
  publish_releases()
  return out
end

