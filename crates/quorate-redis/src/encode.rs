use crate::{
    call::Call,
    command::{Command, cmd},
    keys::Keys,
    ledger_page,
    reply::ExpectedReply,
    scripts::{Loaded, Script},
};
use quorate::node::{
    Batch, Cursor, DoneRecord, Owner, Record, Request, StampStep,
    copy::{AssignmentId, LeadAct, Put, Seal, WorkAct},
};
use std::time::Duration;

/// The maximum work of one script call, in requests on a lock. The work is limited, because a server serves no other client
/// while a script runs.
const WORK_A_CALL: usize = 64;

/// The work of a page of a ledger.
const WORK_OF_PAGE: usize = 16;

/// The longest time to live, in milliseconds. The server adds it to its clock, and the sum must not overflow.
const MS_MAX: u128 = 1 << 52;

/// A batch as bytes, with the expected reply to each command. The parser of the replies needs these.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// The bytes to send.
    pub(crate) bytes: Vec<u8>,
    /// The expected reply to each command, in order. Each command has one reply.
    pub(crate) expected: Vec<ExpectedReply>,
}

/// Encodes a batch as script calls. Consecutive requests of one family of scripts share a call. A page of a ledger after the
/// first one is an HSCAN and a script call. An empty batch is encoded as TIME.
pub(crate) fn encode(batch: &Batch, keys: &Keys, scripts: &Loaded) -> Encoded {
    // This estimate of the batch's size avoids reallocations. An acquire takes slightly more than 256 bytes.
    let room = 256 * (batch.requests.len() + 1);
    let mut encoded = Encoded { bytes: Vec::with_capacity(room), expected: Vec::new() };
    let (mut call, mut script, mut work) = (Call::with_capacity(room), Script::Node, 0);
    let finish = |call: &mut Call, script: Script, encoded: &mut Encoded| {
        if call.items() > 0 {
            encoded.expected.push(ExpectedReply::Items(call.items()));
            call.finish(scripts.name(script), keys, batch, &mut encoded.bytes);
        }
    };
    for request in &batch.requests {
        let added = work_of(request);
        if script != script_of(request) || work + added > WORK_A_CALL {
            finish(&mut call, script, &mut encoded);
            (script, work) = (script_of(request), 0);
        }
        work += added;
        if let Some((ledger, after)) = later_page(request) {
            let (cursor, count) = ledger_page::position(after);
            let mut scan = cmd("HSCAN");
            scan.arg(keys.ledger(ledger)).arg(cursor).arg("COUNT").number(count).finish(&mut encoded.bytes);
            encoded.expected.push(ExpectedReply::Page);
        }
        match script {
            Script::Locks => add_lock(&mut call, request, keys),
            Script::Waiting => add_waiting(&mut call, request, keys),
            Script::Claims => add_claim(&mut call, request, keys),
            Script::Ledgers => add_ledger(&mut call, request, keys),
            Script::Copies => add_copy(&mut call, request, keys),
            Script::Node => add_node(&mut call, request, keys),
        }
    }
    finish(&mut call, script, &mut encoded);
    if encoded.expected.is_empty() {
        cmd("TIME").finish(&mut encoded.bytes);
        encoded.expected.push(ExpectedReply::Items(0));
    }
    encoded
}

/// Returns the work of a request. A page of a ledger is as much work as many locks.
fn work_of(request: &Request) -> usize {
    match request {
        // The page is read by a command of its own, directly before the call.
        _ if later_page(request).is_some() => WORK_A_CALL,
        // The arguments of a stamp continue to the end of the call. The scripts check the marker once in a call.
        Request::Stamp { .. } | Request::Mark { .. } => WORK_A_CALL,
        Request::Read { key: Some(_), .. } => 1,
        Request::SealCopy { .. } | Request::Read { .. } | Request::Prune { .. } => WORK_OF_PAGE,
        _ => 1,
    }
}

