use crate::{
    ledger_page,
    reply::ExpectedReply,
    resp::{Joined, RespCommand},
    scripts::{Loaded, Script},
};
use quorate::node::{Batch, Cursor, DoneRecord, Owner, Record, Request, Resource, StampStep};
use std::time::Duration;

/// The maximum number of requests (*items*) of one script call. The number is limited, because a server
/// serves no other client while a script runs.
const ITEMS_A_CALL: usize = 64;

/// The maximum number of items of a script call that seals, reads or prunes ledgers. Each item is a page of a
/// ledger, which is far more work than a lock.
const PAGES_A_CALL: usize = 4;

/// The position of the first item's first key in KEYS, counted from 1. The marker's key comes before it.
const FIRST_ITEM_KEY: usize = 2;

/// The maximum number of arguments that one request can share with other requests of its batch. Shared
/// arguments are sent only once.
const SHARED_MAX: usize = 4;

/// The longest time to live, in milliseconds. The server adds it to its clock, and the sum must not overflow.
const MS_MAX: u128 = 1 << 52;

/// Builds the names of the keys of one deployment, which all have the deployment's prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn marker(&self) -> String {
        format!("{}node", self.prefix)
    }

    /// Returns a key under which nothing is ever stored. No other key has a brace directly after the prefix.
    pub(crate) fn never_stored(&self) -> String {
        format!("{}{{doctor}}", self.prefix)
    }

    /// Returns the key of the stamps. No resource has a key that begins with a brace.
    pub(crate) fn stamps(&self) -> String {
        format!("{{{}}}:stamps", self.marker())
    }

    /// Returns the key of a lock's holder. For a claim, returns the only key, which holds everything that is
    /// stored of the claim.
    fn lock<'a>(&'a self, resource: &'a Resource) -> Joined<'a, 2> {
        Joined([&self.prefix, resource.key()])
    }

    /// Returns the channel on which a server publishes releases of `resource`: the lock's key and `:freed`.
    /// The scripts build the same name.
    pub(crate) fn freed(&self, resource: &Resource) -> String {
        format!("{}{}:freed", self.prefix, resource.key())
    }

    /// Returns the channel to which every session with a waiter is subscribed. A script that releases leases
    /// first asks for the number of subscribers of this channel. If there are none, the script publishes
    /// nothing. The scripts build the same name.
    pub(crate) fn waiters(&self) -> String {
        format!("{}:waiters", self.marker())
    }

    fn fence<'a>(&'a self, resource: &'a Resource) -> Joined<'a, 4> {
        Joined(["{", &self.prefix, resource.key(), "}:fence"])
    }

    fn readers<'a>(&'a self, resource: &'a Resource) -> Joined<'a, 4> {
        Joined(["{", &self.prefix, resource.key(), "}:readers"])
    }

    fn queue<'a>(&'a self, resource: &'a Resource) -> Joined<'a, 4> {
        Joined(["{", &self.prefix, resource.key(), "}:queue"])
    }

    fn ledger(&self, group: &str) -> String {
        format!("{}ledger/{group}", self.prefix)
    }
}

/// A batch as bytes, with the expected reply to each command. The parser of the replies needs these.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// The bytes to send.
    pub(crate) bytes: Vec<u8>,
    /// The expected reply to each command, in order. Each command has one reply.
    pub(crate) expected: Vec<ExpectedReply>,
}

