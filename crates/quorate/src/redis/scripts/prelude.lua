-- Begins the function that defines the scripts of a family, with the functions that all of them need. A call that needs
-- none of them does not create them. The files of the family follow, and then define.lua, which ends the function.
--
-- `run` returns errors as tables; `call` turns them into the item's refusal, so that a key of another
-- type fails only its own item.

local function define_scripts()

-- Lua finds a local faster than a global, so functions that a script uses many times are locals.
local pcall, type, tonumber = pcall, type, tonumber

local function decimal(number)
  return format('%.0f', number)
end

-- Ends the item with this reply.
local function answer(...)
  error({ ... }, 0)
end

local function refuse(...)
  error({ 'refused', ... }, 0)
end

local function call(command, key, ...)
  local reply = run(command, key, ...)
  if type(reply) == 'table' and reply.err then
    error(refusal(key, reply.err), 0)
  end
  return reply
end

-- Returns whether the decimal string a is less than b.
local function less(a, b)
  return #a < #b or (#a == #b and a < b)
end

-- Returns whether text is a decimal number as Quorate writes it: no sign, no leading zero, within 64 bits.
local function is_number(text)
  return (text == '0' or string.find(text, '^[1-9]%d*$') ~= nil) and not less('18446744073709551615', text)
end

-- Returns the count of a fencing counter as a decimal string, or nil. A counter without an end was started by a plain
-- INCRBY, after the counter had been lost. So it is treated as missing.
local function counter(key)
  local value = call('GET', key)
  if not value then
    return nil
  end
  if not is_number(value) then
    refuse('wrongtype', 'the key ' .. key .. ' holds no count')
  end
  return call('PTTL', key) >= 0 and value or nil
end

-- Sets the counter to the larger of the stored count and `count`, and keeps it for `keep` milliseconds. An
-- unchanged count is not written again, so that a lease can be extended on a node that is out of memory.
local function count_to(key, stored, count, keep)
  if stored and not less(stored, count) then
    call('PEXPIRE', key, keep)
  else
    call('SET', key, count, 'PX', keep)
  end
end

-- Returns the count of a grant after the count `last`. If that is nil, `initial` takes its place, which may be at most
-- `tolerance` microseconds from this server's clock.
local function next_count(last, initial, tolerance)
  if not last then
    last = initial
    local apart = abs(now - tonumber(last))
    if apart > tonumber(tolerance) then
      refuse('clock', decimal(apart))
    end
  end
  if tonumber(last) >= 9007199254740991 then
    refuse('full')
  end
  return tonumber(last) + 1
end

-- Returns the remaining milliseconds of `lock`: -1 for a key that never expires. Another client may have set
-- a time so long that tostring would round the number.
local function left_of(lock)
  return decimal(call('PTTL', lock))
end

-- Ends the item, because `holder` has the lock.
local function answer_held(holder, lock)
  answer('held', holder, left_of(lock))
end

-- Returns the value of `lock`: `own`, or false if the lock is free. Ends the item if there is another holder.
local function holder_of(lock, own)
  local holder = call('GET', lock)
  if holder and holder ~= own then
    answer_held(holder, lock)
  end
  return holder
end

-- Makes the script notify the waiters for `lock`, at its end, that `owner` released the lock.
local function notify(lock, owner)
  released[#released + 1] = lock
  owners[#owners + 1] = owner
end

-- Frees `lock`, and makes the script notify its waiters.
local function free(lock, owner)
  call('DEL', lock)
  notify(lock, owner)
end

-- Refuses every item of a script that stores keys (`sets`) if the deadline has passed. Refuses every item of
-- a script that votes (`votes`) if the stored marker is not the stamp.
local function check_deadline_and_marker(sets, votes)
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

-- Returns the result of a pcall, or the reply that ended the item. Any other error is a fault of the script, and is
-- raised again.
local function outcome(ok, reply)
  if ok or type(reply) == 'table' then
    return reply
  end
  error(reply, 0)
end

local scripts, refusals = {}, {}

-- Registers the script of the requests with this letter: whether it stores keys and whether it votes, the numbers of
-- its keys and arguments, and its function. That is called with the positions of the item's first key, of its first
-- argument, and of the arguments that it shares with other items.
local function define(letter, sets, votes, keys, args, item)
  scripts[byte(letter)] = { sets, votes, keys, args, item }
end

