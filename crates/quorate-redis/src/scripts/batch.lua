-- Precedes the scripts whose requests one call may mix. Each of them registers itself with define(...)
-- instead of calling serve(...). A call of serve_batch() follows them.
-- KEYS  those of the items
-- ARGV  after the stamp: a letter for each item, which names its script; then the arguments of each item, each followed
--       by its own COMMON
local scripts = {}

-- Replaces serve: registers the script for the next letter.
local function define(sets, votes, keys, args, item, common)
  scripts[#scripts + 1] = { sets, votes, keys, args, item, common or 0 }
end

-- Serves the items in order.
local function serve_batch()
  local out, letters = { node_time() }, ARGV[3]
  local refusals, byte = {}, string.byte
  local k, a = 2, 4
  for i = 1, #letters do
    local script = scripts[byte(letters, i) - 96]
    local refusal = refusals[script]
    if refusal == nil then
      refusal = outcome(pcall(check_deadline_and_marker, script[1], script[2])) or false
      refusals[script] = refusal
    end
    if refusal then
      out[i + 1] = refusal
    else
      out[i + 1] = outcome(pcall(script[5], k, a, a + script[4]))
    end
    k, a = k + script[3], a + script[4] + script[6]
  end
  publish_releases()
  return out
end

