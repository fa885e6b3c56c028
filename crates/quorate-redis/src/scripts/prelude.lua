-- Runs before every script. Defines what they share; each script ends by returning serve(...).
--
-- Every script:
--   KEYS[1]  the node's marker; then each item's keys
--   ARGV[1]  not_after, microseconds; ARGV[2] the stamp that votes are cast under; then what all items have in common
--            (COMMON, in the scripts' heads), then each item's arguments
--   returns  { the node's time in microseconds, one array of strings for each item, or a string for an array of one }
--
-- Lua's numbers are doubles, so numbers stay decimal strings wherever they need not be added, and are
-- compared as such. Redis's pcall gives errors as tables; `call` turns them into the item's refusal, so that
-- a key of another type spoils its own item only.

-- Functions that a call uses many times: a local is found faster than a global.
local pcall, type, tonumber, redis_pcall = pcall, type, tonumber, redis.pcall
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function decimal(number)
  return string.format('%.0f', number)
end

-- The same as decimal(now), without a number in between.
local function node_time()
  return clock[1] .. string.sub('00000' .. clock[2], -6)
end

local function refuse(...)
  error({ 'refused', ... }, 0)
end

local function call(command, key, ...)
  local reply = redis_pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    local text = string.gsub(reply.err, '^%-', '')
    if string.sub(text, 1, 9) == 'WRONGTYPE' then
      refuse('wrongtype', 'the key ' .. key .. ' holds another type')
    end
    refuse('failed', text)
  end
  return reply
end

-- Whether the decimal string a is less than b.
local function less(a, b)
  return #a < #b or (#a == #b and a < b)
end

-- Whether text is a decimal number as we write them: no sign, no leading zero, within 64 bits.
local function is_number(text)
  return (text == '0' or string.find(text, '^[1-9]%d*$') ~= nil) and not less('18446744073709551615', text)
end

-- The count at a fencing counter, a decimal string, or nil.
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

-- Makes the counter the larger of what stands there and `count`, and lets it live for `keep` milliseconds.
-- What stands is not written again: so a lease can be extended on a node that is out of memory.
local function count_to(key, standing, count, keep)
  if standing and not less(standing, count) then
    call('PEXPIRE', key, keep)
  else
    call('SET', key, count, 'PX', keep)
  end
end

-- The milliseconds that `lock` has left: -1 for a key that never expires. Another client's may be far off,
-- and tostring would round them.
local function left_of(lock)
  return decimal(call('PTTL', lock))
end

-- What to say where `holder` has the lock.
local function held(holder, lock)
  return { 'held', holder, left_of(lock) }
end

-- What was freed: the channels on which whoever waits is told, and whose it was.
local channels, owners = {}, {}

-- Has whoever waits for `lock` told that `owner` has let go of it.
local function tell(lock, owner)
  channels[#channels + 1] = lock .. ':freed'
  owners[#owners + 1] = owner
end

-- Tells what was freed, and how many are told. That nobody can be told, for want of the right to PUBLISH say, spoils no
-- release: waiters look for themselves as well.
local function tell_all()
  if #channels > 0 then
    local listen = redis_pcall('PUBSUB', 'NUMSUB', unpack(channels))
    for i = 1, #channels do
      local told = listen[2 * i] or 1
      if told > 0 then
        redis_pcall('PUBLISH', channels[i], told .. ' ' .. owners[i])
      end
    end
  end
end

-- Frees `lock`, and tells whoever waits for it whose it was.
local function free(lock, owner)
  call('DEL', lock)
  tell(lock, owner)
end

-- Whether `owner` takes what stands at a lock as free: it is a reservation for the worker that signed it.
local function may_take(owner, standing)
  if string.sub(standing, -9) ~= ':reserved' then
    return false
  end
  local heir, bits = string.match(standing, '^(.*):(%x+):reserved$')
  local worker, mine = string.match(owner, '^(.*):(%x+)$')
  return heir ~= nil and heir == worker and #bits == 32 and #mine == 32
end

-- The term of the ledger at `key`, refusing where it is later than `term`.
local function sealed(key, term)
  local standing = call('HGET', key, 't') or '0'
  if not is_number(standing) then
    refuse('wrongtype', 'the key ' .. key .. ' holds no ledger')
  end
  if less(term, standing) then
    refuse('sealed', standing)
  end
  return standing
end

-- Lets the ledger at `key` live on for as long as it is to, its field l in milliseconds: 30 days where nobody has said.
-- So the ledger of a group that no worker knows any more ends by itself.
local function live_on(key)
  local life = call('HGET', key, 'l') or '2592000000'
  if not is_number(life) or #life > 16 then
    refuse('wrongtype', 'the key ' .. key .. ' holds no ledger')
  end
  call('PEXPIRE', key, life)
end

-- The low-water mark of the ledger at `key`.
local function low_water(key)
  local mark = call('HGET', key, 'w') or '0'
  if not is_number(mark) then
    refuse('wrongtype', 'the key ' .. key .. ' holds no ledger')
  end
  return mark
end

-- Some of the ledger's fields from `cursor` on, '' for the first: about `most` or 256 KiB, in arrays of fields and values
-- by turns. And where to go on: '' at the end. A field that is there from the first call to the last is in one of them;
-- one may be in two. A short hash, which a server keeps packed, comes whole.
local function page(ledger, cursor, most)
  local chunks, fields, bytes = {}, 0, 0
  if cursor == '' then
    cursor = '0'
  end
  repeat
    local reply = call('HSCAN', ledger, cursor, 'COUNT', 50)
    local chunk = reply[2]
    cursor = reply[1]
    chunks[#chunks + 1] = chunk
    fields = fields + #chunk / 2
    for i = 1, #chunk do
      bytes = bytes + #chunk[i]
    end
  until cursor == '0' or #chunks == 10 or fields >= most or bytes >= 262144
  if cursor == '0' then
    cursor = ''
  end
  return cursor, chunks
end

-- A page of what stands in the ledger, as its reply.
local function told(ledger, after)
  local cursor, chunks = page(ledger, after, 500)
  return { 'ledger', cursor, call('HGET', ledger, 't') or '0', call('HGET', ledger, 'w') or '0', chunks }
end

-- Refuses every item. `sets`: what comes too late. `votes`: under another marker.
local function gate(sets, votes)
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

-- What a call by pcall gave, or its refusal. Anything else that went wrong is a fault of the script.
local function outcome(ok, reply)
  if ok or type(reply) == 'table' then
    return reply
  end
  tell_all()
  error(reply, 0)
end

-- Calls item(k, a, s) for each item, where KEYS[k] and ARGV[a] are the first of the item's, and ARGV[s] is the first of
-- those that all items have in common.
local function serve(sets, votes, keys, args, item, common)
  local out, s = { node_time() }, 3
  local refusal = outcome(pcall(gate, sets, votes))
  for i = 0, (#KEYS - 1) / keys - 1 do
    out[i + 2] = refusal or outcome(pcall(item, 2 + i * keys, s + (common or 0) + i * args, s))
  end
  tell_all()
  return out
end

