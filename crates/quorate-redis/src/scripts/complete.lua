-- Records that a claim is done, and frees it. Its counter ends: the record has the token.
-- KEYS  the claim
-- ARGV  owner, token, the done record, how long it lives (ms)

-- What to say to one who has not got it, but had it; nil where the record is to stand.
local function no_longer(key, value, token)
  local kind, owner, held, count = read(key, value)
  if kind == 'd' then
    return less(token, owner) and { 'done', held } or nil
  elseif owner then
    return claimed(owner, held)
  elseif count and less(token, count) then
    refuse('superseded')
  end
end

return serve(true, true, 1, 4, function(k, a)
  local key, owner = KEYS[k], ARGV[a]
  local value = value_at(key)
  local holds = is_held_by(value, owner)
  local no = not holds and no_longer(key, value, ARGV[a + 1])
  if no then
    return no
  end
  set(key, ARGV[a + 2], ARGV[a + 3])
  if holds then
    tell(key, owner)
  end
  return 'completed'
end)
