-- The functions of all requests on ledgers. A ledger is a hash of w (low-water mark), l (retention, ms) and r:KEY (record,
-- as AT:TERM:LAST:VALUE).

-- The heads of the ledgers that this call has read, by key. An item that changes a head also changes it here.
local heads = {}

-- Returns the values of these fields of the hash at `key`. The user may lack the permission for HMGET.
local function fields_of(key, ...)
  local found = run('HMGET', key, ...)
  if found.err then
    found = {}
    for i, field in ipairs({ ... }) do
      found[i] = call('HGET', key, field)
    end
  end
  return found
end

-- Returns the head of the ledger at `key`: its low-water mark, its retention in milliseconds, and whether this call has
-- extended the retention. Also returns the value of `field`, if there is one. A call reads each head once, because a
-- command costs much more than the rest of an item.
local function ledger_head(key, field)
  local head = heads[key]
  if head then
    return head, field and call('HGET', key, field)
  end
  local found = fields_of(key, 'w', 'l', field or 'w')
  -- The retention is 30 days by default.
  head = { found[1] or '0', found[2] or '2592000000', false }
  if not (is_number(head[1]) and is_number(head[2])) or #head[2] > 16 then
    refuse('wrongtype', 'the key ' .. key .. ' holds no ledger')
  end
  heads[key] = head
  return head, found[3]
end

-- Extends the retention of the ledger at `key`, whose head was read, once in a call. So the ledger of a group that no worker
-- uses any more expires.
local function written(key)
  local head = heads[key]
  if not head[3] then
    -- The reply is 0 if there is no such key yet. A later item of the call may create the ledger.
    head[3] = call('PEXPIRE', key, head[2]) == 1
  end
  return 'written'
end

-- Returns about `most` fields of the ledger, or about 256 KiB of their values, from `cursor` on, which is 0 for the first
-- part. The fields are in arrays in which each field is followed by its value. Also returns the cursor of the next part,
-- which is 0 at the end. A field that exists from the first part to the last is in at least one part, and may be in two. A
-- short hash, which a server stores packed, is returned whole.
local function page(ledger, cursor, most)
  local chunks, fields, bytes = {}, 0, 0
  repeat
    local reply = call('HSCAN', ledger, cursor, 'COUNT', 125)
    local chunk = reply[2]
    cursor = reply[1]
    chunks[#chunks + 1] = chunk
    fields = fields + #chunk / 2
    for i = 2, #chunk, 2 do
      bytes = bytes + #chunk[i]
    end
  until cursor == '0' or #chunks == 10 or fields >= most or bytes >= 262144
  return cursor, chunks
end

-- Returns the first page of the ledger as a reply, or a reply without records if `mode` is '='.
local function page_reply(ledger, mode)
  local mark, cursor, chunks = ledger_head(ledger)[1], '0', {}
  if mode ~= '=' then
    cursor, chunks = page(ledger, '0', 500)
  end
  return { 'ledger', cursor, mark, chunks }
end

