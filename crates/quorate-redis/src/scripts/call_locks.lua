-- Serves the items of a call on locks.
--
-- Most locks are free or held by the owner who names them, and have no queue. Such an item is served here, with
-- the fewest commands and without creating a function, and gets an integer or one word as its reply. Every other
-- item is served by the script of its request, whose functions are created when the first such item needs them.
-- An item that this file cannot finish has changed nothing that its script would not change.

local queues = tonumber(args[4])

-- The values of the marker, the locks and the counters before the first item. A key of another type seems to
-- be missing. `changed` has the locks that an earlier item may have changed.
local stored, changed = run('MGET', unpack(keys, 1, queues - 1)), {}
local readable = stored.err == nil
local may_set = readable and stored[1] == args[2] and now <= tonumber(args[1])

-- `waiting` is the number of queues that exist, once it is known. `lock_end` and `counter_end` are the expiry
-- times, in milliseconds of this server's clock, that follow from the shared arguments at `shared`. The
-- function is that which define_scripts returns.
local waiting, shared, lock_end, counter_end, serve_item

local k, a, q = 2, 5, queues
for i = 1, #letters, 2 do
  local letter, digit = byte(letters, i, i + 1)
  local lock, owner, s, reply = keys[k], args[a], last - 4 * (digit - 47) + 1, nil
  if changed[lock] or not readable then
    -- The item's script gets the present values of the keys.
  elseif letter == 98 then
    -- A release.
    local holder = stored[k]
    if holder == owner then
      if run('DEL', lock) == 1 then
        released[#released + 1] = lock
        owners[#owners + 1] = owner
        reply = 'freed'
      end
    elseif holder or run('GET', lock) == false then
      reply = 'absent'
    end
  elseif may_set and letter ~= 100 then
    local holder, count, fence = stored[k], stored[k + 1], keys[k + 1]
    if shared ~= s then
      shared, lock_end, counter_end = s, format('%.0f', ms + args[s]), format('%.0f', ms + args[s + 1])
    end
    if letter == 97 and holder then
      -- An acquire of a lock that is held, and not by a reservation.
      local left = sub(holder, -9) ~= ':reserved' and run('PTTL', lock)
      if type(left) == 'number' then
        reply = { 'held', holder, format('%.0f', left) }
      end
    elseif letter == 97 then
      -- An acquire of a free lock.
      waiting = waiting or run('EXISTS', unpack(keys, queues))
      local first, granted = count and byte(count), nil
      if waiting ~= 0 then
        -- Another waiter may come first. The item's script checks the queue.
      elseif not count then
        local initial = tonumber(match(args[a + 1], '^%d+'))
        if abs(now - initial) <= tonumber(args[s + 2]) and initial < 9007199254740991 then
          local set = run('SET', fence, format('%.0f', initial + 1), 'NX', 'PXAT', counter_end)
          granted = set and set.ok and initial + 1
        end
      elseif first and first >= 49 and first <= 57 and (#count < 16 or #count == 16 and count < '9007199254740991') then
        -- INCRBY itself refuses every remaining value that is not a count of Quorate.
        granted = run('INCRBY', fence, 1)
      end
      if type(granted) == 'number' then
        local set = run('SET', lock, owner, 'NX', 'PXAT', lock_end)
        if set and set.ok then
          if count and run('PEXPIREAT', fence, counter_end) ~= 1 then
            run('SET', fence, format('%.0f', granted), 'PXAT', counter_end)
          end
          reply = granted
        elseif count then
          -- The lock's key is of another type.
          run('SET', fence, count, 'KEEPTTL')
        else
          run('DEL', fence)
        end
      end
    elseif holder == owner and count then
      -- An extend by the holder. The lease is extended only if it ends earlier.
      local token = args[a + 1]
      if #count <= 16 and match(count, '^[1-9]%d*$') and (#count > #token or #count == #token and count >= token)
        and run('PEXPIREAT', fence, counter_end) == 1 then
        local left = run('PTTL', lock)
        if type(left) == 'number' and (left < 0 or left >= tonumber(args[s]) or run('PEXPIRE', lock, args[s]) == 1) then
          reply = 'extended'
        end
      end
    end
  end
  changed[lock] = true
  if not reply then
    serve_item = serve_item or define_scripts()
    reply = serve_item(letter, k, a, s, q)
  end
  out[#out + 1] = reply
  -- A release has one key and one argument. Every other request has two keys and two arguments. Acquires and
  -- extends also have a queue.
  if letter == 98 then
    k, a = k + 1, a + 1
  else
    k, a = k + 2, a + 2
    if letter ~= 100 then
      q = q + 1
    end
  end
end