/// Returns the ledger and the position of a request for a page after the first one. Such a page is read with HSCAN, and
/// not by a script, because records that pass through Lua cost the server more. The script that follows returns no
/// records. If it accepts a seal, two things held when the page was read: no later leader had sealed the copy, and the
/// node had kept its memory. A read without a seal has no such check.
fn later_page(request: &Request) -> Option<(&str, &Cursor)> {
    match request {
        Request::SealCopy { ledger, after, .. } | Request::Read { ledger, after, key: None } => {
            Some((ledger, after.as_ref()?))
        }
        _ => None,
    }
}

/// Returns the family of scripts that serves the request.
fn script_of(request: &Request) -> Script {
    match request {
        _ if request.is_invalid() => Script::Node,
        Request::Acquire { resource, .. }
        | Request::Raise { resource, .. }
        | Request::Extend { resource, .. }
        | Request::Release { resource, .. } => {
            if resource.is_claim() {
                Script::Claims
            } else {
                Script::Locks
            }
        }
        Request::Inspect { resource } => {
            if resource.is_claim() {
                Script::Claims
            } else {
                Script::Waiting
            }
        }
        Request::Share { .. }
        | Request::ExtendShare { .. }
        | Request::ReleaseShare { .. }
        | Request::Downgrade { .. }
        | Request::Queue { .. }
        | Request::LeaveQueue { .. }
        | Request::Reserve { .. } => Script::Waiting,
        Request::Complete { .. } | Request::Count { .. } | Request::ResetAttempts { .. } => Script::Claims,
        Request::Write { .. } | Request::Prune { .. } | Request::Read { .. } | Request::Keep { .. } => {
            Script::Ledgers
        }
        Request::SealCopy { .. } | Request::Lead { .. } | Request::Work { .. } => Script::Copies,
        Request::Mark { .. } | Request::Stamp { .. } => Script::Node,
    }
}

fn add_lock(call: &mut Call, request: &Request, keys: &Keys) {
    match request {
        Request::Acquire { resource, owner, ttl, propose, tolerance, keep, ticket } => {
            call.shared('a', [millis(*ttl), millis(*keep), micros(*tolerance), 0]);
            call.keys.joined(keys.lock(resource)).joined(keys.fence(resource));
            call.queues.joined(keys.queue(resource));
            call.args.arg(owner.as_str());
            match ticket {
                None => call.args.number(propose.get()),
                ticket => call.args.arg(format!("{}{}", propose.get(), ticket_text(ticket.as_ref()))),
            };
        }
        Request::Release { resource, owner } => {
            call.kind('b').keys.joined(keys.lock(resource));
            call.args.arg(owner.as_str());
        }
        Request::Extend { resource, owner, ttl, token, keep } => {
            call.shared('c', [millis(*ttl), millis(*keep), 0, 0]);
            call.keys.joined(keys.lock(resource)).joined(keys.fence(resource));
            call.queues.joined(keys.queue(resource));
            call.args.arg(owner.as_str()).number(token.get());
        }
        Request::Raise { resource, owner, to, keep } => {
            call.shared('d', [0, millis(*keep), 0, 0]);
            call.keys.joined(keys.lock(resource)).joined(keys.fence(resource));
            call.args.arg(owner.as_str()).number(to.get());
        }
        _ => {}
    }
}

fn add_waiting(call: &mut Call, request: &Request, keys: &Keys) {
    match request {
        Request::Share { resource, owner, ttl, ticket } => {
            call.kind('a')
                .keys
                .joined(keys.lock(resource))
                .joined(keys.readers(resource))
                .joined(keys.queue(resource));
            call.args.arg(owner.as_str()).number(millis(*ttl)).arg(ticket_text(ticket.as_ref()));
        }
        Request::ExtendShare { resource, owner, ttl } => {
            call.kind('b')
                .keys
                .joined(keys.lock(resource))
                .joined(keys.readers(resource))
                .joined(keys.queue(resource));
            call.args.arg(owner.as_str()).number(millis(*ttl));
        }
        Request::ReleaseShare { resource, owner } => {
            call.kind('c').keys.joined(keys.lock(resource)).joined(keys.readers(resource));
            call.args.arg(owner.as_str());
        }
        Request::Downgrade { resource, owner, token, reader, ttl } => {
            call.kind('d')
                .keys
                .joined(keys.lock(resource))
                .joined(keys.readers(resource))
                .joined(keys.fence(resource));
            call.args.arg(owner.as_str()).number(token.get()).arg(reader.as_str()).number(millis(*ttl));
        }
        Request::Queue { resource, ticket, at, now, tolerance, ttl, exclusive } => {
            call.kind('e').keys.joined(keys.queue(resource));
            call.args.arg(ticket.as_str()).number(*at).number(*now).number(micros(*tolerance));
            call.args.number(millis(*ttl)).arg(if *exclusive { "w" } else { "r" });
        }
        Request::LeaveQueue { resource, ticket } => {
            call.kind('f').keys.joined(keys.queue(resource));
            call.args.arg(ticket.as_str());
        }
        Request::Reserve { resource, owner, successor, ttl } => {
            call.kind('g').keys.joined(keys.lock(resource));
            call.args.arg(owner.as_str()).arg(successor.as_str()).number(millis(*ttl));
        }
        Request::Inspect { resource } => {
            call.kind('h').keys.joined(keys.lock(resource)).joined(keys.fence(resource));
        }
        _ => {}
    }
}

