-- Refuses a request that does not apply to its resource: a request for locks on a claim, or a request for
-- claims on another resource.
-- KEYS  the claim, or the lock
-- ARGV  none
return serve(true, true, 1, 0, function()
  refuse('failed', 'readers, queues and reservations do not apply to a claim; attempts and done records apply only to a claim')
end)
