-- Refuses what asks of a claim what only locks have, or of something else what only claims have.
-- KEYS  the claim, or the lock
-- ARGV  none
return serve(true, true, 1, 0, function()
  refuse('failed', 'a claim has no readers, no queue and no heir; and nothing but a claim is done')
end)
