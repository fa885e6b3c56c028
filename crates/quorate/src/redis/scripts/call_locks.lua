-- Serves the items of a call on locks.
--
-- Most requests extend the leases of owners that hold their locks, or acquire locks that others hold. Such an item is
-- served here, with one or two commands and without creating a function. Every other item is served by the script of its
-- request, whose functions are created when the first such item needs them.

-- The values of the keys before the first item. A key of another type seems to be missing. `changed` has the locks that an
-- earlier item's script may have changed.
local values, changed = run('MGET', unpack(keys)), {}
local may_set = values[1] == args[2] and now <= tonumber(args[1])

-- Whether one command can set an expiry unless there is a later one: since Redis 7.
local has_gt = redis.REDIS_VERSION_NUM ~= nil

local serve_item
local k, a = 2, 4
for i = 1, #letters, 2 do
  local letter, digit = byte(letters, i, i + 1)
  local lock, holder, s, reply = keys[k], values[k], last - 4 * (digit - 47) + 1, nil
  local arg_count = letter == 97 and 3 or 2
  if not may_set or not holder or changed[lock] then
    -- The item's script refuses the item, or reads the keys again.
  elseif letter == 97 then
    -- An acquire of a lock that is held, and not by a reservation.
    local left = sub(holder, -9) ~= ':reserved' and run('PTTL', lock)
    reply = type(left) == 'number' and { 'held', holder, format('%.0f', left) } or nil
  elseif letter == 98 and holder == args[a] then
    -- An extend by the holder. A client that did not get the lock may have made the count larger than the holder's. A count
    -- without an end is no count.
    local fence, count, token, ttl, left = keys[k + 1], values[k + 1], args[a + 1], args[s], nil
    local keeps = count == token
    if count and not keeps and #count <= 16 and match(count, '^[1-9]%d*$') then
      left = (#count > #token or #count == #token and count > token) and run('PTTL', fence)
      keeps = type(left) == 'number' and left >= 0
    end
    if keeps and run('PEXPIRE', fence, args[s + 1]) == 1 then
      if has_gt then
        left = run('PEXPIRE', lock, ttl, 'GT')
      else
        left = run('PTTL', lock)
        if type(left) == 'number' and left >= 0 and left < tonumber(ttl) then
          left = run('PEXPIRE', lock, ttl)
        end
      end
      reply = type(left) == 'number' and 'extended' or nil
    end
  end
  if not reply then
    serve_item, changed[lock] = serve_item or define_scripts(), true
    reply = serve_item(letter, k, a, s)
  end
  out[#out + 1] = reply
  k, a = k + (letter == 99 and 2 or 3), a + arg_count
end
