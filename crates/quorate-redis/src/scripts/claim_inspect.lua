-- Returns the state of the claim. Changes nothing.
-- KEYS  the claim
-- ARGV  none
return serve(false, false, 1, 0, function(k)
  local kind, owner, held, count, _, attempts, _, payload = claim_at(KEYS[k])
  -- Missing values are empty strings, because Redis ends an array at its first nil.
  if kind == 'd' then
    return { 'state', '-2', '', '', held }
  end
  local left = owner and text_of(held - now_ms) or '-2'
  return { 'state', left, owner or '', count or '', begun_of(attempts, payload) or '' }
end)
