use crate::node::{
    Batch, Cursor, DoneRecord, Owner, Record, Request, Resource, StampStep,
    copy::{AssignmentId, LeadAct, Put, Seal, WorkAct},
};
use crate::redis::{
    call::Call,
    command::{Command, cmd, micros, millis},
    encoded::{Encoded, ExpectedReply},
    groups::{Group, Groups, WORK_A_CALL, grouped},
    keys::Keys,
    ledger_page,
    plain_acquires::PlainAcquires,
    scripts::{Loaded, Script},
    transaction,
};

/// The work of a page of a ledger.
const WORK_OF_PAGE: usize = 16;

/// Encodes a batch as calls of scripts, and of plain commands for the acquires that `plain` permits. Consecutive
/// requests on locks and claims are grouped. Other consecutive requests of one family of scripts share a call. A page of a
/// ledger after the first one is an HSCAN and a script call. An empty batch is encoded as TIME.
pub(crate) fn encode(batch: &Batch, keys: &Keys, scripts: &Loaded, plain: &PlainAcquires) -> Encoded {
    // This estimate of the batch's size avoids reallocations. An acquire takes slightly more than 256 bytes.
    let room = 256 * (batch.requests.len() + 1);
    let encoded = Encoded { bytes: Vec::with_capacity(room), ..Encoded::default() };
    let (call, script, groups) = (Call::with_capacity(room), Script::Node, Groups::default());
    let mut encoder = Encoder { batch, keys, scripts, encoded, call, script, work: 0, groups };
    for (position, request) in batch.requests.iter().enumerate() {
        match grouped(request) {
            Some(resource) => encoder.add_to_group(resource, position, request, plain),
            None => encoder.add(position, request),
        }
    }
    encoder.finish()
}

struct Encoder<'a> {
    batch: &'a Batch,
    keys: &'a Keys,
    scripts: &'a Loaded,
    encoded: Encoded,
    /// The call of `script` that is being built, and its work.
    call: Call,
    script: Script,
    work: usize,
    /// The requests on locks and claims whose calls follow `call`.
    groups: Groups<'a>,
}

impl<'a> Encoder<'a> {
    fn add_to_group(
        &mut self,
        resource: &Resource,
        position: usize,
        request: &'a Request,
        plain: &PlainAcquires,
    ) {
        let count = plain.floor(request, self.batch.not_after);
        let group = match request {
            _ if count.is_some() => Group::Commands,
            _ if resource.is_claim() => Group::Claims,
            Request::Release { .. } => Group::Release,
            _ => Group::Locks,
        };
        if !self.groups.takes(resource, group) {
            self.finish_groups();
        }
        self.encoded.counts.extend(count);
        self.groups.add(group, position, request);
    }

    fn add(&mut self, position: usize, request: &'a Request) {
        self.finish_groups();
        let (script, added) = (script_of(request), work_of(request));
        if script != self.script || self.work + added > WORK_A_CALL {
            self.finish_call();
            self.script = script;
        }
        self.work += added;
        if let Some((ledger, after)) = later_page(request) {
            let (cursor, count) = ledger_page::position(after);
            let mut scan = cmd("HSCAN");
            scan.joined(self.keys.ledger(ledger)).arg(cursor).arg("COUNT").number(count);
            scan.finish(&mut self.encoded.bytes);
            self.encoded.expected.push(ExpectedReply::Page);
        }
        self.encoded.order.push(position);
        let (call, keys) = (&mut self.call, self.keys);
        match script {
            Script::Release | Script::Locks | Script::Claims => {}
            Script::Waiting => add_waiting(call, request, keys),
            Script::Ledgers => add_ledger(call, request, keys),
            Script::Copies => add_copy(call, request, keys),
            Script::Node => add_node(call, request, keys),
        }
    }

