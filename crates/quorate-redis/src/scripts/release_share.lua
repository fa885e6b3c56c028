-- Removes a reader; removing the last one frees the resource. Served even after the deadline and under
-- another marker.
-- KEYS  lock, readers
-- ARGV  owner
return serve(false, false, 2, 1, function(k, a)
  local lock, readers = KEYS[k], KEYS[k + 1]
  if call('GET', lock) ~= READERS then
    return { 'released', '0' }
  end
  call('ZREMRANGEBYSCORE', readers, '-inf', decimal(ms))
  local removed = call('ZREM', readers, ARGV[a])
  if removed == 1 and call('ZCARD', readers) == 0 then
    free(lock, READERS)
  else
    expire_with_last(lock, readers)
  end
  return { 'released', decimal(removed) }
end)
