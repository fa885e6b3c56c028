//! Acquires of locks and claims by plain commands, in place of a script. A script costs a server several times as much.
//!
//! The commands of a call are one transaction (MULTI). For each lock it sets the key if there is none, and increments the
//! counter in any case. For each claim it sets the whole record if there is none; its count follows the time that the worker
//! proposes. Then it reads whether any of the locks has a queue, the marker, and the time. From the replies this
//! module decides what a script would have decided before: see [`replies`]. What it decides against is not undone here,
//! because later requests may have reached the server since: the reply is [`Reply::MayHold`], and the attempt releases it.
//!
//! | rule | without it |
//! | --- | --- |
//! | A key ends one TTL after the batch's `not_after`, and is granted only if it was set by then. So it lasts for a TTL from when it was set, and a late one ends when a timely one does | two holders (model) |
//! | The marker is read after the keys were set | a node that was flushed grants what others hold (model) |
//! | The count is larger than that of an earlier grant | a counter that was lost starts again at one, and the attempt's raise fails |
//! | A script treats a counter without an end as missing: only INCRBY starts such a counter | a smaller token after a larger one (model) |
//! | A refused lock is acquired by scripts until one is granted, and for a second ([`PlainAcquires`](crate::redis::plain_acquires::PlainAcquires)) | each attempt of others increments the counters, so that raises fail; and reservations are not taken |
//! | The commands are one transaction | a forced release between a SET and its INCRBY gives two owners one count; a cut append-only file leaves a key without its count |
//! | A claim's record outlives its lease by the retention of the count | a smaller token after a larger one (model) |
//! | A claim is granted only if the proposed time is near the server's | the same (model) |
//! | It is sent only if the worker sees before that it is near: the count stays, also if the grant does not count | a worker whose clock is wrong leaves counts behind from which right workers go on (simulation, model) |
//! | No acquire runs a second time by itself: of a claim that is free and not new the attempt asks again, if it is still open | it overtakes its own release |

use crate::node::{Batch, Cause, FencingToken, NodeTime, Owner, Refusal, Reply, Request, Resource};
use crate::redis::{
    command::{Command, MS_MAX, cmd, micros},
    fault, item,
    keys::{Key, Keys},
    reply::{self, cut, digits, mismatch, text, unexpected},
    resp::Value,
};
use std::{sync::Arc, time::Duration};

/// The deadline and the marker of a batch, by which the replies are examined, and the names of the keys for errors.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) not_after: NodeTime,
    pub(crate) stamp: Arc<str>,
    pub(crate) keys: Keys,
}

/// Appends the transaction of these acquires. Returns the number of its commands before EXEC.
pub(crate) fn encode<'a>(
    acquires: impl Iterator<Item = &'a Request>,
    batch: &Batch,
    keys: &Keys,
    bytes: &mut Vec<u8>,
) -> usize {
    let mut queues = cmd("EXISTS");
    let mut command = Command::default();
    command.arg("MULTI").finish(bytes);
    // MULTI, GET and TIME.
    let mut commands = 3;
    let mut claims = Claims::default();
    for request in acquires {
        let Request::Acquire { resource, owner, ttl, propose, keep, .. } = request else { continue };
        let key = keys.lock(resource);
        let end = end_of(batch.not_after, *ttl);
        if resource.is_claim() {
            let (head, last) = claims.record(end, end_of(batch.not_after, *keep), propose.get());
            command.arg("SET").joined(key).joined([head, owner.as_str()]);
            command.args(["NX", "GET", "PXAT"]).number(last).finish(bytes);
            commands += 1;
            continue;
        }
        command.arg("SET").joined(key).args([owner.as_str(), "NX", "GET", "PXAT"]).number(end);
        command.finish(bytes);
        command.arg("INCRBY").joined(keys.fence(resource)).arg("1").finish(bytes);
        queues.joined(keys.queue(resource));
        commands += 2;
    }
    if queues.count() > 1 {
        queues.finish(bytes);
        commands += 1;
    }
    command.arg("GET").joined(keys.marker()).finish(bytes);
    command.arg("TIME").finish(bytes);
    command.arg("EXEC").finish(bytes);
    commands
}

/// Returns the end of a key that lasts for `time` after the deadline, in milliseconds of the server's clock.
fn end_of(not_after: NodeTime, time: Duration) -> u64 {
    not_after.as_micros().saturating_add(micros(time)).div_ceil(1_000).min(MS_MAX)
}

/// The beginning of the record of a new claim, up to the owner. The claims of a batch that are acquired together have the same.
#[derive(Default)]
struct Claims {
    of: [u64; 3],
    head: String,
}

impl Claims {
    /// Returns the beginning of the record, and the end of its key. `claims.lua` has the form of the record.
    fn record(&mut self, held: u64, kept: u64, propose: u64) -> (&str, u64) {
        if self.of != [held, kept, propose] || self.head.is_empty() {
            self.of = [held, kept, propose];
            self.head = format!("c:{held}:{}:{kept}:0:0::", propose.saturating_add(1));
        }
        (&self.head, held.max(kept))
    }
}