/// Adds a request on a claim. All data of a claim is under one key.
fn add_claim(call: &mut Call, request: &Request, keys: &Keys) {
    let resource = match request {
        Request::Acquire { resource, owner, ttl, propose, tolerance, keep, .. } => {
            call.shared('a', [millis(*ttl), propose.get(), micros(*tolerance), millis(*keep)]);
            call.args.arg(owner.as_str());
            resource
        }
        Request::Release { resource, owner } => {
            call.kind('b').args.arg(owner.as_str());
            resource
        }
        Request::Extend { resource, owner, ttl, token, keep } => {
            call.shared('c', [millis(*ttl), millis(*keep), 0, 0]);
            call.args.arg(owner.as_str()).number(token.get());
            resource
        }
        Request::Raise { resource, owner, to, keep } => {
            call.shared('d', [millis(*keep), 0, 0, 0]);
            call.args.arg(owner.as_str()).number(to.get());
            resource
        }
        Request::Count { resource, owner, attempts, payload, withdraw, keep } => {
            call.shared('e', [millis(*keep), 0, 0, 0]);
            call.args.arg(owner.as_str()).number(*attempts).arg(payload.as_deref().unwrap_or_default());
            call.args.arg(if *withdraw { "-" } else { "+" });
            resource
        }
        Request::Complete { resource, owner, record, retention } => {
            call.shared('f', [millis(*retention), 0, 0, 0]);
            call.args.arg(owner.as_str()).arg(done_text(record));
            resource
        }
        Request::Inspect { resource } => {
            call.kind('g');
            resource
        }
        Request::ResetAttempts { resource, keep } => {
            call.kind('h').args.number(millis(*keep));
            resource
        }
        _ => return,
    };
    call.keys.joined(keys.lock(resource));
}

fn add_ledger(call: &mut Call, request: &Request, keys: &Keys) {
    let ledger = match request {
        Request::Read { ledger, after, key } => {
            let key = key.as_ref().map(|key| format!("={key}")).unwrap_or_default();
            call.kind('a').args.arg(page_mode(after.as_ref())).arg(key);
            ledger
        }
        Request::Write { ledger, key, seen, record } => {
            let seen = seen.as_ref().map(record_text).unwrap_or_default();
            call.kind('b').args.arg(key).arg(seen).arg(record_text(record)).number(record.at);
            ledger
        }
        Request::Prune { ledger, below, after } => {
            let after = after.as_ref().map(Cursor::as_str).unwrap_or_default();
            call.kind('c').args.number(*below).arg(after);
            ledger
        }
        Request::Keep { ledger, life } => {
            call.kind('d').args.number(millis(*life));
            ledger
        }
        _ => return,
    };
    call.keys.arg(keys.ledger(ledger));
}

/// Returns writes as one text: of each, the length of the key, the number, the assignment or nothing, the length of the
/// value or `-`, the key and the value. One text for all costs a script less than arguments for each.
fn writes_text(writes: &[Put]) -> String {
    let mut text = String::new();
    for Put { key, seq, assignment, value } in writes {
        let id = assignment.map(|id| format!("{}:{}", id.seq, id.term)).unwrap_or_default();
        let (length, value) = match value {
            Some(value) => (value.len().to_string(), &**value),
            None => ("-".to_owned(), ""),
        };
        text.extend([&key.len().to_string(), " ", &seq.to_string(), " ", &id, " ", &length, " ", key, value]);
    }
    text
}

