-- Sets the node's marker where what is expected stands now.
-- KEYS  the marker
-- ARGV  1 where a marker is expected, else 0; the marker expected; the new marker
return serve(true, false, 1, 3, function(k, a)
  local standing = call('GET', KEYS[k])
  if not standing then
    if ARGV[a] ~= '0' then
      refuse('unmarked')
    end
  elseif ARGV[a] ~= '1' or standing ~= ARGV[a + 1] then
    refuse('marker', standing)
  end
  if standing ~= ARGV[a + 2] then
    call('SET', KEYS[k], ARGV[a + 2])
  end
  return { 'marked' }
end)
