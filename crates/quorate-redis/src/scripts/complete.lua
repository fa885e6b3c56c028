-- Records that a claim is done, and frees it. Its counter ends: the record has the token.
-- KEYS  lock, counter, a claim's record
-- ARGV  owner, token, the done record, how long it lives (ms), 1 for a claim
return serve(true, true, 3, 5, function(k, a)
  local lock, fence, done = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local owner, token = ARGV[a], ARGV[a + 1]
  local holder = call('GET', lock)
  if ARGV[a + 4] == '1' and holder ~= owner then
    local kind, standing, record = claim_record(done)
    if kind == 'd' and less(token, standing) then
      return { 'done', record }
    end
  end
  if holder and holder ~= owner then
    return held(holder, lock)
  end
  if not holder then
    local last = counter(fence)
    if last and less(token, last) then
      refuse('superseded')
    end
  end
  call('SET', done, ARGV[a + 2], 'PX', ARGV[a + 3])
  call('DEL', fence, lock)
  if holder then
    tell(lock, owner)
  end
  return { 'completed' }
end)
