-- Records that a claim is done, and frees it.
-- KEYS  lock, counter, a claim's record
-- ARGV  owner, token, the done record, how long the record and the counter live (ms), 1 for a claim
return serve(true, true, 3, 5, function(k, a)
  local lock, fence, done = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local owner, token, keep = ARGV[a], ARGV[a + 1], ARGV[a + 3]
  if ARGV[a + 4] == '1' then
    local kind, standing, record = claim_record(done)
    if kind == 'd' and less(token, standing) then
      return { 'done', record }
    end
  end
  local holder = call('GET', lock)
  if holder and holder ~= owner then
    return held(holder, lock)
  end
  local last = counter(fence)
  if not holder and last and less(token, last) then
    refuse('superseded')
  end
  count_to(fence, last, token, keep)
  call('SET', done, ARGV[a + 2], 'PX', keep)
  if holder then
    free(lock, owner)
  end
  return { 'completed' }
end)
