-- Says who holds the resource. Changes nothing.
-- KEYS  lock, counter
-- ARGV  none
return serve(false, false, 2, 0, function(k)
  local holder, left = call('GET', KEYS[k]), '-2'
  if holder then
    left = left_of(KEYS[k])
  end
  local count = counter(KEYS[k + 1])
  -- Empty where there is none: an array of Redis ends at its first nil.
  return { 'state', left, holder or '', count or '', '' }
end)
