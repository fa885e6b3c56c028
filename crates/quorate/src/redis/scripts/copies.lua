-- Serves the requests on copies of led ledgers. Beside the fields of every ledger, a copy has r:! (header, as
-- 0:TERM:0:LEADER:MEMORY:MARK:FOUNDED:REMOVED), and for each assignment r:@KEY (register, as ID:0:MEMORY:STATE) and r:$KEY (end, as
-- ID:0:VALUE). An ID is SEQ:TERM.

-- The node's present memory, which its marker shows.
local present = match('\n' .. ARGV[2] .. '\n', '\nmemory=(' .. string.rep('[0-9a-f]', 16) .. ')\n') or string.rep('0', 16)

local headers = {}

local function no_copy(ledger, key)
  refuse('wrongtype', 'the record ' .. key .. ' of the key ' .. ledger)
end

-- Returns the header of the copy as it counts in the present memory: its term, leader and mark, which may be nil, its
-- founding, and the largest number of a write of this term that removed a record. A call reads each header once.
local function header_of(ledger)
  local header = headers[ledger]
  if header then
    return header
  end
  local _, stored = ledger_head(ledger, 'r:!')
  header = { founded = '0', removed = '0' }
  if stored then
    local term, leader, memory, mark, founded, removed =
      match(stored, '^0:(%d+):0:(%x+):(%x+):([%d-]+):(%d+):(%d+)$')
    if not term then
      no_copy(ledger, '!')
    end
    header.founded = founded
    if memory == present then
      header.term, header.leader = term, leader
      header.mark, header.removed = mark ~= '-' and mark or nil, removed
    end
  end
  headers[ledger] = header
  return header
end

local function store_header(ledger, header)
  local parts = { '0', header.term, '0', header.leader, present, header.mark or '-', header.founded, header.removed }
  call('HSET', ledger, 'r:!', table.concat(parts, ':'))
end

-- Returns the copy's header, and whether `leader`, of `term`, has sealed the copy. Refuses the item if that can not happen
-- any more.
local function header_under(ledger, term, leader)
  local header = header_of(ledger)
  local same = header.term == term and header.leader == leader
  if header.term and not same and not less(header.term, term) then
    refuse('sealed', header.term)
  end
  return header, same
end

-- Returns the copy's header if `leader`, of `term`, has sealed the copy in the memory `memory`. Otherwise refuses the item.
local function admitted(ledger, term, leader, memory)
  local header, same = header_under(ledger, term, leader)
  if not same or memory ~= present then
    refuse('notsealed')
  end
  return header
end

-- Reads the stamp of a record, as term and number, and its register: the assignment, its memory and its state. `record` and
-- `own` are the values of the fields r:KEY and r:@KEY. What does not exist is nil.
local function entry_of(ledger, key, record, own)
  if not record then
    return nil
  end
  local seq, term = match(record, '^(%d+):(%d+):')
  if not seq then
    no_copy(ledger, key)
  end
  if not own then
    return term, seq
  end
  local id, memory, state = match(own, '^(%d+:%d+):0:(%x+):([-osv])$')
  if not id then
    no_copy(ledger, key)
  end
  return term, seq, id, memory, state
end

-- Registers `state` for the assignment `id`, unless `other` came first.
local function register(ledger, header, key, id, state, other)
  local found = fields_of(ledger, 'r:' .. key, 'r:@' .. key)
  local _, _, stored, memory, first = entry_of(ledger, key, found[1], found[2])
  if not header.mark then
    refuse('incomplete')
  elseif stored ~= id or memory ~= present or first == '-' then
    refuse('nopart')
  elseif first == other then
    refuse('toolate')
  end
  if first ~= state then
    call('HSET', ledger, 'r:@' .. key, id .. ':0:' .. present .. ':' .. state)
  end
  return written(ledger)
end

-- Seals the copy for a leader, and returns the first page of its content, or the head of a later page.
-- KEYS  ledger
-- ARGV  term, leader, nothing for the first page or '=' for no records
define('a', true, true, 1, 3, function(k, a)
  local ledger, term, leader, mode = KEYS[k], ARGV[a], ARGV[a + 1], ARGV[a + 2]
  if mode == '=' then
    admitted(ledger, term, leader, present)
  else
    local header, same = header_under(ledger, term, leader)
    if not same then
      header.term, header.leader, header.removed = term, leader, '0'
      store_header(ledger, header)
    end
  end
  written(ledger)
  return page_reply(ledger, mode)
end)

-- Shows that the leader has sealed the copy in this memory.
-- KEYS  ledger
-- ARGV  term, leader, memory
define('b', true, true, 1, 3, function(k, a)
  admitted(KEYS[k], ARGV[a], ARGV[a + 1], ARGV[a + 2])
  return written(KEYS[k])
end)

