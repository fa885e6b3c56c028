-- Removes a waiter from the queue. Served even after the deadline and under another marker.
-- KEYS  queue
-- ARGV  ticket
return serve(false, false, 1, 1, function(k, a)
  live_places(KEYS[k])
  return { 'released', decimal(call('HDEL', KEYS[k], ARGV[a])) }
end)
