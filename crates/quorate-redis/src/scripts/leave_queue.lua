-- Gives a place in the queue up. Never refused for its time or the marker.
-- KEYS  queue
-- ARGV  ticket
return serve(false, false, 1, 1, function(k, a)
  line(KEYS[k])
  return { 'released', decimal(call('HDEL', KEYS[k], ARGV[a])) }
end)