fn add_copy(call: &mut Call, request: &Request, keys: &Keys) {
    let id = |id: &AssignmentId| format!("{}:{}", id.seq, id.term);
    let ledger = match request {
        Request::SealCopy { ledger, seal, after } => {
            sealed(call.kind('a'), *seal).arg(page_mode(after.as_ref()));
            ledger
        }
        Request::Lead { ledger, seal, memory, act } => {
            let letter = match act {
                LeadAct::Confirm => 'b',
                LeadAct::Put { .. } => 'c',
                LeadAct::Mark { .. } => 'd',
                LeadAct::Void { .. } => 'e',
            };
            let args = sealed(call.kind(letter), *seal).arg(memory.to_string());
            match act {
                LeadAct::Confirm => {}
                LeadAct::Put { writes } => {
                    args.arg(writes_text(writes));
                }
                LeadAct::Mark { founded } => {
                    args.number(founded.get());
                }
                LeadAct::Void { key, id: of } => {
                    args.arg(key).arg(id(of));
                }
            }
            ledger
        }
        Request::Work { ledger, key, id: of, act: WorkAct::Start } => {
            call.kind('f').args.arg(key).arg(id(of));
            ledger
        }
        Request::Work { ledger, key, id: of, act: WorkAct::End { value } } => {
            call.kind('g').args.arg(key).arg(id(of)).arg(value);
            ledger
        }
        _ => return,
    };
    call.keys.arg(keys.ledger(ledger));
}

/// Adds a seal to the arguments of an item.
fn sealed(call: &mut Call, seal: Seal) -> &mut Command {
    call.args.number(seal.term.get()).arg(format!("{:016x}", seal.leader))
}

fn add_node(call: &mut Call, request: &Request, keys: &Keys) {
    match request {
        Request::Mark { expect, marker } => {
            call.kind('a').keys.arg(keys.marker()).arg(keys.never_stored());
            call.args
                .number(u8::from(expect.is_some()))
                .arg(expect.as_deref().unwrap_or_default())
                .arg(marker);
        }
        Request::Stamp { own, known, step } => {
            call.kind('b').keys.arg(keys.stamps());
            call.args.arg(match step {
                StampStep::Tell => "tell",
                StampStep::Advance => "advance",
                StampStep::Raise => "raise",
            });
            call.args.arg(own);
            for (name, count) in known.iter() {
                call.args.arg(name).number(*count);
            }
        }
        // A request that does not apply to the kind of its resource.
        _ => {
            call.kind('c');
        }
    }
}

/// Returns the text of a record that the scripts compare. Equal records have equal texts.
pub(crate) fn record_text(record: &Record) -> String {
    format!("{}:{}:{}:{}", record.at, record.term, u8::from(record.last), record.value)
}

/// Returns the stored form of a done record.
pub(crate) fn done_text(done: &DoneRecord) -> String {
    let DoneRecord { token, at, result, payload, dead_lettered } = done;
    let dead_lettered = dead_lettered.map(|attempts| attempts.to_string()).unwrap_or_default();
    format!("d:{token}:{at}:{}:{dead_lettered}:{result}", payload.as_deref().unwrap_or_default())
}

/// Returns the argument for a ticket. The argument begins with a prefix, so that no ticket looks like a
/// missing ticket.
fn ticket_text(ticket: Option<&Owner>) -> String {
    ticket.map(|ticket| format!("={}", ticket.as_str())).unwrap_or_default()
}

/// Returns the argument by which a script returns the first page of a ledger, or no records.
fn page_mode(after: Option<&Cursor>) -> &'static str {
    if after.is_some() { "=" } else { "" }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns a time to live in milliseconds. The time is rounded up, so that a key never expires before its
/// lease. The result is at least 1, because a server refuses zero.
fn millis(time: Duration) -> u64 {
    let up = time.as_nanos().div_ceil(1_000_000).clamp(1, MS_MAX);
    u64::try_from(up).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
