//! Parses a server's replies into a [`BatchReply`]. The functions are strict: a value that is not a valid
//! reply to the request gives [`Cause::Protocol`], never a panic and never a guess.

use crate::fault;
use quorate::{
    node::{
        AttemptCount, BatchReply, Cause, Cursor, DoneRecord, FencingToken, LedgerPage, LedgerState, NodeTime,
        Owner, Record, Refusal, Reply,
    },
    plain::plain,
};
use redis::Value;
use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

/// The maximum number of bytes of a text from a server or another client that an error or an owner token
/// keeps.
const TEXT_MAX: usize = 1024;

/// The longest fingerprint of a payload, in hexadecimal digits.
const FINGERPRINT_MAX: usize = 64;

/// Parses the replies to a batch. `runs` has the number of items of each of its commands.
pub(crate) fn read(values: Vec<Value>, runs: &[usize]) -> Result<BatchReply, Cause> {
    if values.len() != runs.len() {
        return Err(unexpected(&format!("{} replies to {} commands", values.len(), runs.len())));
    }
    let mut replies = Vec::with_capacity(runs.iter().sum());
    let mut node_time = NodeTime::default();
    for (value, &items) in values.into_iter().zip(runs) {
        let parts = match value {
            Value::ServerError(error) => return Err(fault::of_server(&error)),
            Value::Array(parts) => parts,
            other => return Err(unexpected(&format!("{} for a script's reply", kind(&other)))),
        };
        if items == 0 {
            node_time = time(&parts)?;
            continue;
        }
        if parts.len() != items + 1 {
            return Err(unexpected(&format!("{} replies to {items} requests", parts.len())));
        }
        node_time = NodeTime::from_micros(number(&parts[0])?);
        for part in &parts[1..] {
            replies.push(item(part)?);
        }
    }
    Ok(BatchReply { node_time, replies })
}

/// Parses replies like [`read`], and removes `secret` from errors, in case the server repeats it.
pub(crate) fn read_redacted(values: Vec<Value>, runs: &[usize], secret: &str) -> Result<BatchReply, Cause> {
    for value in &values {
        if let Value::ServerError(error) = value {
            fault::check_for_secret(error, secret)?;
        }
    }
    let mut reply = read(values, runs).map_err(|cause| fault::redact(cause, secret))?;
    for reply in &mut reply.replies {
        if let Reply::Refused(Refusal::WrongType(text) | Refusal::Failed(text)) = reply
            && text.contains(secret)
        {
            *text = text.replace(secret, "***").into();
        }
    }
    Ok(reply)
}

/// Parses the reply to TIME.
pub(crate) fn time(parts: &[Value]) -> Result<NodeTime, Cause> {
    let [seconds, micros] = parts else { return Err(unexpected("TIME without two parts")) };
    let (seconds, micros) = (number(seconds)?, number(micros)?);
    let at = seconds.checked_mul(1_000_000).and_then(|at| at.checked_add(micros));
    at.map(NodeTime::from_micros).ok_or_else(|| unexpected("TIME beyond the end of the clock"))
}

/// Returns the text of a string reply. Bytes that are not UTF-8 are replaced.
pub(crate) fn text(value: &Value) -> Result<Arc<str>, Cause> {
    Ok(word(value)?.into())
}

/// Returns the text of a string reply without copying it.
fn word(value: &Value) -> Result<Cow<'_, str>, Cause> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(bytes)),
        Value::SimpleString(text) => Ok(text.as_str().into()),
        other => Err(unexpected(&format!("{} for a string", kind(other)))),
    }
}

/// Names the kind of a value for a message, without its content.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Int(_) => "an integer",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "a string",
        Value::Array(_) => "an array",
        Value::ServerError(_) => "an error",
        _ => "a value of another kind",
    }
}

/// Returns the cause for a value that does not fit. `what` names the value.
pub(crate) fn unexpected(what: &str) -> Cause {
    Cause::Protocol(shown(what))
}

/// Returns text from a server for people and logs. The result is cut to [`TEXT_MAX`] bytes, and has no
/// control characters.
pub(crate) fn shown(text: &str) -> Arc<str> {
    plain(text, TEXT_MAX).into()
}

/// Returns at most [`TEXT_MAX`] bytes of `text`, cut between two characters.
pub(crate) fn cut(text: &str) -> Arc<str> {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}

