-- Returns the refusal of an item for the error of a command on `key`. Redis 6.2 encloses errors that the script's call itself
-- causes, such as OOM: '@user_script: 12: -OOM …\r\n'.
local function refusal(key, err)
  local text = string.match(err, '^@user_script: %d+: (.*)$') or err
  text = string.match(text, '^%-?(.-)%s*$')
  if string.sub(text, 1, 9) == 'WRONGTYPE' then
    return { 'refused', 'wrongtype', 'the key ' .. key .. ' holds another type' }
  end
  return { 'refused', 'failed', text }
end

