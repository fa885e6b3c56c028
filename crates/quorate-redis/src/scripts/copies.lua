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

-- Returns the stamp of the record under `key`, as term and number, and its register: the assignment, its memory and its
-- state. What does not exist is nil.
local function entry_of(ledger, key)
  local found = fields_of(ledger, 'r:' .. key, 'r:@' .. key)
  if not found[1] then
    return nil
  end
  local seq, term = match(found[1], '^(%d+):(%d+):')
  if not seq then
    no_copy(ledger, key)
  end
  if not found[2] then
    return term, seq
  end
  local id, memory, state = match(found[2], '^(%d+:%d+):0:(%x+):([-osv])$')
  if not id then
    no_copy(ledger, key)
  end
  return term, seq, id, memory, state
end

-- Registers `state` for the assignment `id`, unless `other` came first.
local function register(ledger, header, key, id, state, other)
  local _, _, stored, memory, first = entry_of(ledger, key)
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

-- Stores or removes a record, unless a later write of this term stands.
-- KEYS  ledger
-- ARGV  term, leader, memory, key, number, assignment or nothing, '=' and the value or nothing
define('c', true, true, 1, 7, function(k, a)
  local ledger, term, key, seq, id = KEYS[k], ARGV[a], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5]
  local header = admitted(ledger, term, ARGV[a + 1], ARGV[a + 2])
  local stored_term, stored_seq, before = entry_of(ledger, key)
  if stored_term == term and not less(stored_seq, seq) then
    return written(ledger)
  end
  if not stored_term and less(seq, header.removed) then
    -- A later write may have removed the record.
    refuse('toolate')
  end
  local record, register_field, end_field = 'r:' .. key, 'r:@' .. key, 'r:$' .. key
  if ARGV[a + 6] == '' then
    call('HDEL', ledger, record, register_field, end_field)
    if less(header.removed, seq) then
      header.removed = seq
      store_header(ledger, header)
    end
    return written(ledger)
  end
  call('HSET', ledger, record, seq .. ':' .. term .. ':0:' .. sub(ARGV[a + 6], 2))
  if id == '' then
    if before then
      call('HDEL', ledger, register_field, end_field)
    end
  elseif id ~= before then
    -- The node takes part only if the leader which made the assignment had marked the node before.
    local takes_part = header.mark == term and match(id, ':(%d+)$') == term
    call('HSET', ledger, register_field, id .. ':0:' .. present .. ':' .. (takes_part and 'o' or '-'))
    call('HDEL', ledger, end_field)
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
  local _, _, stored = entry_of(ledger, key)
  if not header.mark then
    refuse('incomplete')
  elseif stored ~= id then
    refuse('nopart')
  end
  call('HSET', ledger, 'r:$' .. key, id .. ':0:' .. ARGV[a + 2])
  return written(ledger)
end)

