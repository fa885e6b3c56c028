-- Serves the requests on claims.
--
-- Everything that a server stores of a claim is under one key, so that one command reads it, and one command
-- writes it with its time to live. The value has one of two forms:
--   d:TOKEN:AT:PAYLOAD:ATTEMPTS:RESULT
--     The claim is done or, with ATTEMPTS, dead-lettered. The token replaces the counter.
--   c:UNTIL:COUNT:KEPT:ATTEMPTS:COUNTED:PAYLOAD:OWNER
--     OWNER holds the claim until UNTIL. The fencing counter is kept until KEPT. The counted attempts and the
--     payload's fingerprint are kept until COUNTED. UNTIL, KEPT and COUNTED are in milliseconds of this
--     server's clock. The key expires with the last of them.

-- Caches decimal(number), which is the same for most items of a call.
local texts = {}

local function text_of(number)
  local text = texts[number]
  if not text then
    text = decimal(number)
    texts[number] = text
  end
  return text
end

local function refuse_value(key)
  refuse('wrongtype', 'the key ' .. key .. ' holds no record of a claim')
end

-- Returns the value at `key`, or nil. The first call reads the values of all keys with one command, since
-- each command costs a server more than a lookup in `seen`.
local function value_at(key)
  if not seen then
    seen = {}
    if #KEYS > 2 then
      local values = run('MGET', unpack(KEYS, 2))
      for i = 2, #KEYS do
        seen[KEYS[i]] = values[i - 1]
      end
    end
  end
  -- MGET returns nil for a key of another type; GET returns an error.
  return seen[key] or call('GET', key) or nil
end

-- Stores `value` at `key` for `ttl` milliseconds. Without a value, deletes the key.
local function set(key, value, ttl)
  if seen then
    seen[key] = nil
  end
  if value then
    call('SET', key, value, 'PX', ttl)
  else
    call('DEL', key)
  end
end

-- Parses `value`, which is stored at `key`, as of now. For a claim that is done, returns 'd', the token, and
-- the whole value. For any other claim, returns 'c', the owner and its end, the count and its end, the
-- attempts, their end, and the payload. Each of these is nil if it is missing or has expired. Returns nil if
-- `value` is nil.
local function read(key, value)
  if not value then
    return nil
  end
  local held, count, kept, attempts, counted, payload, owner =
    string.match(value, '^c:(%d+):(%d+):(%d+):(%d+):(%d+):(%x*):(.*)$')
  if not held then
    local token = string.match(value, '^d:(%d+):%d+:%x*:%d*:')
    if not token or not is_number(token) then
      refuse_value(key)
    end
    return 'd', token, value
  end
  if not is_number(count) or #held > 16 or #kept > 16 or #counted > 16 or #attempts > 10 or #payload > 64 then
    refuse_value(key)
  end
  held, kept, counted = tonumber(held), tonumber(kept), tonumber(counted)
  if held < ms then
    owner, held = nil, nil
  end
  if kept < ms then
    count, kept = nil, nil
  end
  if counted < ms then
    attempts, counted, payload = nil, nil, nil
  end
  return 'c', owner, held, count, kept, attempts, counted, payload
end

local function claim_at(key)
  return read(key, value_at(key))
end

-- Returns whether `owner` holds the claim according to `value`. This costs less than `read`.
local function is_held_by(value, owner)
  local held, at = string.match(value or '', '^c:(%d+):%d+:%d+:%d+:%d+:%x*:()')
  return held ~= nil and #held <= 16 and tonumber(held) >= ms and string.sub(value, at) == owner
end

-- Returns the milliseconds until the latest of these three times. Returns nil if all of them have passed.
local function left_of_last(held, kept, counted)
  local left = math.max(held or 0, kept or 0, counted or 0) - ms
  return left >= 0 and text_of(math.max(left, 1)) or nil
end

