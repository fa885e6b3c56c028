//! Parses the reply of a script to one request.

use crate::{
    node::{AttemptCount, Cause, DoneRecord, FencingToken, Owner, Refusal, Reply},
    redis::{
        fault, ledger_page,
        reply::{self, cut, digits, mismatch, number, record, shown, text, unexpected, unreadable},
        resp::Value,
    },
};
use std::{sync::Arc, time::Duration};

/// The longest fingerprint of a payload, in hexadecimal digits.
const FINGERPRINT_MAX: usize = 64;

/// Parses the reply to one request.
pub(crate) fn item(value: &Value<'_>) -> Result<Reply, Cause> {
    let parts = match value {
        Value::Array(parts) => &parts[..],
        Value::Text(_) => std::slice::from_ref(value),
        Value::Int(count) => return count_granted(*count),
        other => return Err(mismatch(other, "the reply to a request")),
    };
    let Some((word, rest)) = parts.split_first() else {
        return Err(unexpected("an empty reply to a request"));
    };
    let kind = reply::word(word)?;
    match (&*kind, rest) {
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
        ("completed", []) => Ok(Reply::Completed),
        ("counted", []) => Ok(Reply::Counted),
        ("attempts_reset", []) => Ok(Reply::AttemptsReset),
        ("state", [remaining_ms, holder, counter, claim]) => state(remaining_ms, holder, counter, claim),
        ("ledger", [next, mark, pieces]) => ledger_page::of_script(next, mark, pieces),
        ("pruned", [next]) => Ok(Reply::Pruned { next: ledger_page::cursor(next)? }),
        ("written", []) => Ok(Reply::Written),
        ("stored", [record]) => stored_record(record),
        ("marked", []) => Ok(Reply::Marked),
        ("stamps", counts) => counts.iter().map(number).collect::<Result<_, _>>().map(Reply::Stamps),
        ("kept", []) => Ok(Reply::Kept),
        ("refused", rest) => Ok(Reply::Refused(refusal(rest)?)),
        (word, rest) => Err(unexpected(&format!("{:?} with {} parts", cut(word), rest.len()))),
    }
}

/// Parses the grant of a lock, or of a claim without attempts: the counter after the grant.
fn count_granted(count: i64) -> Result<Reply, Cause> {
    let counter = u64::try_from(count).map_err(|_| unexpected(&format!("{count} for a count")))?;
    Ok(Reply::Granted { counter: FencingToken::new(counter), begun: None })
}

fn refusal(parts: &[Value<'_>]) -> Result<Refusal, Cause> {
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
        ("later", [counter]) => Refusal::LaterGrants { counter: token(counter)? },
        ("crowded", [most]) => Refusal::Crowded { most: small(most)? },
        ("sealed", [by]) => Refusal::Sealed { by: token(by)? },
        ("pruned", []) => Refusal::Pruned,
        ("notsealed", []) => Refusal::NotSealed,
        ("incomplete", []) => Refusal::Incomplete,
        ("nopart", []) => Refusal::NoPart,
        ("toolate", []) => Refusal::TooLate,
        ("wrongtype", [what]) => Refusal::WrongType(shown(&text(what)?)),
        ("failed", [what]) => {
            let what = text(what)?;
            match fault::of_refused_write(&what, None) {
                Some(why) => Refusal::Unable(why.into()),
                None => Refusal::Failed(shown(&what)),
            }
        }
        (word, rest) => {
            return Err(unexpected(&format!("the refusal {:?} with {} parts", cut(word), rest.len())));
        }
    })
}

fn state(
    remaining_ms: &Value<'_>,
    holder: &Value<'_>,
    counter: &Value<'_>,
    claim: &Value<'_>,
) -> Result<Reply, Cause> {
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

fn stored_record(value: &Value<'_>) -> Result<Reply, Cause> {
    Ok(record(&text(value)?).map_or_else(|| unreadable("a record of a ledger"), Reply::Conflict))
}

/// Parses `d:TOKEN:AT:PAYLOAD:ATTEMPTS:RESULT`. PAYLOAD and ATTEMPTS are empty if the record has none.
pub(crate) fn done(text: &str) -> Option<DoneRecord> {
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

/// Returns the owner token in a reply, cut to [`TEXT_MAX`] bytes.
fn owner_of(value: &Value<'_>) -> Result<Owner, Cause> {
    Ok(Owner::from_node(cut(&reply::word(value)?)))
}

/// Parses the result of PTTL. The result is `-1` for a key that never expires. One millisecond is added,
/// since PTTL rounds, and a key exists until its last millisecond has passed.
fn remaining(value: &Value<'_>) -> Result<Option<Duration>, Cause> {
    if &*reply::word(value)? == "-1" {
        return Ok(None);
    }
    Ok(Some(Duration::from_millis(number(value)?.saturating_add(1))))
}

fn token(value: &Value<'_>) -> Result<FencingToken, Cause> {
    number(value).map(FencingToken::new)
}

fn small(value: &Value<'_>) -> Result<u32, Cause> {
    let number = number(value)?;
    u32::try_from(number).map_err(|_| unexpected(&format!("{number} for a small number")))
}
