-- Takes a reader away; the last one frees the resource. Never refused for its time or the marker.
-- KEYS  lock, readers
-- ARGV  owner
return serve(false, false, 2, 1, function(k, a)
  local lock, readers = KEYS[k], KEYS[k + 1]
  if call('GET', lock) ~= READERS then
    return { 'released', '0' }
  end
  call('ZREMRANGEBYSCORE', readers, '-inf', decimal(ms))
  local mine = call('ZREM', readers, ARGV[a])
  if mine == 1 and call('ZCARD', readers) == 0 then
    free(lock, READERS)
  else
    live_with_last(lock, readers)
  end
  return { 'released', decimal(mine) }
end)
