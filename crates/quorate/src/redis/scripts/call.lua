-- Serves the items of a call, each by the script of its request.

local serve_item = define_scripts()
local k, a = 2, 4
for i = 1, #letters, 2 do
  local letter, digit = byte(letters, i, i + 1)
  local key_count, arg_count
  out[#out + 1], key_count, arg_count = serve_item(letter, k, a, last - 4 * (digit - 47) + 1)
  k, a = k + key_count, a + arg_count
end
