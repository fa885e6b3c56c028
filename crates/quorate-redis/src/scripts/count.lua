-- Counts an attempt on a claim if the owner is still the same and fewer have been counted; or takes it back, if exactly
-- as many have. Where none is counted any more the payload is forgotten as well.
-- KEYS  lock, a claim's record
-- ARGV  owner, attempts, the payload's fingerprint or nothing, + or - to take back, how long the count lives (ms)
return serve(true, true, 2, 5, function(k, a)
  if call('GET', KEYS[k]) ~= ARGV[a] then
    refuse('notowner')
  end
  local kind, standing, record = claim_record(KEYS[k + 1])
  if kind == 'd' then
    return { 'done', record }
  end
  local attempts, payload = ARGV[a + 1], ARGV[a + 2]
  if ARGV[a + 3] == '-' then
    if standing ~= attempts then
      refuse('superseded')
    end
    attempts = decimal(math.max(tonumber(attempts) - 1, 0))
  elseif not less(standing or '0', attempts) then
    refuse('superseded')
  end
  if tonumber(attempts) == 0 then
    payload = ''
  elseif payload == '' and record then
    payload = string.match(record, '(%x*)$')
  end
  call('SET', KEYS[k + 1], 'b:' .. attempts .. ':' .. payload, 'PX', ARGV[a + 4])
  return { 'counted' }
end)
