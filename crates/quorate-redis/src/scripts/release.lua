-- Frees the resource if the given owner holds it, and notifies its waiters. Served even after the deadline
-- and under another marker.
-- KEYS  lock
-- ARGV  owner
return serve(false, false, 1, 1, function(k, a)
  if call('GET', KEYS[k]) ~= ARGV[a] then
    return 'absent'
  end
  free(KEYS[k], ARGV[a])
  return 'freed'
end)
