-- Returns the holder of the resource. Changes nothing.
-- KEYS  lock, counter
-- ARGV  none
return serve(false, false, 2, 0, function(k)
  -- Leaders ask every few seconds for a request to resign, and nearly always there is none.
  if redis_pcall('EXISTS', KEYS[k], KEYS[k + 1]) == 0 then
    return { 'state', '-2', '', '', '' }
  end
  local holder, left = call('GET', KEYS[k]), '-2'
  if holder then
    left = left_of(KEYS[k])
  end
  local count = counter(KEYS[k + 1])
  -- Missing values are empty strings, because Redis ends an array at its first nil.
  return { 'state', left, holder or '', count or '', '' }
end)
