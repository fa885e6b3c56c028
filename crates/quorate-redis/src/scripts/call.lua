-- Serves the items of a call, each by the script of its request.

local serve_item = define_scripts()
local k, a = 2, 5
for i = 1, #letters, 2 do
  local key_count, arg_count
  out[#out + 1], key_count, arg_count = serve_item(byte(letters, i), k, a)
  k, a = k + key_count, a + arg_count
end
