-- Frees the claim if the given owner holds it, and notifies its waiters. Served even after the deadline and
-- under another marker.
-- KEYS  the claim
-- ARGV  owner
return serve(false, false, 1, 1, function(k, a)
  local kind, owner, _, count, kept, attempts, counted, payload = claim_at(KEYS[k])
  if kind ~= 'c' or owner ~= ARGV[a] then
    return 'absent'
  end
  put_over(KEYS[k], nil, nil, count, kept, attempts, counted, payload)
  notify(KEYS[k], owner)
  return 'freed'
end)
