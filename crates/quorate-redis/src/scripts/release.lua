-- Frees the resource if the owner is the same, and notifies its waiters. Never refused because of its time or
-- the marker.
-- KEYS  lock
-- ARGV  owner
return serve(false, false, 1, 1, function(k, a)
  if call('GET', KEYS[k]) ~= ARGV[a] then
    return 'absent'
  end
  free(KEYS[k], ARGV[a])
  return 'freed'
end)
