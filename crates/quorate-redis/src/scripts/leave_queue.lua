-- Removes a place from the queue. Never refused because of the deadline or the marker.
-- KEYS  queue
-- ARGV  ticket
return serve(false, false, 1, 1, function(k, a)
  live_places(KEYS[k])
  return { 'released', decimal(call('HDEL', KEYS[k], ARGV[a])) }
end)
