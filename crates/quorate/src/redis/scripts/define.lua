-- Ends the function that defines the scripts of a family.

-- Runs the script of one item. `letter` is the byte of the script's letter; k, a and s are as in `define`. Returns the reply, and the
-- numbers of the item's keys and arguments.
local function serve_item(letter, k, a, s)
  local script = scripts[letter]
  local refusal = refusals[script]
  if refusal == nil then
    refusal = outcome(pcall(check_deadline_and_marker, script[1], script[2])) or false
    refusals[script] = refusal
  end
  return refusal or outcome(pcall(script[5], k, a, s)), script[3], script[4]
end

return serve_item
end