/// Encodes a batch as script calls. Consecutive requests of one kind form one call, and so do consecutive
/// requests that one script can serve in any order. A page of a ledger after the first one is an HSCAN and a script
/// call. An empty batch is encoded as TIME.
pub(crate) fn encode(batch: &Batch, keys: &Keys, scripts: &Loaded) -> Encoded {
    // This estimate of the batch's size avoids reallocations. An acquire takes slightly more than 256 bytes.
    let room = 256 * (batch.requests.len() + 1);
    let mut encoded = Encoded { bytes: Vec::with_capacity(room), expected: Vec::new() };
    let mut command = RespCommand::with_capacity(room);
    for run in batch.requests.chunk_by(shares_a_call) {
        for items in run.chunks(items_a_call(&run[0])) {
            if let Some((ledger, after)) = later_page(&items[0]) {
                let (cursor, count) = ledger_page::position(after);
                command.arg("HSCAN").arg(keys.ledger(ledger)).arg(cursor).arg("COUNT").arg(count);
                command.finish(&mut encoded.bytes);
                encoded.expected.push(ExpectedReply::Page);
            }
            let script = script_of(&items[0]);
            let loaded = script.batch().map_or(script, |(batch_script, _)| batch_script);
            command.arg("EVALSHA").arg(scripts.name(loaded));
            let item_keys: usize = items.iter().map(|item| script_of(item).keys_per_item()).sum();
            let queues = || items.iter().filter_map(queued_resource);
            command.arg(1 + item_keys + queues().count()).arg(keys.marker());
            for item in items {
                keys_of(&mut command, item, keys);
            }
            for resource in queues() {
                command.arg(keys.queue(resource));
            }
            command.arg(batch.not_after.as_micros()).arg(&*batch.stamp);
            let shared = SharedArgs::of(items);
            if loaded != script {
                command.arg(&shared.letters);
            }
            if loaded == Script::Batch {
                command.arg(FIRST_ITEM_KEY + item_keys);
            }
            for item in items {
                args_of(&mut command, item);
            }
            for args in shared.lists.iter().rev() {
                for arg in &args[..loaded.shared_args()] {
                    command.arg(*arg);
                }
            }
            command.finish(&mut encoded.bytes);
            encoded.expected.push(ExpectedReply::Items(items.len()));
        }
    }
    if encoded.expected.is_empty() {
        command.arg("TIME").finish(&mut encoded.bytes);
        encoded.expected.push(ExpectedReply::Items(0));
    }
    encoded
}

/// Returns the maximum number of items of one call. A page of a ledger is as much work as hundreds of locks.
fn items_a_call(request: &Request) -> usize {
    match script_of(request) {
        // Reading a single record is as little work as a request on a lock.
        Script::Read if matches!(request, Request::Read { key: Some(_), .. }) => ITEMS_A_CALL,
        Script::Seal | Script::Read | Script::Prune => PAGES_A_CALL,
        // Its arguments continue to the end of the call.
        Script::Stamp => 1,
        _ => ITEMS_A_CALL,
    }
}

/// Returns the ledger and the position of a request for a page after the first one. Such a page is read with HSCAN, and
/// not by a script, because records that pass through Lua cost the server more. The script that follows only seals or
/// checks the node. If it accepts a seal, two things held when the page was read: no later term had sealed the ledger, and
/// the node had kept its memory. A read without a seal has no such check.
fn later_page(request: &Request) -> Option<(&str, &Cursor)> {
    match request {
        Request::Seal { ledger, after, .. } | Request::Read { ledger, after, key: None } => {
            Some((ledger, after.as_ref()?))
        }
        _ => None,
    }
}

fn shares_a_call(a: &Request, b: &Request) -> bool {
    if later_page(a).is_some() || later_page(b).is_some() {
        return false;
    }
    let (a, b) = (script_of(a), script_of(b));
    let batch_script = |script: Script| script.batch().map(|(batch_script, _)| batch_script);
    a == b || (batch_script(a).is_some() && batch_script(a) == batch_script(b))
}

/// The lists of arguments that items of a batch share. Each different list is sent only once, after the
/// arguments of the items.
struct SharedArgs {
    /// The letter of each item's script, followed by the digit of its list.
    letters: String,
    lists: Vec<[u64; SHARED_MAX]>,
}

impl SharedArgs {
    /// Collects the lists of `items`. Both fields are empty if no batch script serves the items.
    fn of(items: &[Request]) -> Self {
        let mut shared = Self { letters: String::with_capacity(2 * items.len()), lists: Vec::new() };
        for item in items {
            let Some((_, letter)) = script_of(item).batch() else { break };
            shared.letters.push(letter);
            let digit = shared_of(item).map_or(0, |list| shared.digit(list));
            shared.letters.push(char::from(b'0' + digit));
        }
        shared
    }

