-- Sets the owner if the claim is free and not done. Increments the counter.
-- KEYS  the claim
-- ARGV  owner
-- COMMON  ttl (ms), initial value of a missing counter (µs), its largest distance from this clock (µs), retention of the
--         counter (ms)

-- Returns the distance of the common initial value from this clock, and the count of a new claim's first
-- grant. The count is false if a counter may not start at that value.
local function first_of(s)
  local start = tonumber(ARGV[s + 1])
  local apart = math.abs(now - start)
  return apart, apart <= tonumber(ARGV[s + 2]) and start < 9007199254740991 and decimal(start + 1)
end

-- The values that all items with the same COMMON share. Their COMMON begins at ARGV[at]. The values are the
-- ends of the claim (held) and of its counter (kept), and the distance of the initial value from this clock
-- (apart). For a new claim: the reply (granted), the value without its owner (head), and the value's time to
-- live (left).
local at, held, kept, apart, granted, head, left

local function prepare_common(s)
  at, held, kept = s, now_ms + ARGV[s], now_ms + ARGV[s + 3]
  local first
  apart, first = first_of(s)
  granted = first and { 'granted', first }
  if granted then
    head = 'c:' .. text_of(held) .. ':' .. first .. ':' .. text_of(kept) .. ':0:0::'
    left = text_of(math.max(held, kept) - now_ms)
  end
end

-- Returns the count after `last`, which is nil on a new claim.
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
    prepare_common(s)
  end
  -- Most claims are new, and one command stores a new claim. On a claim that exists, the command changes
  -- nothing. An error of the command is ignored here: a server that refuses writes can still report the
  -- holder, or that the claim is done.
  local set = granted and redis_pcall('SET', key, head .. ARGV[a], 'NX', 'PX', left)
  if set and not set.err then
    return granted
  end
  local kind, owner, ends, last, _, attempts, counted, payload = claim_at(key)
  if kind == 'd' then
    return { 'done', ends }
  end
  if owner then
    return held_claim(owner, ends)
  end
  local count = next_count(last, s)
  put(key, ARGV[a], held, count, kept, attempts, counted, payload)
  return { 'granted', count, begun_of(attempts, payload) }
end, 4)
