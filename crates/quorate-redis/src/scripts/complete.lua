-- Stores the done record of a claim, and frees the claim. The claim's counter is no longer stored, because
-- the record contains the token.
-- KEYS  the claim
-- ARGV  owner, the done record
-- SHARED  retention of the record (ms)

-- Returns the reply to an owner that no longer holds the claim. Returns nil if the owner's record is to be
-- stored nevertheless.
local function former_holder_reply(key, value, done)
  local token = string.match(done, '^d:(%d+)')
  local kind, owner, held, count = read(key, value)
  if kind == 'd' then
    local stored, record = owner, held
    return less(token, stored) and { 'done', record } or nil
  elseif owner then
    return held_claim(owner, held)
  elseif count and less(token, count) then
    refuse('superseded')
  end
end

return serve(true, true, 1, 2, function(k, a, s)
  local key, owner = KEYS[k], ARGV[a]
  local value = value_at(key)
  local holds = is_held_by(value, owner)
  local no = not holds and former_holder_reply(key, value, ARGV[a + 1])
  if no then
    return no
  end
  set(key, ARGV[a + 1], ARGV[s])
  if holds then
    notify(key, owner)
  end
  return 'completed'
end)
