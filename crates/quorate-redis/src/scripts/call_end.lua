
-- Ends every script: publishes the releases, if a client waits for one, and returns the replies.

if #released > 0 and run('PUBSUB', 'NUMSUB', keys[1] .. ':waiters')[2] ~= 0 then
  if not publish_releases then
    serve_item, publish_releases = define_scripts()
  end
  publish_releases()
end
return out
