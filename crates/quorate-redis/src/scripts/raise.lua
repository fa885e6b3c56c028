-- Sets the counter to the given count if the given owner holds the resource and the counter is no larger.
-- KEYS  lock, counter
-- ARGV  owner, the count
-- SHARED  (unused), retention of the counter (ms)
return serve(true, true, 2, 2, function(k, a, s)
  if call('GET', KEYS[k]) ~= ARGV[a] then
    refuse('notowner')
  end
  local last = counter(KEYS[k + 1])
  -- If the counter has expired before the lease, its last value is unknown.
  if not last or less(ARGV[a + 1], last) then
    refuse('superseded')
  end
  count_to(KEYS[k + 1], last, ARGV[a + 1], ARGV[s + 1])
  return { 'raised' }
end)
