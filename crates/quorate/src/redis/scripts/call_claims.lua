-- Serves the items of a call on claims.
--
-- Most claims are held by the owner who counts attempts or completes them. Such an item is served here, with one command and
-- without creating a function, and gets one word as its reply. Every other item is served by the script of its request, whose
-- functions are created when the first such item needs them. (Plain commands acquire most claims.)

-- If an item counts an attempt or completes its claim, the values of all claims are read together. A key of another type
-- seems to be missing.
local marker
if string.find(letters, '[ef]') then
  local values = run('MGET', unpack(keys))
  marker, seen = values[1], {}
  for i = 2, #keys do
    seen[keys[i]] = values[i]
  end
else
  marker = run('GET', keys[1])
end
local may_set = marker == args[2] and now <= tonumber(args[1])

-- The following variables cache texts that several items have in common:
-- * `record_ends`, for completes whose shared arguments are at `record_shared`: the expiry of the record.
-- * `live`: the beginning of the value, up to the owner, of a claim whose lease has not ended. Its parts are in the
--   variables after it.
-- * `count_head` and `count_ends`: the beginning of the value after a count, and its expiry. They were made from `live`
--   and from the other variables that begin with `count_`.
-- * `serve_item`: the function that define_scripts returns.
local record_shared, record_ends
local live, held, count, kept, stored_attempts, counted, stored_payload
local count_shared, count_attempts, count_payload, count_head, count_ends
local serve_item

local a = 4
for i = 1, #letters, 2 do
  local letter, digit = byte(letters, i, i + 1)
  local k, s = (i + 3) / 2, last - 4 * (digit - 47) + 1
  local key, owner, reply, arg_count = keys[k], args[a], nil, nil
  if not may_set then
    -- The item's script refuses the item, or releases the claim.
  elseif letter == 101 or letter == 102 then
    -- A count or a complete. Claims that were acquired together have equal values up to the owner. The equal
    -- part is parsed once.
    local value = seen[key] or ''
    local before = #value - #owner
    local state = before > 0 and sub(value, 1, before)
    if state and state ~= live then
      live, count_shared = state, nil
      held, count, kept, stored_attempts, counted, stored_payload =
        match(state, '^c:(%d+):([1-9]%d*):(%d+):(%d+):(%d+):(%x*):$')
      if not held or #held > 16 or #count > 16 or #kept > 16 or #stored_attempts > 10 or #counted > 16
        or #stored_payload > 64 or tonumber(held) < ms then
        live = nil
      end
    end
    local set
    if letter == 102 and record_shared ~= s then
      record_shared, record_ends = s, format('%.0f', ms + args[s])
    end
    if value == '' and letter == 102 then
      -- A node that was not asked for the claim has nothing of it.
      set = run('SET', key, args[a + 1], 'NX', 'PXAT', record_ends)
      if set and set.ok then
        reply, arg_count = 'completed', 2
      end
    elseif not state or state ~= live or sub(value, before + 1) ~= owner then
      -- Another owner or no owner has the claim.
    elseif letter == 102 then
      set = run('SET', key, args[a + 1], 'PXAT', record_ends)
      if set.ok then
        released[#released + 1] = key
        owners[#owners + 1] = owner
        reply, arg_count = 'completed', 2
      end
    elseif args[a + 3] == '+' then
      local attempts, payload = args[a + 1], args[a + 2]
      if count_shared ~= s or count_attempts ~= attempts or count_payload ~= payload then
        count_shared, count_attempts, count_payload, count_head = s, attempts, payload, nil
        local expired = tonumber(counted) < ms
        local so_far, of = expired and '0' or stored_attempts, expired and '' or stored_payload
        if tonumber(kept) >= ms and (#so_far < #attempts or #so_far == #attempts and so_far < attempts) then
          local keeps = ms + args[s]
          count_ends = format('%.0f', math.max(held, kept, keeps))
          count_head = format('c:%.0f:%s:%.0f:%s:%.0f:%s:', held, count, kept, attempts, keeps,
            payload == '' and of or payload)
        end
      end
      set = count_head and run('SET', key, count_head .. owner, 'PXAT', count_ends)
      if set and set.ok then
        reply, arg_count = 'counted', 4
      end
    end
  end
  if seen and reply then
    seen[key] = nil
  end
  if not reply then
    serve_item = serve_item or define_scripts()
    local _
    reply, _, arg_count = serve_item(letter, k, a, s)
  end
  out[#out + 1] = reply
  a = a + arg_count
end