/// Examines the replies to the commands of a transaction: SET and INCRBY for each lock, SET for each claim, EXISTS if there is
/// a lock, GET and TIME. `acquires` are the requests, each with the count of an earlier grant of a lock. Returns the node's
/// time, and a reply to each acquire.
pub(crate) fn replies<'a>(
    values: &[Value<'_>],
    acquires: impl Iterator<Item = (&'a Request, u64)>,
    terms: &Terms,
) -> Result<(NodeTime, Vec<Reply>), Cause> {
    let too_few = || unexpected("too few replies in a transaction");
    let (values, [marker, time]) = values.split_last_chunk::<2>().ok_or_else(too_few)?;
    let time = reply::time(time)?;
    let marker = match marker {
        Value::Nil => None,
        marker => Some(text(marker)?),
    };
    let against = if time > terms.not_after {
        Some(Refusal::Stale)
    } else if marker.as_deref() != Some(&*terms.stamp) {
        Some(Refusal::Marker(marker))
    } else {
        None
    };
    // With a lock, the last value is that of EXISTS.
    let acquires: Vec<_> = acquires.collect();
    let has_lock = acquires.iter().any(|(request, _)| is_of_lock(request));
    let (values, is_queued) = match values.split_last() {
        Some((queues, values)) if has_lock => (values, *queues != Value::Int(0)),
        _ => (values, false),
    };
    let mut values = values.iter();
    let mut next = || values.next().ok_or_else(too_few);
    let mut replies = Vec::with_capacity(acquires.len());
    for (request, last) in acquires {
        let Request::Acquire { resource, .. } = request else { continue };
        let is_lock = !resource.is_claim();
        let (set, increment) = (next()?, if is_lock { next()? } else { &Value::Nil });
        let key = |of: for<'b> fn(&'b Keys, &'b Resource) -> Key<'b>| of(&terms.keys, resource).concat();
        replies.push(match (set, &against) {
            (Value::Nil | Value::Text(_) | Value::Error(_), Some(why)) => Reply::MayHold(why.clone()),
            (Value::Error(error), None) => Reply::Refused(refusal(error, &key(Keys::lock))),
            (Value::Nil, None) if !is_lock => claimed(request, time),
            (Value::Text(stored), None) if !is_lock => not_claimed(stored, time, || key(Keys::lock)),
            (Value::Nil, None) if is_queued => Reply::MayHold(Refusal::Queued),
            (Value::Nil, None) => match counted(increment, last, || key(Keys::fence)) {
                Ok(counter) => Reply::Granted { counter, begun: None },
                Err(why) => Reply::MayHold(why),
            },
            (Value::Text(holder), None) => {
                let holder = String::from_utf8_lossy(holder);
                Reply::Held { owner: Owner::from_node(cut(&holder)), remaining: None }
            }
            (other, _) => return Err(mismatch(other, "SET")),
        });
    }
    match values.len() {
        0 => Ok((time, replies)),
        more => Err(unexpected(&format!("{more} replies too many in a transaction"))),
    }
}

fn is_of_lock(request: &Request) -> bool {
    matches!(request, Request::Acquire { resource, .. } if !resource.is_claim())
}

/// Returns the reply to an acquire of a claim whose record has been set.
fn claimed(request: &Request, time: NodeTime) -> Reply {
    let Request::Acquire { propose, tolerance, .. } = request else { return Reply::MayHold(Refusal::Stale) };
    let apart = time.distance(NodeTime::from_micros(propose.get()));
    if apart > *tolerance {
        Reply::MayHold(Refusal::Clock { apart })
    } else if *propose >= FencingToken::MAX {
        Reply::MayHold(Refusal::CounterFull)
    } else {
        Reply::Granted { counter: FencingToken::new(propose.get() + 1), begun: None }
    }
}

/// Returns the reply to an acquire of a claim that has the record `stored`.
fn not_claimed(stored: &[u8], time: NodeTime, key: impl Fn() -> String) -> Reply {
    let stored = String::from_utf8_lossy(stored);
    if let Some(done) = item::done(&stored) {
        return Reply::Done(done);
    }
    match holder_of(&stored) {
        Some((held, owner)) => match held.checked_sub(time.as_micros() / 1_000) {
            // One millisecond is added, because a lease lasts until its last millisecond has passed.
            Some(left) => Reply::Held {
                owner: Owner::from_node(cut(owner)),
                remaining: Some(Duration::from_millis(left.saturating_add(1))),
            },
            None => Reply::Refused(Refusal::NotNew),
        },
        None => Reply::Refused(Refusal::WrongType(reply::shown(&format!(
            "the key {} holds no record of a claim",
            key()
        )))),
    }
}

/// Returns the end of the lease in the record of a claim that is not done, in milliseconds, and the owner.
fn holder_of(record: &str) -> Option<(u64, &str)> {
    let mut parts = record.strip_prefix("c:")?.splitn(7, ':');
    let mut number = |digits_max| parts.next().filter(|text| text.len() <= digits_max).and_then(digits);
    let held = number(16)?;
    // The count, its end, the attempts and their end.
    for digits_max in [20, 16, 10, 16] {
        number(digits_max)?;
    }
    let payload = parts.next()?;
    let is_sound = payload.len() <= 64 && payload.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_sound.then_some((held, parts.next()?))
}

/// Returns the count of a grant, which must be larger than that of an earlier one.
fn counted(increment: &Value<'_>, last: u64, key: impl Fn() -> String) -> Result<FencingToken, Refusal> {
    match increment {
        Value::Int(count) => match u64::try_from(*count).map(FencingToken::new) {
            Ok(count) if count > FencingToken::MAX => Err(Refusal::CounterFull),
            Ok(count) if count.get() > last => Ok(count),
            _ => Err(Refusal::Failed(
                "its fencing counter was lost; the next attempt starts another one".into(),
            )),
        },
        Value::Error(error) => Err(refusal(error, &key())),
        _ => Err(Refusal::Failed("INCRBY returned no count".into())),
    }
}

/// Returns the reason why a server refused a command on `key`.
fn refusal(error: &str, key: &str) -> Refusal {
    match fault::of_refused_write(error, None) {
        Some(why) => Refusal::Unable(why.into()),
        None if error.starts_with("WRONGTYPE") => {
            Refusal::WrongType(reply::shown(&format!("the key {key} holds another type")))
        }
        None => Refusal::Failed(reply::shown(error)),
    }
}
