//! Acquires of locks by plain commands, in place of a script. A script costs a server several times as much.
//!
//! The commands of a call are one transaction (MULTI). For each lock it sets the key if there is none, and increments the
//! counter in any case. Then it reads whether any of the locks has a queue, the marker, and the time. From the replies this
//! module decides what a script would have decided before: see [`replies`]. What it decides against is not undone here,
//! because later requests may have reached the server since: the reply is [`Reply::MayHold`], and the attempt releases it.
//!
//! | rule | without it |
//! | --- | --- |
//! | A key ends one TTL after the batch's `not_after`, and is granted only if it was set by then. So it lasts for a TTL from when it was set, and a late one ends when a timely one does | two holders (model) |
//! | The marker is read after the keys were set | a node that was flushed grants what others hold (model) |
//! | The count is larger than that of an earlier grant | a counter that was lost starts again at one, and the attempt's raise fails |
//! | A script treats a counter without an end as missing: only INCRBY starts such a counter | a smaller token after a larger one (model) |
//! | A refused lock is acquired by scripts until one is granted, and for a second ([`KnownLocks`](crate::redis::known_locks::KnownLocks)) | each attempt of others increments the counters, so that raises fail; and reservations are not taken |
//! | The commands are one transaction | a forced release between a SET and its INCRBY gives two owners one count; a cut append-only file leaves a key without its count |
//! | No acquire runs a second time | it overtakes its own release |

use crate::node::{Batch, Cause, FencingToken, NodeTime, Owner, Refusal, Reply, Request, Resource};
use crate::redis::{
    command::{Command, MS_MAX, cmd, micros},
    fault,
    keys::{Key, Keys},
    reply::{self, cut, mismatch, text, unexpected},
    resp::Value,
};
use std::sync::Arc;

/// The commands of a transaction, except for two for each lock: MULTI, EXISTS, GET, TIME and EXEC.
const OTHER_COMMANDS: usize = 5;

/// The deadline and the marker of a batch, by which the replies are examined, and the names of the keys for errors.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) not_after: NodeTime,
    pub(crate) stamp: Arc<str>,
    pub(crate) keys: Keys,
}

/// Returns the number of replies to the transaction of this many acquires, before that to EXEC.
pub(crate) fn replies_before_exec(acquires: usize) -> usize {
    2 * acquires + OTHER_COMMANDS - 1
}

/// Appends the transaction of these acquires of locks.
pub(crate) fn encode<'a>(
    acquires: impl Iterator<Item = &'a Request>,
    batch: &Batch,
    keys: &Keys,
    bytes: &mut Vec<u8>,
) {
    let mut queues = cmd("EXISTS");
    let mut command = Command::default();
    command.arg("MULTI").finish(bytes);
    for request in acquires {
        let Request::Acquire { resource, owner, ttl, .. } = request else { continue };
        let end = batch.not_after.as_micros().saturating_add(micros(*ttl)).div_ceil(1_000).min(MS_MAX);
        command
            .arg("SET")
            .joined(keys.lock(resource))
            .args([owner.as_str(), "NX", "GET", "PXAT"])
            .number(end);
        command.finish(bytes);
        command.arg("INCRBY").joined(keys.fence(resource)).arg("1").finish(bytes);
        queues.joined(keys.queue(resource));
    }
    queues.finish(bytes);
    command.arg("GET").joined(keys.marker()).finish(bytes);
    command.arg("TIME").finish(bytes);
    command.arg("EXEC").finish(bytes);
}

/// Examines the replies to the commands of a transaction: SET and INCRBY for each lock, EXISTS, GET and TIME. `counts` are
/// the counts of earlier grants of these locks, and `lock_at` returns the lock with this number. Returns the node's time, and
/// a reply to each acquire.
pub(crate) fn replies<'a>(
    values: &[Value<'_>],
    counts: &[u64],
    terms: &Terms,
    lock_at: impl Fn(usize) -> Option<&'a Resource>,
) -> Result<(NodeTime, Vec<Reply>), Cause> {
    let (of_locks, [queues, marker, time]) = values
        .split_last_chunk::<3>()
        .filter(|(of_locks, _)| of_locks.len() == 2 * counts.len())
        .ok_or_else(|| {
            unexpected(&format!("{} replies in a transaction of {} locks", values.len(), counts.len()))
        })?;
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
    let is_queued = *queues != Value::Int(0);
    let pairs = of_locks.as_chunks::<2>().0.iter().zip(counts).enumerate();
    let key = |number, of: for<'b> fn(&'b Keys, &'b Resource) -> Key<'b>| {
        lock_at(number).map(|lock| of(&terms.keys, lock).concat()).unwrap_or_default()
    };
    let each = pairs.map(|(number, ([set, increment], last))| match (set, &against) {
        (Value::Nil | Value::Text(_) | Value::Error(_), Some(why)) => Ok(Reply::MayHold(why.clone())),
        (Value::Nil, None) if is_queued => Ok(Reply::MayHold(Refusal::Queued)),
        (Value::Nil, None) => Ok(match counted(increment, *last, || key(number, Keys::fence)) {
            Ok(counter) => Reply::Granted { counter, begun: None },
            Err(why) => Reply::MayHold(why),
        }),
        (Value::Text(holder), None) => {
            let holder = String::from_utf8_lossy(holder);
            Ok(Reply::Held { owner: Owner::from_node(cut(&holder)), remaining: None })
        }
        (Value::Error(error), None) => Ok(Reply::Refused(refusal(error, &key(number, Keys::lock)))),
        (other, _) => Err(mismatch(other, "SET")),
    });
    Ok((time, each.collect::<Result<_, _>>()?))
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
