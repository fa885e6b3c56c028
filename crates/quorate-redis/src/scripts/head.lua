-- Precedes every script.
--
-- Every script:
--   KEYS[1]  the node's marker; then the items' keys
--   ARGV[1]  not_after, microseconds; ARGV[2] the stamp of the votes; then the items' arguments
--   returns  { the node's time in microseconds, one reply for each item }
--
-- The reply to an item is an array of strings, a string for an array of one, or, for a grant, its count.
--
-- Lua's numbers are doubles. Numbers therefore remain decimal strings unless they are added, and are compared
-- as strings.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- The keys of the released leases, and their former owners.
local released, owners = {}, {}

