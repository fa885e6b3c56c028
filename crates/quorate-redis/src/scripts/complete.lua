-- Records that a claim is done, and frees it. Its counter ends: the record has the token.
-- KEYS  the claim
-- ARGV  owner, the done record
-- COMMON  how long it lives (ms)

-- What to say to one who has not got it, but had it; nil where the record is to stand.
local function no_longer(key, value, done)
  local token = string.match(done, '^d:(%d+)')
  local kind, owner, held, count = read(key, value)
  if kind == 'd' then
    local standing, record = owner, held
    return less(token, standing) and { 'done', record } or nil
  elseif owner then
    return claimed(owner, held)
  elseif count and less(token, count) then
    refuse('superseded')
  end
end

return serve(true, true, 1, 2, function(k, a, s)
  local key, owner = KEYS[k], ARGV[a]
  local value = value_at(key)
  local holds = is_held_by(value, owner)
  local no = not holds and no_longer(key, value, ARGV[a + 1])
  if no then
    return no
  end
  set(key, ARGV[a + 1], ARGV[s])
  if holds then
    tell(key, owner)
  end
  return 'completed'
end, 1)