-- Stores these values of a claim at `key`. They are the values that `read` returns. `held`, `kept` and
-- `counted` are times of this server's clock, in milliseconds (see `ms`).
local function put(key, owner, held, count, kept, attempts, counted, payload)
  local left = left_of_last(held, kept, counted)
  if not left then
    set(key, nil)
    return
  end
  local value = 'c:' .. (held and text_of(held) or '0') .. ':' .. (count or '0') .. ':' .. (kept and text_of(kept) or '0')
    .. ':' .. (attempts or '0') .. ':' .. (counted and text_of(counted) or '0') .. ':' .. (payload or '')
    .. ':' .. (owner or '')
  set(key, value, left)
end

-- Does the same as `put` for a key that exists, also on a server that is out of memory. Such a server accepts
-- a SET from a script that has written before. (Redis manual, EVAL, "Running scripts under low memory
-- conditions".) So a claim can be extended and freed there.
local function put_over(key, owner, held, count, kept, attempts, counted, payload)
  call('PEXPIRE', key, left_of_last(held, kept, counted) or 1)
  put(key, owner, held, count, kept, attempts, counted, payload)
end

-- Returns the reply for a claim that `owner` holds.
local function held_claim(owner, held)
  return { 'held', owner, text_of(held - ms) }
end

-- Returns the counted attempts in the form of a reply.
local function begun_of(attempts, payload)
  return attempts and 'b:' .. attempts .. ':' .. payload
end

-- Sets the owner if the claim is free and not done. Increments the counter.
-- KEYS  the claim
-- ARGV  owner
-- SHARED  ttl (ms), initial value of a missing counter (µs), its largest distance from this clock (µs), retention of the
--         counter (ms)
define('a', true, true, 1, 1, function(k, a, s)
  local kind, owner, ends, last, _, attempts, counted, payload = claim_at(KEYS[k])
  if kind == 'd' then
    return { 'done', ends }
  end
  if owner then
    return held_claim(owner, ends)
  end
  if not last then
    last = ARGV[s + 1]
    local apart = math.abs(now - tonumber(last))
    if apart > tonumber(ARGV[s + 2]) then
      refuse('clock', decimal(apart))
    end
  end
  if tonumber(last) >= 9007199254740991 then
    refuse('full')
  end
  local count = decimal(tonumber(last) + 1)
  put(KEYS[k], ARGV[a], ms + ARGV[s], count, ms + ARGV[s + 3], attempts, counted, payload)
  return { 'granted', count, begun_of(attempts, payload) }
end)

-- Frees the claim if the given owner holds it, and notifies its waiters. Served even after the deadline and
-- under another marker.
-- KEYS  the claim
-- ARGV  owner
define('b', false, false, 1, 1, function(k, a)
  local kind, owner, _, count, kept, attempts, counted, payload = claim_at(KEYS[k])
  if kind ~= 'c' or owner ~= ARGV[a] then
    return 'absent'
  end
  put_over(KEYS[k], nil, nil, count, kept, attempts, counted, payload)
  notify(KEYS[k], owner)
  return 'freed'
end)

-- Extends the claim to ttl from now, and never shortens it. Sets the owner again if the claim is free and no later
-- grant has been counted.
-- KEYS  the claim
-- ARGV  owner, token
-- SHARED  ttl (ms), retention of the counter (ms)
define('c', true, true, 1, 2, function(k, a, s)
  local kind, owner, held, count, _, attempts, counted, payload = claim_at(KEYS[k])
  if kind == 'd' then
    return { 'done', held }
  end
  if owner and owner ~= ARGV[a] then
    return held_claim(owner, held)
  end
  if not owner and count and less(ARGV[a + 1], count) then
    refuse('later', count)
  end
  if not count or less(count, ARGV[a + 1]) then
    count = ARGV[a + 1]
  end
  held = math.max(held or 0, ms + ARGV[s])
  local set = kind and put_over or put
  set(KEYS[k], ARGV[a], held, count, ms + ARGV[s + 1], attempts, counted, payload)
  return 'extended'
end)

-- Sets the counter to the given count if the given owner holds the claim and the counter does not exceed that
-- count.
-- KEYS  the claim
-- ARGV  owner, the count
-- SHARED  retention of the counter (ms)
define('d', true, true, 1, 2, function(k, a, s)
  local kind, owner, held, count, _, attempts, counted, payload = claim_at(KEYS[k])
  if kind ~= 'c' or owner ~= ARGV[a] then
    refuse('notowner')
  end
  -- If the counter has expired before the claim, its last value is unknown.
  if not count or less(ARGV[a + 1], count) then
    refuse('superseded')
  end
  put_over(KEYS[k], owner, held, ARGV[a + 1], ms + ARGV[s], attempts, counted, payload)
  return 'raised'
end)

-- Counts an attempt on a claim, or reverses its last attempt, if the given owner holds the claim. Counting
-- sets the stored number to `attempts`, and needs a smaller stored number. Reversing needs a stored number
-- equal to `attempts`, and reduces that number by one. At zero, the payload's fingerprint is removed, too.
-- KEYS  the claim
-- ARGV  owner, attempts, the payload's fingerprint or nothing, + to count or - to reverse
-- SHARED  retention of the count (ms)
define('e', true, true, 1, 4, function(k, a, s)
  local kind, owner, held, count, kept, stored, _, of = claim_at(KEYS[k])
  if kind ~= 'c' or owner ~= ARGV[a] then
    refuse('notowner')
  end
  local attempts, payload = ARGV[a + 1], ARGV[a + 2]
  if ARGV[a + 3] == '-' then
    if stored ~= attempts then
      refuse('superseded')
    end
    attempts = decimal(math.max(tonumber(attempts) - 1, 0))
  elseif not less(stored or '0', attempts) then
    refuse('superseded')
  end
  if attempts == '0' then
    payload = ''
  elseif payload == '' then
    payload = of
  end
  put(KEYS[k], owner, held, count, kept, attempts, ms + ARGV[s], payload)
  return 'counted'
end)

-- Stores the done record of a claim, and frees the claim. The claim's counter is no longer stored, because
-- the record contains the token.
-- KEYS  the claim
-- ARGV  owner, the done record
-- SHARED  retention of the record (ms)

-- Returns the reply to an owner that no longer holds the claim. Returns nil if the owner's record is to be
-- stored nevertheless.
local function former_holder_reply(key, value, done)
  local token = string.match(done, '^d:(%d+)')
  local kind, owner, held, count = read(key, value)
  if kind == 'd' then
    local stored, record = owner, held
    return less(token, stored) and { 'done', record } or nil
  elseif owner then
    return held_claim(owner, held)
  elseif count and less(token, count) then
    refuse('superseded')
  end
end

define('f', true, true, 1, 2, function(k, a, s)
  local key, owner = KEYS[k], ARGV[a]
  local value = value_at(key)
  local holds = is_held_by(value, owner)
  local no = not holds and former_holder_reply(key, value, ARGV[a + 1])
  if no then
    return no
  end
  set(key, ARGV[a + 1], ARGV[s])
  if holds then
    notify(key, owner)
  end
  return 'completed'
end)

-- Returns the state of the claim. Changes nothing.
-- KEYS  the claim
-- ARGV  none
define('g', false, false, 1, 0, function(k)
  local kind, owner, held, count, _, attempts, _, payload = claim_at(KEYS[k])
  -- Missing values are empty strings, because Redis ends an array at its first nil.
  if kind == 'd' then
    return { 'state', '-2', '', '', held }
  end
  local left = owner and text_of(held - ms) or '-2'
  return { 'state', left, owner or '', count or '', begun_of(attempts, payload) or '' }
end)

-- Removes the counted attempts and the dead-letter record of a claim that no worker holds and that is not
-- completed. The counter continues from the token of the dead-letter record, so that the next token is
-- larger.
-- KEYS  the claim
-- ARGV  retention of the counter (ms)
define('h', true, true, 1, 1, function(k, a)
  local kind, owner, held, count, kept = claim_at(KEYS[k])
  if kind == 'd' then
    local token, record = owner, held
    if not string.find(record, '^d:%d+:%d+:%x*:%d') then
      return { 'done', record }
    end
    count, kept = token, ms + ARGV[a]
  elseif owner then
    return held_claim(owner, held)
  end
  if kind then
    put_over(KEYS[k], nil, nil, count, kept)
  end
  return 'attempts_reset'
end)

