-- Sets the owner where the claim is free and not done, and counts one more grant.
-- KEYS  the claim
-- ARGV  owner
-- COMMON  ttl (ms), where a missing counter starts (µs), how far that may be from this clock (µs), how long the counter
--         lives (ms)

-- How far the common start of a counter is from this clock, and its first count: false where it may not start there.
local function first_of(s)
  local start = tonumber(ARGV[s + 1])
  local apart = math.abs(now - start)
  return apart, apart <= tonumber(ARGV[s + 2]) and start < 9007199254740991 and decimal(start + 1)
end

-- What the items with their COMMON at `s` have: when the claim and its counter end, how far the counter's start is from
-- this clock, what is said of a new one, what then stands there before the owner, and how long.
local at, held, kept, apart, granted, head, left

local function look_at(s)
  at, held, kept = s, now_ms + ARGV[s], now_ms + ARGV[s + 3]
  local first
  apart, first = first_of(s)
  granted = first and { 'granted', first }
  if granted then
    head = 'c:' .. text_of(held) .. ':' .. first .. ':' .. text_of(kept) .. ':0:0::'
    left = text_of(math.max(held, kept) - now_ms)
  end
end

-- The next count after `last`, which is not there on a new claim.
local function next_count(last, s)
  if not last and apart > tonumber(ARGV[s + 2]) then
    refuse('clock', decimal(apart))
  end
  last = tonumber(last or ARGV[s + 1])
  if last >= 9007199254740991 then
    refuse('full')
  end
  return decimal(last + 1)
end

return serve(true, true, 1, 1, function(k, a, s)
  local key = KEYS[k]
  if at ~= s then
    look_at(s)
  end
  -- Most claims are new, which takes one command: nothing has changed where it is none. A server that takes no writes can
  -- still say who has it, or that it is done.
  local set = granted and redis_pcall('SET', key, head .. ARGV[a], 'NX', 'PX', left)
  if set and not set.err then
    return granted
  end
  local kind, owner, ends, last, _, attempts, counted, payload = claim_at(key)
  if kind == 'd' then
    return { 'done', ends }
  end
  if owner then
    return claimed(owner, ends)
  end
  local count = next_count(last, s)
  put(key, ARGV[a], held, count, kept, attempts, counted, payload)
  return { 'granted', count, begun_of(attempts, payload) }
end, 4)
