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
            scan.joined(keys.ledger(ledger))
                .arg(cursor)
                .arg("COUNT")
                .number(count)
                .finish(&mut encoded.bytes);
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
        Request::Mark { .. } | Request::Stamp { .. } => Script::Node,
        Request::Write { .. } | Request::Prune { .. } | Request::Read { .. } | Request::Keep { .. } => {
            Script::Ledgers
        }
        Request::SealCopy { .. } | Request::Lead { .. } | Request::Work { .. } => Script::Copies,
        Request::Complete { .. } | Request::Count { .. } | Request::ResetAttempts { .. } => Script::Claims,
        Request::Acquire { resource, .. }
        | Request::Raise { resource, .. }
        | Request::Extend { resource, .. }
        | Request::Release { resource, .. }
        | Request::Inspect { resource }
            if resource.is_claim() =>
        {
            Script::Claims
        }
        Request::Acquire { .. }
        | Request::Raise { .. }
        | Request::Extend { .. }
        | Request::Release { .. } => Script::Locks,
        Request::Inspect { .. }
        | Request::Share { .. }
        | Request::ExtendShare { .. }
        | Request::ReleaseShare { .. }
        | Request::Downgrade { .. }
        | Request::Queue { .. }
        | Request::LeaveQueue { .. }
        | Request::Reserve { .. } => Script::Waiting,
    }
}

fn add_lock(call: &mut Call, request: &Request, keys: &Keys) {
    match request {
        Request::Acquire { resource, owner, ttl, propose, tolerance, keep, ticket } => {
            call.queue(keys.queue(resource));
            let shared = [millis(*ttl), millis(*keep), micros(*tolerance), 0];
            let args = call.sharing('a', shared, [keys.lock(resource), keys.fence(resource)]);
            args.arg(owner.as_str());
            match ticket {
                None => args.number(propose.get()),
                ticket => {
                    args.arg(format!("{}{}", propose.get(), optional(ticket.as_ref().map(Owner::as_str))))
                }
            };
        }
        Request::Release { resource, owner } => {
            call.item('b', [keys.lock(resource)]).arg(owner.as_str());
        }
        Request::Extend { resource, owner, ttl, token, keep } => {
            call.queue(keys.queue(resource));
            let args = call.sharing(
                'c',
                [millis(*ttl), millis(*keep), 0, 0],
                [keys.lock(resource), keys.fence(resource)],
            );
            args.arg(owner.as_str()).number(token.get());
        }
        Request::Raise { resource, owner, to, keep } => {
            let on = [keys.lock(resource), keys.fence(resource)];
            call.sharing('d', [0, millis(*keep), 0, 0], on).arg(owner.as_str()).number(to.get());
        }
        _ => {}
    }
}

fn add_waiting(call: &mut Call, request: &Request, keys: &Keys) {
    match request {
        Request::Share { resource, owner, ttl, ticket } => {
            let on = [keys.lock(resource), keys.readers(resource), keys.queue(resource)];
            let args = call.item('a', on).arg(owner.as_str()).number(millis(*ttl));
            args.arg(optional(ticket.as_ref().map(Owner::as_str)));
        }
        Request::ExtendShare { resource, owner, ttl } => {
            let on = [keys.lock(resource), keys.readers(resource), keys.queue(resource)];
            call.item('b', on).arg(owner.as_str()).number(millis(*ttl));
        }
        Request::ReleaseShare { resource, owner } => {
            call.item('c', [keys.lock(resource), keys.readers(resource)]).arg(owner.as_str());
        }
        Request::Downgrade { resource, owner, token, reader, ttl } => {
            let on = [keys.lock(resource), keys.readers(resource), keys.fence(resource)];
            let args = call.item('d', on).arg(owner.as_str()).number(token.get());
            args.arg(reader.as_str()).number(millis(*ttl));
        }
        Request::Queue { resource, ticket, at, now, tolerance, ttl, exclusive } => {
            let args = call.item('e', [keys.queue(resource)]).arg(ticket.as_str()).number(*at).number(*now);
            args.number(micros(*tolerance)).number(millis(*ttl)).arg(if *exclusive { "w" } else { "r" });
        }
        Request::LeaveQueue { resource, ticket } => {
            call.item('f', [keys.queue(resource)]).arg(ticket.as_str());
        }
        Request::Reserve { resource, owner, successor, ttl } => {
            let args = call.item('g', [keys.lock(resource)]).arg(owner.as_str());
            args.arg(successor.as_str()).number(millis(*ttl));
        }
        Request::Inspect { resource } => {
            call.item('h', [keys.lock(resource), keys.fence(resource)]);
        }
        _ => {}
    }
}