    /// Returns the number of this list, and adds the list if it is new. The number is less than
    /// [`ITEMS_A_CALL`].
    fn digit(&mut self, list: [u64; SHARED_MAX]) -> u8 {
        let at = self.lists.iter().position(|other| *other == list).unwrap_or_else(|| {
            self.lists.push(list);
            self.lists.len() - 1
        });
        u8::try_from(at).unwrap_or_default()
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

fn script_of(request: &Request) -> Script {
    if request.is_invalid() {
        return Script::Invalid;
    }
    let of = |resource: &Resource, lock, claim| if resource.is_claim() { claim } else { lock };
    match request {
        Request::Acquire { resource, .. } => of(resource, Script::Acquire, Script::ClaimAcquire),
        Request::Raise { resource, .. } => of(resource, Script::Raise, Script::ClaimRaise),
        Request::Extend { resource, .. } => of(resource, Script::Extend, Script::ClaimExtend),
        Request::Release { resource, .. } => of(resource, Script::Release, Script::ClaimRelease),
        Request::Share { .. } => Script::Share,
        Request::ExtendShare { .. } => Script::ExtendShare,
        Request::ReleaseShare { .. } => Script::ReleaseShare,
        Request::Downgrade { .. } => Script::Downgrade,
        Request::Queue { .. } => Script::Queue,
        Request::LeaveQueue { .. } => Script::LeaveQueue,
        Request::Inspect { resource, .. } => of(resource, Script::Inspect, Script::ClaimInspect),
        Request::Complete { .. } => Script::Complete,
        Request::Count { .. } => Script::Count,
        Request::ResetAttempts { .. } => Script::ResetAttempts,
        Request::Seal { .. } => Script::Seal,
        Request::Write { .. } => Script::Write,
        Request::Prune { .. } => Script::Prune,
        Request::Read { .. } => Script::Read,
        Request::Keep { .. } => Script::Keep,
        Request::Reserve { .. } => Script::Reserve,
        Request::Mark { .. } => Script::Mark,
        Request::Stamp { .. } => Script::Stamp,
    }
}

fn keys_of(command: &mut RespCommand, request: &Request, keys: &Keys) {
    match request {
        // All data of a claim is under one key. The script itself refuses a request that does not apply to a
        // claim.
        Request::Acquire { resource, .. }
        | Request::Extend { resource, .. }
        | Request::Raise { resource, .. }
        | Request::Inspect { resource }
        | Request::Share { resource, .. }
        | Request::ExtendShare { resource, .. }
        | Request::Downgrade { resource, .. }
        | Request::Queue { resource, .. }
            if resource.is_claim() =>
        {
            command.arg(keys.lock(resource));
        }
        Request::Complete { resource, .. }
        | Request::Count { resource, .. }
        | Request::ResetAttempts { resource, .. }
        | Request::Release { resource, .. }
        | Request::Reserve { resource, .. } => {
            command.arg(keys.lock(resource));
        }
        Request::Acquire { resource, .. }
        | Request::Extend { resource, .. }
        | Request::Raise { resource, .. }
        | Request::Inspect { resource } => {
            command.arg(keys.lock(resource)).arg(keys.fence(resource));
        }
        Request::Share { resource, .. } | Request::ExtendShare { resource, .. } => {
            command.arg(keys.lock(resource)).arg(keys.readers(resource)).arg(keys.queue(resource));
        }
        Request::ReleaseShare { resource, .. } => {
            command.arg(keys.lock(resource)).arg(keys.readers(resource));
        }
        Request::Downgrade { resource, .. } => {
            command.arg(keys.lock(resource)).arg(keys.readers(resource)).arg(keys.fence(resource));
        }
        Request::Queue { resource, .. } | Request::LeaveQueue { resource, .. } => {
            command.arg(keys.queue(resource));
        }
        Request::Seal { ledger, .. }
        | Request::Write { ledger, .. }
        | Request::Prune { ledger, .. }
        | Request::Keep { ledger, .. }
        | Request::Read { ledger, .. } => {
            command.arg(keys.ledger(ledger));
        }
        Request::Mark { .. } => {
            command.arg(keys.marker());
        }
        Request::Stamp { .. } => {
            command.arg(keys.stamps());
        }
    }
}

/// Returns the resource whose queue the script reads for this request, if the request is sent in a batch.
fn queued_resource(request: &Request) -> Option<&Resource> {
    match request {
        Request::Acquire { resource, .. } | Request::Extend { resource, .. } if !resource.is_claim() => {
            Some(resource)
        }
        _ => None,
    }
}

/// Returns those arguments of a batched request that the other requests probably have too, such as the TTL.
/// Equal lists are sent only once. Unused elements at the end of the list are zero.
fn shared_of(request: &Request) -> Option<[u64; SHARED_MAX]> {
    match request {
        Request::Acquire { resource, ttl, propose, tolerance, keep, .. } if resource.is_claim() => {
            Some([millis(*ttl), propose.get(), micros(*tolerance), millis(*keep)])
        }
        Request::Acquire { ttl, tolerance, keep, .. } => {
            Some([millis(*ttl), millis(*keep), micros(*tolerance), 0])
        }
        Request::Extend { ttl, keep, .. } => Some([millis(*ttl), millis(*keep), 0, 0]),
        Request::Raise { resource, keep, .. } if resource.is_claim() => Some([millis(*keep), 0, 0, 0]),
        Request::Raise { keep, .. } => Some([0, millis(*keep), 0, 0]),
        Request::Complete { retention: keep, .. } | Request::Count { keep, .. } => {
            Some([millis(*keep), 0, 0, 0])
        }
        _ => None,
    }
}

fn args_of(command: &mut RespCommand, request: &Request) {
    match request {
        _ if request.is_invalid() => {}
        Request::Acquire { resource, owner, .. } if resource.is_claim() => {
            command.arg(owner.as_str());
        }
        Request::Acquire { owner, propose, ticket: None, .. } => {
            command.arg(owner.as_str()).arg(propose.get());
        }
        Request::Acquire { owner, propose, ticket, .. } => {
            command.arg(owner.as_str()).arg(format!("{}{}", propose.get(), ticket_text(ticket.as_ref())));
        }
        Request::Raise { owner, to: token, .. } | Request::Extend { owner, token, .. } => {
            command.arg(owner.as_str()).arg(token.get());
        }
        Request::Release { owner, .. } => {
            command.arg(owner.as_str());
        }
        Request::Reserve { owner, successor, ttl, .. } => {
            command.arg(owner.as_str()).arg(successor.as_str()).arg(millis(*ttl));
        }
        Request::Share { owner, ttl, ticket, .. } => {
            command.arg(owner.as_str()).arg(millis(*ttl)).arg(ticket_text(ticket.as_ref()));
        }
        Request::ExtendShare { owner, ttl, .. } => {
            command.arg(owner.as_str()).arg(millis(*ttl));
        }
        Request::ReleaseShare { owner, .. } => {
            command.arg(owner.as_str());
        }
        Request::Downgrade { owner, token, reader, ttl, .. } => {
            command.arg(owner.as_str()).arg(token.get()).arg(reader.as_str()).arg(millis(*ttl));
        }
        Request::Queue { ticket, at, now, tolerance, ttl, exclusive, .. } => {
            command.arg(ticket.as_str()).arg(*at).arg(*now).arg(tolerance.as_micros().to_string());
            command.arg(millis(*ttl)).arg(if *exclusive { "w" } else { "r" });
        }
        Request::LeaveQueue { ticket, .. } => {
            command.arg(ticket.as_str());
        }
        Request::Inspect { .. } => {}
        Request::Complete { owner, record, .. } => {
            command.arg(owner.as_str()).arg(done_text(record));
        }
        Request::Count { owner, attempts, payload, withdraw, .. } => {
            command.arg(owner.as_str()).arg(u64::from(*attempts)).arg(payload.as_deref().unwrap_or_default());
            command.arg(if *withdraw { "-" } else { "+" });
        }
        Request::ResetAttempts { keep, .. } => {
            command.arg(millis(*keep));
        }
        Request::Seal { term, after, .. } => {
            command.arg(term.get()).arg(page_mode(after.as_ref()));
        }
        Request::Write { term, key, seen, record, .. } => {
            let seen = seen.as_ref().map(record_text).unwrap_or_default();
            command.arg(term.get()).arg(&**key).arg(seen).arg(record_text(record)).arg(record.at);
        }
        Request::Prune { term, below, after, .. } => {
            command.arg(term.get()).arg(*below).arg(cursor(after.as_ref()));
        }
        Request::Keep { life, .. } => {
            command.arg(millis(*life));
        }
        Request::Read { after, key, .. } => {
            let key = key.as_ref().map(|key| format!("={key}")).unwrap_or_default();
            command.arg(page_mode(after.as_ref())).arg(key);
        }
        Request::Mark { expect, marker } => {
            command.arg(u8::from(expect.is_some())).arg(expect.as_deref().unwrap_or_default());
            command.arg(&**marker);
        }
        Request::Stamp { own, known, step } => {
            let step = match step {
                StampStep::Tell => "tell",
                StampStep::Advance => "advance",
                StampStep::Raise => "raise",
            };
            command.arg(step).arg(&**own);
            for (name, count) in known.iter() {
                command.arg(&**name).arg(*count);
            }
        }
    }
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

fn cursor(after: Option<&Cursor>) -> &str {
    after.map(Cursor::as_str).unwrap_or_default()
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
