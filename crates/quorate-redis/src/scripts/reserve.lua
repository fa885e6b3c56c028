-- Replaces the lease by a reservation if the given owner holds the lock. Notifies the waiters, one of which
-- may be the worker that the reservation names.
-- KEYS  lock
-- ARGV  owner, the reservation's token, its duration (ms)
return serve(true, true, 1, 3, function(k, a)
  if call('GET', KEYS[k]) ~= ARGV[a] then
    refuse('notowner')
  end
  call('SET', KEYS[k], ARGV[a + 1], 'PX', ARGV[a + 2])
  notify(KEYS[k], ARGV[a])
  return { 'reserved' }
end)