/// Adds a request on a claim. All data of a claim is under one key.
fn add_claim(call: &mut Call, request: &Request, keys: &Keys) {
    match request {
        Request::Acquire { resource, owner, ttl, propose, tolerance, keep, .. } => {
            let shared = [millis(*ttl), propose.get(), micros(*tolerance), millis(*keep)];
            call.sharing('a', shared, [keys.lock(resource)]).arg(owner.as_str());
        }
        Request::Release { resource, owner } => {
            call.item('b', [keys.lock(resource)]).arg(owner.as_str());
        }
        Request::Extend { resource, owner, ttl, token, keep } => {
            let args = call.sharing('c', [millis(*ttl), millis(*keep), 0, 0], [keys.lock(resource)]);
            args.arg(owner.as_str()).number(token.get());
        }
        Request::Raise { resource, owner, to, keep } => {
            let args = call.sharing('d', [millis(*keep), 0, 0, 0], [keys.lock(resource)]);
            args.arg(owner.as_str()).number(to.get());
        }
        Request::Count { resource, owner, attempts, payload, withdraw, keep } => {
            let args = call.sharing('e', [millis(*keep), 0, 0, 0], [keys.lock(resource)]);
            args.arg(owner.as_str()).number(*attempts).arg(payload.as_deref().unwrap_or_default());
            args.arg(if *withdraw { "-" } else { "+" });
        }
        Request::Complete { resource, owner, record, retention } => {
            let args = call.sharing('f', [millis(*retention), 0, 0, 0], [keys.lock(resource)]);
            args.arg(owner.as_str()).arg(done_text(record));
        }
        Request::Inspect { resource } => {
            call.item('g', [keys.lock(resource)]);
        }
        Request::ResetAttempts { resource, keep } => {
            call.item('h', [keys.lock(resource)]).number(millis(*keep));
        }
        _ => {}
    }
}

fn add_ledger(call: &mut Call, request: &Request, keys: &Keys) {
    match request {
        Request::Read { ledger, after, key } => {
            let args = call.item('a', [keys.ledger(ledger)]).arg(page_mode(after.as_ref()));
            args.arg(optional(key.as_deref()));
        }
        Request::Write { ledger, key, seen, record } => {
            let args = call.item('b', [keys.ledger(ledger)]).arg(key);
            args.arg(seen.as_ref().map(record_text).unwrap_or_default());
            args.arg(record_text(record)).number(record.at);
        }
        Request::Prune { ledger, below, after } => {
            let args = call.item('c', [keys.ledger(ledger)]).number(*below);
            args.arg(after.as_ref().map_or("0", Cursor::as_str));
        }
        Request::Keep { ledger, life } => {
            call.item('d', [keys.ledger(ledger)]).number(millis(*life));
        }
        _ => {}
    }
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
    match request {
        Request::SealCopy { ledger, seal, after } => {
            let args = call.item('a', [keys.ledger(ledger)]);
            add_seal(args, *seal).arg(page_mode(after.as_ref()));
        }
        Request::Lead { ledger, seal, memory, act } => {
            let letter = match act {
                LeadAct::Confirm => 'b',
                LeadAct::Put { .. } => 'c',
                LeadAct::Mark { .. } => 'd',
                LeadAct::Void { .. } => 'e',
            };
            let args = add_seal(call.item(letter, [keys.ledger(ledger)]), *seal).arg(memory.to_string());
            match act {
                LeadAct::Confirm => args,
                LeadAct::Put { writes } => args.arg(writes_text(writes)),
                LeadAct::Mark { founded } => args.number(founded.get()),
                LeadAct::Void { key, id: of } => args.arg(key).arg(id(of)),
            };
        }
        Request::Work { ledger, key, id: of, act } => {
            match act {
                WorkAct::Start => call.item('f', [keys.ledger(ledger)]).arg(key).arg(id(of)),
                WorkAct::End { value } => {
                    call.item('g', [keys.ledger(ledger)]).arg(key).arg(id(of)).arg(value)
                }
            };
        }
        _ => {}
    }
}

/// Adds a seal to the arguments of an item.
fn add_seal(args: &mut Command, seal: Seal) -> &mut Command {
    args.number(seal.term.get()).arg(format!("{:016x}", seal.leader))
}

fn add_node(call: &mut Call, request: &Request, keys: &Keys) {
    match request {
        Request::Mark { expect, marker } => {
            let args = call.item('a', [keys.marker(), keys.never_stored()]);
            args.number(u8::from(expect.is_some()));
            args.arg(expect.as_deref().unwrap_or_default()).arg(marker);
        }
        Request::Stamp { own, known, step } => {
            let args = call.item('b', [keys.stamps()]).arg(match step {
                StampStep::Tell => "tell",
                StampStep::Advance => "advance",
                StampStep::Raise => "raise",
            });
            args.arg(own);
            for (name, count) in known.iter() {
                args.arg(name).number(*count);
            }
        }
        // A request that does not apply to the kind of its resource.
        _ => {
            call.item('c', []);
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

/// Returns the argument for a text that may be missing. The argument begins with a prefix, so that no text looks like a
/// missing one.
fn optional(text: Option<&str>) -> String {
    text.map(|text| format!("={text}")).unwrap_or_default()
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
