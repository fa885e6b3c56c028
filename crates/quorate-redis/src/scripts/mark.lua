-- Sets the node's marker if the stored one is the expected one.
-- KEYS  the marker
-- ARGV  1 if a marker is expected, else 0; the expected marker; the new marker
return serve(true, false, 1, 3, function(k, a)
  local stored = call('GET', KEYS[k])
  if not stored then
    if ARGV[a] ~= '0' then
      refuse('unmarked')
    end
  elseif ARGV[a] ~= '1' or stored ~= ARGV[a + 1] then
    refuse('marker', stored)
  end
  if stored ~= ARGV[a + 2] then
    call('SET', KEYS[k], ARGV[a + 2])
  else
    -- Changes nothing, because the key exists. A server that refuses writes refuses this one too.
    call('SET', KEYS[k], ARGV[a + 2], 'NX')
  end
  return { 'marked' }
end)
