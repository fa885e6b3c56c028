-- If the owner is still the same and the counter no larger, makes the counter what is asked.
-- KEYS  lock, counter
-- ARGV  owner, the count, how long the counter lives (ms)
return serve(true, true, 2, 3, function(k, a)
  if call('GET', KEYS[k]) ~= ARGV[a] then
    refuse('notowner')
  end
  local last = counter(KEYS[k + 1])
  -- A counter forgotten under a live lease: nobody can say what was counted here.
  if not last or less(ARGV[a + 1], last) then
    refuse('superseded')
  end
  count_to(KEYS[k + 1], last, ARGV[a + 1], ARGV[a + 2])
  return { 'raised' }
end)
