-- Precedes the scripts whose items one call may mix. Each of these scripts registers itself with define(...)
-- instead of calling serve(...).

local scripts, refusals = {}, {}

-- Registers the script for the next letter. Its function is called with the positions of the item's first key,
-- of its first argument, of the arguments that it shares with other items, and of its queue.
local function define(sets, votes, keys, args, item)
  scripts[#scripts + 1] = { sets, votes, keys, args, item }
end

-- Runs the script of one item. `letter` is the byte of the script's letter. Returns the reply, and the
-- numbers of the item's keys and arguments.
local function serve_item(letter, k, a, s, q)
  local script = scripts[letter - 96]
  local refusal = refusals[script]
  if refusal == nil then
    refusal = outcome(pcall(check_deadline_and_marker, script[1], script[2])) or false
    refusals[script] = refusal
  end
  return refusal or outcome(pcall(script[5], k, a, s, q)), script[3], script[4]
end

