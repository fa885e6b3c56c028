-- Runs before the scripts that serve claims.
--
-- All that a server knows of a claim stands under one key, to be looked up, written and timed at once. It is one of
--   d:TOKEN:AT:PAYLOAD:ATTEMPTS:RESULT
--     It is done or, with ATTEMPTS, was given up. The token is in place of the counter.
--   c:UNTIL:COUNT:KEPT:ATTEMPTS:COUNTED:PAYLOAD:OWNER
--     OWNER has it until UNTIL; the fencing counter, until KEPT; the attempts that were counted and the payload's
--     fingerprint, until COUNTED. These are in milliseconds of this server; the key ends with the last of them.

local now_ms = math.floor(now / 1000)

-- decimal(number), which is the same for most items of a call.
local texts = {}

local function text_of(number)
  local text = texts[number]
  if not text then
    text = decimal(number)
    texts[number] = text
  end
  return text
end

local function no_claim(key)
  refuse('wrongtype', 'the key ' .. key .. ' holds no record of a claim')
end

-- What stood at the keys when one was looked at first, but for those that were written since.
local seen

-- What stands at `key`, or nil. All are looked up at once: a command takes a server longer than the look.
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
  -- MGET says nothing of a key of another type.
  return seen[key] or call('GET', key) or nil
end

-- Has `value` stand at `key` for `ttl` milliseconds; without a value, nothing.
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

-- What `value`, which stands at `key`, says as of now. Of what is done: 'd', the token, and the whole. Of what is not:
-- 'c', the owner and until when; the count and until when; the attempts, until when, and the payload. Each nil where it
-- is not there, or is over. Nothing where nothing stands.
local function read(key, value)
  if not value then
    return nil
  end
  local held, count, kept, attempts, counted, payload, owner =
    string.match(value, '^c:(%d+):(%d+):(%d+):(%d+):(%d+):(%x*):(.*)$')
  if not held then
    local token = string.match(value, '^d:(%d+):%d+:%x*:%d*:')
    if not token or not is_number(token) then
      no_claim(key)
    end
    return 'd', token, value
  end
  if not is_number(count) or #held > 16 or #kept > 16 or #counted > 16 or #attempts > 10 or #payload > 64 then
    no_claim(key)
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

-- Whether `value` says that `owner` has it, for less than read takes.
local function is_held_by(value, owner)
  local held, at = string.match(value or '', '^c:(%d+):%d+:%d+:%d+:%d+:%x*:()')
  return held ~= nil and #held <= 16 and tonumber(held) >= now_ms and string.sub(value, at) == owner
end

-- How many milliseconds the last of these ends has left; nothing where it is over.
local function left_of_last(held, kept, counted)
  local left = math.max(held or 0, kept or 0, counted or 0) - now_ms
  return left >= 0 and text_of(math.max(left, 1)) or nil
end

-- Has this stand at `key`: see read. Ends are those of keys that are set now: what lives for `ttl` milliseconds ends
-- at now_ms + ttl.
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

-- As put, over what stands, also on a server that is out of memory: it takes a SET of a script that has written before.
-- (Redis' manual, EVAL, "Running scripts under low memory conditions".) So can a claim be extended and freed there.
local function put_over(key, owner, held, count, kept, attempts, counted, payload)
  call('PEXPIRE', key, left_of_last(held, kept, counted) or 1)
  put(key, owner, held, count, kept, attempts, counted, payload)
end

-- What to say where `owner` has it.
local function claimed(owner, held)
  return { 'held', owner, text_of(held - now_ms) }
end

-- What was counted, for a reply.
local function begun_of(attempts, payload)
  return attempts and 'b:' .. attempts .. ':' .. payload
end

