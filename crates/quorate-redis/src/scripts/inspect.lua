-- Says who holds the resource. Changes nothing.
-- KEYS  lock, counter, a claim's record
-- ARGV  1 for a claim
return serve(false, false, 3, 1, function(k, a)
  local holder, left = call('GET', KEYS[k]), '-2'
  if holder then
    left = left_of(KEYS[k])
  end
  local count = counter(KEYS[k + 1])
  local record, _
  if ARGV[a] == '1' then
    _, _, record = claim_record(KEYS[k + 2])
  end
  -- Empty where there is none: an array of Redis ends at its first nil.
  return { 'state', left, holder or '', count or '', record or '' }
end)
