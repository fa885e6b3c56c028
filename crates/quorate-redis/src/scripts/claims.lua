-- Precedes the scripts that serve claims.
--
-- Everything that a server stores of a claim is under one key, so that one command reads it, and one command
-- writes it with its time to live. The value has one of two forms:
--   d:TOKEN:AT:PAYLOAD:ATTEMPTS:RESULT
--     The claim is done or, with ATTEMPTS, dead-lettered. The token replaces the counter.
--   c:UNTIL:COUNT:KEPT:ATTEMPTS:COUNTED:PAYLOAD:OWNER
--     OWNER holds the claim until UNTIL. The fencing counter is kept until KEPT. The counted attempts and the
--     payload's fingerprint are kept until COUNTED. UNTIL, KEPT and COUNTED are in milliseconds of this
--     server's clock. The key expires with the last of them.

local now_ms = math.floor(now / 1000)

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

-- The values that MGET returned for all keys, without those of keys that were written since. Nil before MGET
-- was called.
local seen

-- Returns the value at `key`, or nil. The first call reads the values of all keys with one command, since
-- each command costs a server more than a lookup in `seen`.
local function value_at(key)
  if not seen then
    seen = {}
    if #KEYS > 2 then
      local values = redis_pcall('MGET', unpack(KEYS, 2))
      for i = 2, #KEYS do
        seen[KEYS[i]] = values[i - 1]
      end
    end
  end
  -- MGET returns nil for a key of another type; GET returns an error.
  return seen[key] or call('GET', key) or nil
end

-- Removes the cached value of `key`, because `key` is written now.
local function forget(key)
  if seen then
    seen[key] = nil
  end
end

-- Stores `value` at `key` for `ttl` milliseconds. Without a value, deletes the key.
local function set(key, value, ttl)
  forget(key)
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
  if held < now_ms then
    owner, held = nil, nil
  end
  if kept < now_ms then
    count, kept = nil, nil
  end
  if counted < now_ms then
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
  return held ~= nil and #held <= 16 and tonumber(held) >= now_ms and string.sub(value, at) == owner
end

-- Returns the milliseconds until the latest of these three times. Returns nil if all of them have passed.
local function left_of_last(held, kept, counted)
  local left = math.max(held or 0, kept or 0, counted or 0) - now_ms
  return left >= 0 and text_of(math.max(left, 1)) or nil
end

-- Stores these values of a claim at `key`. They are the values that `read` returns. `held`, `kept` and
-- `counted` are times of this server's clock, in milliseconds (see `now_ms`).
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
  return { 'held', owner, text_of(held - now_ms) }
end

-- Returns the counted attempts in the form of a reply.
local function begun_of(attempts, payload)
  return attempts and 'b:' .. attempts .. ':' .. payload
end

