-- Refuses what asks of a claim what only locks have, or of something else what only claims have.
-- KEYS  the claim, or the lock
-- ARGV  none
return serve(true, true, 1, 0, function()
  refuse('failed', 'readers, queues and reservations do not apply to a claim; attempts and done records apply only to a claim')
end)