    /// Ends the call that is being built.
    fn finish_call(&mut self) {
        if self.call.items() > 0 {
            self.encoded.expected.push(ExpectedReply::Items(self.call.items()));
            self.call.finish(self.scripts.name(self.script), self.keys, self.batch, &mut self.encoded.bytes);
        }
        self.work = 0;
    }

    /// Encodes the groups of requests on locks and claims.
    fn finish_groups(&mut self) {
        if self.groups.is_empty() {
            return;
        }
        let [releases, acquires, locks, claims] =
            [Group::Release, Group::Commands, Group::Locks, Group::Claims]
                .map(|group| self.groups.take(group));
        self.finish_call();
        let encoded = &mut self.encoded;
        let all = releases.iter().chain(&acquires).chain(&locks).chain(&claims);
        encoded.order.extend(all.map(|(position, _)| *position));
        if !releases.is_empty() {
            encoded.expected.push(ExpectedReply::Items(releases.len()));
            let name = self.scripts.name(Script::Release);
            add_releases(releases.iter().map(|(_, request)| *request), name, self.keys, &mut encoded.bytes);
        }
        if !acquires.is_empty() {
            let requests = acquires.iter().map(|(_, request)| *request);
            let commands = transaction::encode(requests, self.batch, self.keys, &mut encoded.bytes);
            encoded.expected.push(ExpectedReply::Commands { acquires: acquires.len(), commands });
        }
        self.script = Script::Locks;
        locks.iter().for_each(|(_, request)| add_lock(&mut self.call, request, self.keys));
        self.finish_call();
        self.script = Script::Claims;
        claims.iter().for_each(|(_, request)| add_claim(&mut self.call, request, self.keys));
        self.finish_call();
    }

    fn finish(mut self) -> Encoded {
        self.finish_groups();
        self.finish_call();
        if self.encoded.expected.is_empty() {
            cmd("TIME").finish(&mut self.encoded.bytes);
            self.encoded.expected.push(ExpectedReply::Items(0));
        }
        self.encoded
    }
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
        Request::Release { .. } => Script::Release,
        Request::Acquire { .. } | Request::Raise { .. } | Request::Extend { .. } => Script::Locks,
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

/// Appends the call of the script called `name` for releases of locks.
fn add_releases<'a>(
    releases: impl Iterator<Item = &'a Request>,
    name: &str,
    keys: &Keys,
    bytes: &mut Vec<u8>,
) {
    let (mut locks, mut owners) = (Command::default(), Command::default());
    locks.joined(keys.marker());
    for request in releases {
        if let Request::Release { resource, owner } = request {
            locks.joined(keys.lock(resource));
            owners.arg(owner.as_str());
        }
    }
    let mut head = cmd("EVALSHA");
    head.arg(name).number(locks.count() as u64);
    Command::finish_all([&mut head, &mut locks, &mut owners], bytes);
}

fn add_lock(call: &mut Call, request: &Request, keys: &Keys) {
    match request {
        Request::Acquire { resource, owner, ttl, propose, tolerance, keep, ticket } => {
            let shared = [millis(*ttl), millis(*keep), micros(*tolerance), 0];
            let on = [keys.lock(resource), keys.fence(resource), keys.queue(resource)];
            let args = call.sharing('a', shared, on).arg(owner.as_str()).number(propose.get());
            args.arg(optional(ticket.as_ref().map(Owner::as_str)));
        }
        Request::Extend { resource, owner, ttl, token, keep } => {
            let on = [keys.lock(resource), keys.fence(resource), keys.queue(resource)];
            let args = call.sharing('b', [millis(*ttl), millis(*keep), 0, 0], on);
            args.arg(owner.as_str()).number(token.get());
        }
        Request::Raise { resource, owner, to, keep } => {
            let on = [keys.lock(resource), keys.fence(resource)];
            call.sharing('c', [0, millis(*keep), 0, 0], on).arg(owner.as_str()).number(to.get());
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

#[cfg(test)]
mod tests;