-- Reads the writes of a request: of each, the length of the key, the number, the assignment or nothing, the length of the
-- value or '-', the key and the value. Returns the writes, and the fields of their records and registers.
local function writes_of(text)
  local writes, fields, at = {}, {}, 1
  while at <= #text do
    local length, seq, id, size, from = match(text, '^(%d+) (%d+) (%S*) (%S+) ()', at)
    local value_at = from + length
    local key = sub(text, from, value_at - 1)
    at = value_at + (tonumber(size) or 0)
    writes[#writes + 1] = { key = key, seq = seq, id = id, value = size ~= '-' and sub(text, value_at, at - 1) or nil }
    fields[#fields + 1], fields[#fields + 2] = 'r:' .. key, 'r:@' .. key
  end
  return writes, fields
end

-- Stores or removes records, but those of which a later write of this term stands.
-- KEYS  ledger
-- ARGV  term, leader, memory, the writes
define('c', true, true, 1, 4, function(k, a)
  local ledger, term = KEYS[k], ARGV[a]
  local header = admitted(ledger, term, ARGV[a + 1], ARGV[a + 2])
  local writes, fields = writes_of(ARGV[a + 3])
  local found, set, gone = fields_of(ledger, unpack(fields)), {}, {}
  local removed, late = header.removed, false
  for i, write in ipairs(writes) do
    local record, own = fields[2 * i - 1], fields[2 * i]
    local stored_term, stored_seq, before = entry_of(ledger, write.key, found[2 * i - 1], found[2 * i])
    if stored_term == term and not less(stored_seq, write.seq) then
      -- A later write stands.
    elseif not stored_term and less(write.seq, header.removed) then
      -- A later write may have removed the record.
      late = true
    elseif not write.value then
      gone[#gone + 1], gone[#gone + 2], gone[#gone + 3] = record, own, 'r:$' .. write.key
      if less(removed, write.seq) then
        removed = write.seq
      end
    else
      set[#set + 1], set[#set + 2] = record, write.seq .. ':' .. term .. ':0:' .. write.value
      if write.id == '' and before then
        gone[#gone + 1], gone[#gone + 2] = own, 'r:$' .. write.key
      elseif write.id ~= '' and write.id ~= before then
        -- The node takes part only if the leader which made the assignment had marked the node before.
        local takes_part = header.mark == term and match(write.id, ':(%d+)$') == term
        set[#set + 1], set[#set + 2] = own, write.id .. ':0:' .. present .. ':' .. (takes_part and 'o' or '-')
        gone[#gone + 1] = 'r:$' .. write.key
      end
    end
  end
  -- A server that is out of memory refuses HSET, and then changes nothing.
  if #set > 0 then
    call('HSET', ledger, unpack(set))
  end
  if #gone > 0 then
    call('HDEL', ledger, unpack(gone))
  end
  if removed ~= header.removed then
    header.removed = removed
    store_header(ledger, header)
  end
  if late then
    refuse('toolate')
  end
  return written(ledger)
end)

-- Marks the copy as equal to that of the leader.
-- KEYS  ledger
-- ARGV  term, leader, memory, the term of the founding
define('d', true, true, 1, 4, function(k, a)
  local ledger = KEYS[k]
  local header = admitted(ledger, ARGV[a], ARGV[a + 1], ARGV[a + 2])
  if header.mark ~= ARGV[a] or header.founded ~= ARGV[a + 3] then
    header.mark, header.founded = ARGV[a], ARGV[a + 3]
    store_header(ledger, header)
  end
  return written(ledger)
end)

-- Registers that an assignment must not start.
-- KEYS  ledger
-- ARGV  term, leader, memory, key, assignment
define('e', true, true, 1, 5, function(k, a)
  local header = admitted(KEYS[k], ARGV[a], ARGV[a + 1], ARGV[a + 2])
  return register(KEYS[k], header, ARGV[a + 3], ARGV[a + 4], 'v', 's')
end)

-- Registers that an assignment starts.
-- KEYS  ledger
-- ARGV  key, assignment
define('f', true, true, 1, 2, function(k, a)
  return register(KEYS[k], header_of(KEYS[k]), ARGV[a], ARGV[a + 1], 's', 'v')
end)

-- Stores the end of an assignment.
-- KEYS  ledger
-- ARGV  key, assignment, value
define('g', true, true, 1, 3, function(k, a)
  local ledger, key, id = KEYS[k], ARGV[a], ARGV[a + 1]
  local header = header_of(ledger)
  local found = fields_of(ledger, 'r:' .. key, 'r:@' .. key)
  local _, _, stored = entry_of(ledger, key, found[1], found[2])
  if not header.mark then
    refuse('incomplete')
  elseif stored ~= id then
    refuse('nopart')
  end
  call('HSET', ledger, 'r:$' .. key, id .. ':0:' .. ARGV[a + 2])
  return written(ledger)
end)

