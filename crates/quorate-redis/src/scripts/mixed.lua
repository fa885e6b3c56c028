-- Comes before the scripts that one call may mix, each of which gives itself here rather than to serve(...); and a call
-- of mix() after them.
-- KEYS  as those of the items
-- ARGV  after the stamp: a letter for each item, which says whose it is; then as those of the items, each with a COMMON of
--       its own after it
local kinds = {}

-- In place of serve: the next letter is for this kind of item.
local function kind(sets, votes, keys, args, item, common)
  kinds[#kinds + 1] = { sets, votes, keys, args, item, common or 0 }
end

-- Serves the items in their order.
local function mix()
  local out, letters = { node_time() }, ARGV[3]
  local refusals, byte = {}, string.byte
  local k, a = 2, 4
  for i = 1, #letters do
    local it = kinds[byte(letters, i) - 96]
    local refusal = refusals[it]
    if refusal == nil then
      refusal = outcome(pcall(gate, it[1], it[2])) or false
      refusals[it] = refusal
    end
    if refusal then
      out[i + 1] = refusal
    else
      out[i + 1] = outcome(pcall(it[5], k, a, a + it[4]))
    end
    k, a = k + it[3], a + it[4] + it[6]
  end
  tell_all()
  return out
end

