-- Precedes every script but release.lua. A script serves the requests of one family, in any order. It consists of this
-- file, refusal.lua, the family's scripts (prelude.lua to define.lua), and a loop over the items of the call (call.lua, call_locks.lua
-- or call_claims.lua, and call_end.lua).
--
-- A call:
--   KEYS     the node's marker; each item's keys
--   ARGV     not_after, microseconds; the stamp of the votes; for each item the letter of its script and the digit of its
--            shared arguments, in one string; each item's arguments; then the lists of shared arguments by digit, the
--            highest first, four each
--   returns  { the node's time in microseconds, one reply for each item }
--
-- The reply to an item is an array of strings, a string in place of an array of one, or, for a grant, its count.
--
-- Lua's numbers are doubles. Numbers therefore remain decimal strings unless they are added, and are compared
-- as strings.

local run, byte, sub, match, format, abs = redis.pcall, string.byte, string.sub, string.match, string.format, math.abs
local keys, args, letters, last = KEYS, ARGV, ARGV[3], #ARGV
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local ms = math.floor(now / 1000)

-- The replies, after the node's time: the same text as that of `now`.
local out = { clock[1] .. sub('00000' .. clock[2], -6) }

-- The keys of the released leases, and their former owners.
local released, owners = {}, {}

-- The values of claims that MGET returned, without those of claims that were written since. Nil before MGET was called.
local seen

