-- If the owner is still the same, the resource is its heir's from now on, who may be waiting for it.
-- KEYS  lock
-- ARGV  owner, heir, how long the heir's reservation lives (ms)
return serve(true, true, 1, 3, function(k, a)
  if call('GET', KEYS[k]) ~= ARGV[a] then
    refuse('notowner')
  end
  call('SET', KEYS[k], ARGV[a + 1], 'PX', ARGV[a + 2])
  tell(KEYS[k], ARGV[a])
  return { 'reserved' }
end)
