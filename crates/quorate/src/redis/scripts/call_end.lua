
-- Ends every script. Publishes the releases, if a client waits for any: each on the channel of its own waiters, with the
-- number of subscribers. A failure, for instance without the permission for PUBLISH, does not fail the release, because
-- waiters also poll.

if #released > 0 and run('PUBSUB', 'NUMSUB', keys[1] .. ':waiters')[2] ~= 0 then
  local channels = {}
  for i = 1, #released do
    channels[i] = released[i] .. ':freed'
  end
  local listen = run('PUBSUB', 'NUMSUB', unpack(channels))
  for i = 1, #channels do
    local subscribers = listen[2 * i] or 1
    if subscribers > 0 then
      run('PUBLISH', channels[i], subscribers .. ' ' .. owners[i])
    end
  end
end
return out
