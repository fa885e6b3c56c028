-- Serves the requests on claims, in any order.
--
-- KEYS  each item's claim
-- ARGV  after the stamp: for each item the letter of its script and the digit of its shared arguments, in one string;
--       each item's arguments; then the shared arguments by digit, the highest first, four each

-- Defines the scripts.
local function define_scripts()
-- SCRIPTS
  return serve_item, publish_releases
end

local byte, letters, last = string.byte, ARGV[3], #ARGV
local out = { clock[1] .. string.sub('00000' .. clock[2], -6) }
local serve_item, publish_releases = define_scripts()

local k, a = 2, 4
for i = 1, #letters, 2 do
  local letter, digit = byte(letters, i, i + 1)
  local reply, key_count, arg_count = serve_item(letter, k, a, last - 4 * (digit - 47) + 1)
  out[#out + 1] = reply
  k, a = k + key_count, a + arg_count
end
publish_releases()
return out
