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

-- The text of each end of a lease, a count or attempts, which most items of a call have in common.
local texts = { [false] = '0' }

local function text_of(number)
  local text = texts[number or false]
  if not text then
    text = decimal(number)
    texts[number] = text
  end
  return text
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

-- Returns the claim at `key` as of now:
-- * `done` and `token`: the whole record of a claim that is done, and its token
-- * `owner` and `held`, `count` and `kept`, and `attempts`, `payload` and `counted`: the owner, the count and the attempts,
--   each with its end, unless they have expired
-- * `stored`: true if the key exists
local function claim_at(key)
  local value = value_at(key)
  if not value then
    return {}
  end
  local held, count, kept, attempts, counted, payload, owner =
    match(value, '^c:(%d+):(%d+):(%d+):(%d+):(%d+):(%x*):(.*)$')
  local token = count or match(value, '^d:(%d+):%d+:%x*:%d*:')
  if not token or not is_number(token)
    or held and (#held > 16 or #kept > 16 or #counted > 16 or #attempts > 10 or #payload > 64) then
    refuse('wrongtype', 'the key ' .. key .. ' holds no record of a claim')
  end
  if not held then
    return { stored = true, done = value, token = token }
  end
  held, kept, counted = tonumber(held), tonumber(kept), tonumber(counted)
  -- One constructor makes the table with room for all fields.
  return {
    stored = true,
    owner = held >= ms and owner or nil,
    held = held >= ms and held or nil,
    count = kept >= ms and count or nil,
    kept = kept >= ms and kept or nil,
    attempts = counted >= ms and attempts or nil,
    counted = counted >= ms and counted or nil,
    payload = counted >= ms and payload or nil,
  }
end

-- Ends the item, because the claim is done or has an owner.
local function answer_taken(claim)
  if claim.done then
    answer('done', claim.done)
  end
  answer('held', claim.owner, text_of(claim.held - ms))
end

-- Returns the claim at `key`, which `owner` holds. Otherwise refuses the item.
local function claim_of(key, owner)
  local claim = claim_at(key)
  if claim.owner ~= owner then
    refuse('notowner')
  end
  return claim
end

-- Returns the milliseconds until the claim has expired. Returns nil if it has.
local function left_of_claim(claim)
  local left = math.max(claim.held or 0, claim.kept or 0, claim.counted or 0) - ms
  return left >= 0 and text_of(math.max(left, 1)) or nil
end

-- Stores `claim` at `key`.
local function put(key, claim)
  local left = left_of_claim(claim)
  local value = left and 'c:' .. text_of(claim.held) .. ':' .. (claim.count or '0') .. ':' .. text_of(claim.kept) .. ':'
    .. (claim.attempts or '0') .. ':' .. text_of(claim.counted) .. ':' .. (claim.payload or '') .. ':' .. (claim.owner or '')
  set(key, value, left)
end

-- Does the same as `put` for a key that exists, also on a server that is out of memory. Such a server accepts
-- a SET from a script that has written before. (Redis manual, EVAL, "Running scripts under low memory
-- conditions".) So a claim can be extended and freed there.
local function put_over(key, claim)
  call('PEXPIRE', key, left_of_claim(claim) or 1)
  put(key, claim)
end

-- Returns the counted attempts in the form of a reply.
local function begun_of(claim)
  return claim.attempts and 'b:' .. claim.attempts .. ':' .. claim.payload
end

-- Sets the owner if the claim is free and not done. Increments the counter.
-- KEYS  the claim
-- ARGV  owner
-- SHARED  ttl (ms), initial value of a missing counter (µs), its largest distance from this clock (µs), retention of the
--         counter (ms)
define('a', true, true, 1, 1, function(k, a, s)
  local claim = claim_at(KEYS[k])
  if claim.done or claim.owner then
    answer_taken(claim)
  end
  local count = next_count(claim.count, ARGV[s + 1], ARGV[s + 2])
  claim.owner, claim.held, claim.count, claim.kept = ARGV[a], ms + ARGV[s], decimal(count), ms + ARGV[s + 3]
  put(KEYS[k], claim)
  return claim.attempts and { 'granted', claim.count, begun_of(claim) } or count
end)

-- Frees the claim if the given owner holds it, and notifies its waiters. Served even after the deadline and
-- under another marker.
-- KEYS  the claim
-- ARGV  owner
define('b', false, false, 1, 1, function(k, a)
  local claim = claim_at(KEYS[k])
  if claim.owner ~= ARGV[a] then
    return 'absent'
  end
  claim.owner, claim.held = nil, nil
  put_over(KEYS[k], claim)
  notify(KEYS[k], ARGV[a])
  return 'freed'
end)

-- Extends the claim to ttl from now, and never shortens it. Sets the owner again if the claim is free and no later
-- grant has been counted.
-- KEYS  the claim
-- ARGV  owner, token
-- SHARED  ttl (ms), retention of the counter (ms)
define('c', true, true, 1, 2, function(k, a, s)
  local claim, owner, token = claim_at(KEYS[k]), ARGV[a], ARGV[a + 1]
  if claim.done or claim.owner and claim.owner ~= owner then
    answer_taken(claim)
  end
  if not claim.owner and claim.count and less(token, claim.count) then
    refuse('later', claim.count)
  end
  if not claim.count or less(claim.count, token) then
    claim.count = token
  end
  claim.owner, claim.held, claim.kept = owner, math.max(claim.held or 0, ms + ARGV[s]), ms + ARGV[s + 1]
  local store = claim.stored and put_over or put
  store(KEYS[k], claim)
  return 'extended'
end)

-- Sets the counter to the given count if the given owner holds the claim and the counter does not exceed that
-- count.
-- KEYS  the claim
-- ARGV  owner, the count
-- SHARED  retention of the counter (ms)
define('d', true, true, 1, 2, function(k, a, s)
  local claim = claim_of(KEYS[k], ARGV[a])
  -- If the counter has expired before the claim, its last value is unknown.
  if not claim.count or less(ARGV[a + 1], claim.count) then
    refuse('superseded')
  end
  claim.count, claim.kept = ARGV[a + 1], ms + ARGV[s]
  put_over(KEYS[k], claim)
  return 'raised'
end)

-- Counts an attempt on a claim, or reverses its last attempt, if the given owner holds the claim. Counting
-- sets the stored number to `attempts`, and needs a smaller stored number. Reversing needs a stored number
-- equal to `attempts`, and reduces that number by one. At zero, the payload's fingerprint is removed, too.
-- KEYS  the claim
-- ARGV  owner, attempts, the payload's fingerprint or nothing, + to count or - to reverse
-- SHARED  retention of the count (ms)
define('e', true, true, 1, 4, function(k, a, s)
  local claim, attempts, payload = claim_of(KEYS[k], ARGV[a]), ARGV[a + 1], ARGV[a + 2]
  if ARGV[a + 3] == '-' then
    if claim.attempts ~= attempts then
      refuse('superseded')
    end
    attempts = decimal(math.max(tonumber(attempts) - 1, 0))
  elseif not less(claim.attempts or '0', attempts) then
    refuse('superseded')
  end
  if attempts == '0' then
    claim.payload = nil
  elseif payload ~= '' then
    claim.payload = payload
  end
  claim.attempts, claim.counted = attempts, ms + ARGV[s]
  put(KEYS[k], claim)
  return 'counted'
end)

-- Stores the done record of a claim, and frees the claim. The claim's counter is no longer stored, because
-- the record contains the token. An owner that no longer holds the claim may store its record too, unless there is a later
-- grant.
-- KEYS  the claim
-- ARGV  owner, the done record
-- SHARED  retention of the record (ms)
define('f', true, true, 1, 2, function(k, a, s)
  local key, owner, record = KEYS[k], ARGV[a], ARGV[a + 1]
  local claim, token = claim_at(key), match(record, '^d:(%d+)')
  if claim.done and less(token, claim.token) or claim.owner and claim.owner ~= owner then
    answer_taken(claim)
  elseif not claim.owner and claim.count and less(token, claim.count) then
    refuse('superseded')
  end
  set(key, record, ARGV[s])
  if claim.owner then
    notify(key, owner)
  end
  return 'completed'
end)

-- Returns the state of the claim. Changes nothing.
-- KEYS  the claim
-- ARGV  none
define('g', false, false, 1, 0, function(k)
  local claim = claim_at(KEYS[k])
  -- Missing values are empty strings, because Redis ends an array at its first nil.
  local left = claim.owner and text_of(claim.held - ms) or '-2'
  return { 'state', left, claim.owner or '', claim.count or '', claim.done or begun_of(claim) or '' }
end)

-- Removes the counted attempts and the dead-letter record of a claim that no worker holds and that is not
-- completed. The counter continues from the token of the dead-letter record, so that the next token is
-- larger.
-- KEYS  the claim
-- ARGV  retention of the counter (ms)
define('h', true, true, 1, 1, function(k, a)
  local claim = claim_at(KEYS[k])
  if claim.owner or claim.done and not string.find(claim.done, '^d:%d+:%d+:%x*:%d') then
    answer_taken(claim)
  end
  if claim.done then
    put_over(KEYS[k], { count = claim.token, kept = ms + ARGV[a] })
  elseif claim.stored then
    put_over(KEYS[k], { count = claim.count, kept = claim.kept })
  end
  return 'attempts_reset'
end)