fn item(value: &Value) -> Result<Reply, Cause> {
    let parts = match value {
        Value::Array(parts) => &**parts,
        Value::BulkString(_) => std::slice::from_ref(value),
        Value::Int(count) => return count_granted(*count),
        other => return Err(unexpected(&format!("{} for the reply to a request", kind(other)))),
    };
    let Some((word, rest)) = parts.split_first() else {
        return Err(unexpected("an empty reply to a request"));
    };
    let kind = self::word(word)?;
    match (&*kind, rest) {
        ("granted", [counter]) => Ok(Reply::Granted { counter: token(counter)?, begun: None }),
        ("granted", [counter, stored]) => {
            Ok(Reply::Granted { counter: token(counter)?, begun: Some(begun(&text(stored)?)?) })
        }
        ("held", [owner, remaining_ms]) => {
            Ok(Reply::Held { owner: owner_of(owner)?, remaining: remaining(remaining_ms)? })
        }
        ("done", [stored]) => Ok(done(&text(stored)?).map_or_else(no_claim, Reply::Done)),
        ("shared", []) => Ok(Reply::Shared),
        ("queued", [ahead]) => Ok(Reply::Queued { ahead: small(ahead)? }),
        ("raised", []) => Ok(Reply::Raised),
        ("extended", []) => Ok(Reply::Extended),
        ("reserved", []) => Ok(Reply::Reserved),
        ("freed", []) => Ok(Reply::Released(true)),
        ("absent", []) => Ok(Reply::Released(false)),
        ("released", [was_present]) => Ok(Reply::Released(flag(was_present)?)),
        ("completed", []) => Ok(Reply::Completed),
        ("counted", []) => Ok(Reply::Counted),
        ("attempts_reset", []) => Ok(Reply::AttemptsReset),
        ("state", [remaining_ms, holder, counter, claim]) => state(remaining_ms, holder, counter, claim),
        ("ledger", [next, term, mark, pieces]) => ledger(next, term, mark, pieces),
        ("pruned", [next]) => Ok(Reply::Pruned { next: cursor(next)? }),
        ("written", []) => Ok(Reply::Written),
        ("stored", [record]) => stored_record(record),
        ("marked", []) => Ok(Reply::Marked),
        ("kept", []) => Ok(Reply::Kept),
        ("refused", rest) => Ok(Reply::Refused(refusal(rest)?)),
        (word, rest) => Err(unexpected(&format!("{:?} with {} parts", cut(word), rest.len()))),
    }
}

/// Parses a grant in its shortest form, a number: the counter after the grant.
fn count_granted(count: i64) -> Result<Reply, Cause> {
    match u64::try_from(count) {
        Ok(count) => Ok(Reply::Granted { counter: FencingToken::new(count), begun: None }),
        Err(_) => Err(unexpected(&format!("{count} for a count"))),
    }
}

fn refusal(parts: &[Value]) -> Result<Refusal, Cause> {
    let Some((word, rest)) = parts.split_first() else {
        return Err(unexpected("a refusal without a reason"));
    };
    let word = text(word)?;
    Ok(match (&*word, rest) {
        ("stale", []) => Refusal::Stale,
        ("unmarked", []) => Refusal::Marker(None),
        ("marker", [stored]) => Refusal::Marker(Some(text(stored)?)),
        ("clock", [apart]) => Refusal::Clock { apart: Duration::from_micros(number(apart)?) },
        ("full", []) => Refusal::CounterFull,
        ("notowner", []) => Refusal::NotOwner,
        ("superseded", []) => Refusal::Superseded,
        ("crowded", [most]) => Refusal::Crowded { most: small(most)? },
        ("sealed", [by]) => Refusal::Sealed { by: token(by)? },
        ("pruned", []) => Refusal::Pruned,
        ("wrongtype", [what]) => Refusal::WrongType(shown(&text(what)?)),
        ("failed", [what]) => Refusal::Failed(shown(&text(what)?)),
        (word, rest) => {
            return Err(unexpected(&format!("the refusal {:?} with {} parts", cut(word), rest.len())));
        }
    })
}

fn state(remaining_ms: &Value, holder: &Value, counter: &Value, claim: &Value) -> Result<Reply, Cause> {
    let holder = match &*text(remaining_ms)? {
        "-2" => None,
        _ => Some((owner_of(holder)?, remaining(remaining_ms)?)),
    };
    let counter = if text(counter)?.is_empty() { None } else { Some(token(counter)?) };
    let claim = text(claim)?;
    let (mut done_record, mut counted) = (None, None);
    if claim.starts_with("b:") {
        counted = Some(begun(&claim)?);
    } else if !claim.is_empty() {
        let Some(done) = done(&claim) else { return Ok(no_claim()) };
        done_record = Some(done);
    }
    Ok(Reply::State { holder, counter, done: done_record, begun: counted })
}

/// Parses a page of a ledger: the next cursor, the term, the low-water mark, and arrays. The arrays contain
/// fields of the ledger's hash in any order, each followed by its value.
fn ledger(next: &Value, term: &Value, mark: &Value, pieces: &Value) -> Result<Reply, Cause> {
    let next = cursor(next)?;
    let Ok(term) = token(term) else { return Ok(unreadable("the term of a ledger")) };
    let Ok(low_water) = number(mark) else { return Ok(unreadable("the low-water mark of a ledger")) };
    let mut records = BTreeMap::new();
    for piece in array(pieces)? {
        let (pairs, odd) = array(piece)?.as_chunks::<2>();
        if !odd.is_empty() {
            return Err(unexpected("a ledger with a field that has no value"));
        }
        for [field, value] in pairs {
            let field = word(field)?;
            match (&*field, field.strip_prefix("r:")) {
                ("t" | "w" | "l", _) => {}
                // A server may return a field twice. The later value is the newer one, so it replaces the
                // earlier one.
                (_, Some(key)) => match record(&word(value)?) {
                    Some(record) => drop(records.insert(key.into(), record)),
                    None => return Ok(unreadable(&format!("the record {:?} of a ledger", cut(key)))),
                },
                _ => return Ok(unreadable(&format!("the field {:?} of a ledger", cut(&field)))),
            }
        }
    }
    let records = records.into_iter().collect();
    Ok(Reply::Ledger(LedgerPage { state: LedgerState { term, low_water, records }, next }))
}

fn array(value: &Value) -> Result<&[Value], Cause> {
    match value {
        Value::Array(parts) => Ok(parts),
        other => Err(unexpected(&format!("{} for a page of a ledger", kind(other)))),
    }
}

/// Parses the cursor of the next page. The cursor is a number, or empty after the last page.
fn cursor(value: &Value) -> Result<Option<Cursor>, Cause> {
    let text = word(value)?;
    if text.is_empty() {
        return Ok(None);
    }
    number(value).map(|_| Some(Cursor::new(&*text)))
}

fn stored_record(value: &Value) -> Result<Reply, Cause> {
    Ok(record(&text(value)?).map_or_else(|| unreadable("a record of a ledger"), Reply::Conflict))
}

fn unreadable(what: &str) -> Reply {
    Reply::Refused(Refusal::WrongType(format!("{what} is not one that Quorate wrote").into()))
}

/// Parses `AT:TERM:LAST:VALUE`.
fn record(text: &str) -> Option<Record> {
    let mut parts = text.splitn(4, ':');
    let at = parts.next()?.parse().ok()?;
    let term = FencingToken::new(parts.next()?.parse().ok()?);
    let last = match parts.next()? {
        "0" => false,
        "1" => true,
        _ => return None,
    };
    Some(Record { at, term, last, value: parts.next()?.into() })
}

/// Parses `d:TOKEN:AT:PAYLOAD:ATTEMPTS:RESULT`. PAYLOAD and ATTEMPTS are empty if the record has none.
fn done(text: &str) -> Option<DoneRecord> {
    let mut parts = text.strip_prefix("d:")?.splitn(5, ':');
    let token = FencingToken::new(digits(parts.next()?)?);
    let at = digits(parts.next()?)?;
    let payload = payload(parts.next()?)?;
    let dead_lettered = match parts.next()? {
        "" => None,
        attempts => Some(u32::try_from(digits(attempts)?).ok()?),
    };
    Some(DoneRecord { token, at, result: parts.next()?.into(), payload, dead_lettered })
}

fn no_claim() -> Reply {
    unreadable("the record of a claim")
}

/// Parses `b:ATTEMPTS:PAYLOAD`. PAYLOAD is empty if there is none. The script has already checked the form.
fn begun(text: &str) -> Result<AttemptCount, Cause> {
    let parsed = || {
        let (attempts, of) = text.strip_prefix("b:")?.split_once(':')?;
        let attempts = u32::try_from(digits(attempts)?).unwrap_or(u32::MAX);
        Some(AttemptCount { attempts, payload: payload(of)? })
    };
    parsed().ok_or_else(|| unexpected(&format!("{:?} for what is counted on a claim", cut(text))))
}

/// Parses a fingerprint, or an empty text, which means that there is none. Returns `None` for any other text.
fn payload(text: &str) -> Option<Option<Arc<str>>> {
    let sound = text.len() <= FINGERPRINT_MAX && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    sound.then(|| (!text.is_empty()).then(|| text.into()))
}

fn owner_of(value: &Value) -> Result<Owner, Cause> {
    Ok(Owner::from_node(&cut(&word(value)?)))
}

/// Parses the result of PTTL. The result is `-1` for a key that never expires. One millisecond is added,
/// since PTTL rounds, and a key exists until its last millisecond has passed.
fn remaining(value: &Value) -> Result<Option<Duration>, Cause> {
    if &*word(value)? == "-1" {
        return Ok(None);
    }
    Ok(Some(Duration::from_millis(number(value)?.saturating_add(1))))
}

fn flag(value: &Value) -> Result<bool, Cause> {
    match &*word(value)? {
        "0" => Ok(false),
        "1" => Ok(true),
        other => Err(unexpected(&format!("{:?} for yes or no", cut(other)))),
    }
}

fn token(value: &Value) -> Result<FencingToken, Cause> {
    number(value).map(FencingToken::new)
}

/// Parses an unsigned number from its text.
fn number(value: &Value) -> Result<u64, Cause> {
    let text = word(value)?;
    digits(&text).ok_or_else(|| unexpected(&format!("{:?} for a number", cut(&text))))
}

fn digits(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn small(value: &Value) -> Result<u32, Cause> {
    let number = number(value)?;
    u32::try_from(number).map_err(|_| unexpected(&format!("{number} for a small number")))
}

#[cfg(test)]
mod tests;
