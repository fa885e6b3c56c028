//! Parses a server's replies into a [`BatchReply`]. The functions are strict: a value that is not a valid
//! reply to the request gives [`Cause::Protocol`], never a panic and never a guess.

use crate::redis::{
    encode::Encoded,
    fault,
    keys::Keys,
    known_locks::KnownLocks,
    ledger_page::{self, Page},
    lock_groups::lock_of,
    resp::{self, Value},
    transaction::{self, Terms},
};
use crate::{
    node::{
        AttemptCount, Batch, BatchReply, Cause, DoneRecord, FencingToken, NodeTime, Owner, Record, Refusal,
        Reply, Request,
    },
    plain::plain,
};
use std::{borrow::Cow, sync::Arc, time::Duration, vec};

/// The maximum number of bytes of a text from a server or another client that an error or an owner token
/// keeps.
const TEXT_MAX: usize = 1024;

/// The longest fingerprint of a payload, in hexadecimal digits.
const FINGERPRINT_MAX: usize = 64;

/// The expected reply to a call of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedReply {
    /// The reply of a script to this number of items, or, if there are none, the reply to TIME.
    Items(usize),
    /// The replies to the commands of a transaction that acquires this number of locks.
    Commands(usize),
    /// The reply to HSCAN: the records of a ledger's page. The next command is the script that serves the same request.
    Page,
}

/// The replies to a batch, as far as they have arrived.
pub(crate) struct Replies {
    /// The expected replies to the calls that have not been answered.
    expected: vec::IntoIter<ExpectedReply>,
    requests: Vec<Request>,
    /// The position in the batch of each request, in the order of the replies.
    order: Vec<usize>,
    /// The counts of the acquires whose replies are expected.
    counts: vec::IntoIter<u64>,
    terms: Terms,
    known: Arc<KnownLocks>,
    /// The number of commands of the present transaction that were answered, and the error of the first that was refused.
    queued: usize,
    not_queued: Option<String>,
    node_time: NodeTime,
    replies: Vec<Reply>,
    /// The page that was read for the next command.
    page: Option<Box<Page>>,
    /// True if the server was no replica at the handshake.
    of_primary: bool,
    /// The first error.
    failed: Option<Cause>,
}

impl Replies {
    /// Begins with no replies to `batch`. What they show of locks is added to `known`. `of_primary` is true if the server was
    /// no replica at the handshake.
    pub(crate) fn new(
        encoded: Encoded,
        batch: Batch,
        keys: &Keys,
        known: Arc<KnownLocks>,
        of_primary: bool,
    ) -> Self {
        let Batch { requests, not_after, stamp } = batch;
        Self {
            expected: encoded.expected.into_iter(),
            replies: Vec::with_capacity(requests.len()),
            requests,
            order: encoded.order,
            counts: encoded.counts.into_iter(),
            terms: Terms { not_after, stamp, keys: keys.clone() },
            known,
            queued: 0,
            not_queued: None,
            node_time: NodeTime::default(),
            page: None,
            of_primary,
            failed: None,
        }
    }

    /// Returns whether every command has been answered.
    pub(crate) fn is_complete(&self) -> bool {
        self.expected.len() == 0
    }

    /// Adds the records that were read before to the last reply, if the script has accepted the request.
    fn add_page(&mut self) {
        if let (Some(page), Some(reply)) = (self.page.take(), self.replies.last_mut()) {
            page.add_to(reply);
        }
    }

    /// Parses the reply to the next command. The cause of an error does not contain `secret`.
    pub(crate) fn add(&mut self, value: &Value<'_>, secret: Option<&str>) {
        if let Some(ExpectedReply::Commands(acquires)) = self.expected.as_slice().first()
            && self.queued < transaction::replies_before_exec(*acquires)
        {
            let word: &[u8] = if self.queued == 0 { b"OK" } else { b"QUEUED" };
            self.queued += 1;
            match value {
                Value::Text(text) if *text == word => {}
                Value::Error(error) => _ = self.not_queued.get_or_insert_with(|| error.to_string()),
                other => _ = self.failed.get_or_insert(mismatch(other, "a command of a transaction")),
            }
            return;
        }
        let Some(expected) = self.expected.next() else { return };
        if self.failed.is_none()
            && let Err(cause) = self.parse(value, expected, secret)
        {
            self.failed = Some(cause);
        }
    }

    fn parse(
        &mut self,
        value: &Value<'_>,
        expected: ExpectedReply,
        secret: Option<&str>,
    ) -> Result<(), Cause> {
        let items = match expected {
            ExpectedReply::Items(items) => items,
            ExpectedReply::Commands(acquires) => return self.parse_transaction(value, acquires, secret),
            ExpectedReply::Page => {
                self.page = Some(Box::new(Page::scanned(value, secret)?));
                return Ok(());
            }
        };
        if let Value::Error(error) = value {
            return Err(fault::of_server(error, secret, fault::RIGHTS));
        }
        if items == 0 {
            self.node_time = time(value)?;
            return Ok(());
        }
        let parts = array(value, "a script's reply")?;
        if parts.len() != items + 1 {
            return Err(unexpected(&format!("{} replies to {items} requests", parts.len())));
        }
        self.node_time = NodeTime::from_micros(number(&parts[0])?);
        for part in &parts[1..] {
            let reply = item(part)?;
            if self.of_primary
                && let Reply::Refused(Refusal::Failed(why)) = &reply
                && why.starts_with("READONLY")
            {
                // The server has become a replica. The next handshake reports its role.
                return Err(Cause::Changed(Arc::clone(why)));
            }
            self.add_reply(reply, false);
        }
        self.add_page();
        Ok(())
    }

    /// Parses the reply to EXEC. If the server has refused a command, it has run none of them, or each by itself. The session
    /// ends, so that the attempts release what they may hold, and the next handshake finds the reason.
    fn parse_transaction(
        &mut self,
        value: &Value<'_>,
        acquires: usize,
        secret: Option<&str>,
    ) -> Result<(), Cause> {
        self.queued = 0;
        let refused = self.not_queued.take();
        let error = match value {
            Value::Error(error) => Some(refused.as_deref().unwrap_or(error)),
            _ => refused.as_deref(),
        };
        if let Some(error) = error {
            return Err(match error.starts_with("READONLY") && self.of_primary {
                true => Cause::Changed(shown(error)),
                false => fault::of_server(error, secret, fault::RIGHTS),
            });
        }
        let counts: Vec<u64> = self.counts.by_ref().take(acquires).collect();
        let values = array(value, "EXEC")?;
        let lock_at = |number| {
            let position = *self.order.get(self.replies.len() + number)?;
            self.requests.get(position).and_then(lock_of)
        };
        let (time, replies) = transaction::replies(values, &counts, &self.terms, lock_at)?;
        self.node_time = time;
        replies.into_iter().for_each(|reply| self.add_reply(reply, true));
        Ok(())
    }

    fn add_reply(&mut self, reply: Reply, by_commands: bool) {
        let request = self.order.get(self.replies.len()).and_then(|position| self.requests.get(*position));
        if let Some(request) = request {
            self.known.learn(request, &reply, self.node_time, by_commands);
        }
        self.replies.push(reply);
    }

    /// Returns the reply to the batch. Removes `secret` from errors, in case the server repeats it.
    pub(crate) fn finish(mut self, secret: Option<&str>) -> Result<BatchReply, Cause> {
        if let Some(cause) = self.failed {
            return Err(match secret {
                Some(secret) => fault::redact(cause, secret),
                None => cause,
            });
        }
        for reply in &mut self.replies {
            if let (
                Reply::Refused(Refusal::WrongType(text) | Refusal::Failed(text) | Refusal::Unable(text))
                | Reply::MayHold(Refusal::WrongType(text) | Refusal::Failed(text) | Refusal::Unable(text)),
                Some(secret),
            ) = (reply, secret)
            {
                *text = fault::without(text, secret).into();
            }
        }
        let mut replies: Vec<(usize, Reply)> = self.order.into_iter().zip(self.replies).collect();
        replies.sort_unstable_by_key(|(position, _)| *position);
        let replies = replies.into_iter().map(|(_, reply)| reply).collect();
        Ok(BatchReply { node_time: self.node_time, replies })
    }
}

/// Parses the reply to TIME.
pub(crate) fn time(value: &Value<'_>) -> Result<NodeTime, Cause> {
    let [seconds, micros] = pair(value, "TIME")?;
    let (seconds, micros) = (number(seconds)?, number(micros)?);
    let at = seconds.checked_mul(1_000_000).and_then(|at| at.checked_add(micros));
    at.map(NodeTime::from_micros).ok_or_else(|| unexpected("TIME beyond the end of the clock"))
}

/// Returns the text of a string reply. Bytes that are not UTF-8 are replaced.
pub(crate) fn text(value: &Value<'_>) -> Result<Arc<str>, Cause> {
    Ok(word(value)?.into())
}

/// Returns the text of a string reply without copying it.
pub(crate) fn word<'a>(value: &Value<'a>) -> Result<Cow<'a, str>, Cause> {
    match value {
        Value::Text(bytes) => Ok(String::from_utf8_lossy(bytes)),
        other => Err(mismatch(other, "a string")),
    }
}

pub(crate) fn bytes(value: &Value<'_>) -> Result<Vec<u8>, Cause> {
    match value {
        Value::Text(bytes) => Ok(bytes.to_vec()),
        other => Err(mismatch(other, "a string")),
    }
}

/// Returns the elements of an array. `what` names the array for the error.
pub(crate) fn array<'a, 'b>(value: &'b Value<'a>, what: &str) -> Result<&'b [Value<'a>], Cause> {
    match value {
        Value::Array(parts) => Ok(parts),
        other => Err(mismatch(other, what)),
    }
}

/// Returns the elements of an array of two.
pub(crate) fn pair<'a, 'b>(value: &'b Value<'a>, what: &str) -> Result<&'b [Value<'a>; 2], Cause> {
    let parts = array(value, what)?;
    parts.try_into().map_err(|_| unexpected(&format!("{} parts for the two of {what}", parts.len())))
}

/// Returns the cause for a value of another kind than that of `what`.
pub(crate) fn mismatch(value: &Value<'_>, what: &str) -> Cause {
    unexpected(&format!("{} for {what}", kind(value)))
}

/// Names the kind of a value for a message, without its content.
fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Int(_) => "an integer",
        Value::Text(_) => "a string",
        Value::Array(_) => "an array",
        Value::Error(_) => "an error",
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
pub(crate) fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn item(value: &Value<'_>) -> Result<Reply, Cause> {
    let parts = match value {
        Value::Array(parts) => &parts[..],
        Value::Text(_) => std::slice::from_ref(value),
        Value::Int(count) => return count_granted(*count),
        other => return Err(mismatch(other, "the reply to a request")),
    };
    let Some((word, rest)) = parts.split_first() else {
        return Err(unexpected("an empty reply to a request"));
    };
    let kind = self::word(word)?;
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

pub(crate) fn unreadable(what: &str) -> Reply {
    Reply::Refused(Refusal::WrongType(format!("{what} is not one that Quorate wrote").into()))
}

/// Parses `AT:TERM:LAST:VALUE`.
pub(crate) fn record(text: &str) -> Option<Record> {
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
    Ok(Owner::from_node(cut(&word(value)?)))
}

/// Parses the result of PTTL. The result is `-1` for a key that never expires. One millisecond is added,
/// since PTTL rounds, and a key exists until its last millisecond has passed.
fn remaining(value: &Value<'_>) -> Result<Option<Duration>, Cause> {
    if &*word(value)? == "-1" {
        return Ok(None);
    }
    Ok(Some(Duration::from_millis(number(value)?.saturating_add(1))))
}

fn token(value: &Value<'_>) -> Result<FencingToken, Cause> {
    number(value).map(FencingToken::new)
}

/// Parses an unsigned number from its text.
pub(crate) fn number(value: &Value<'_>) -> Result<u64, Cause> {
    let text = word(value)?;
    digits(&text).ok_or_else(|| unexpected(&format!("{:?} for a number", cut(&text))))
}

fn digits(text: &str) -> Option<u64> {
    resp::digits(text.as_bytes())
}

fn small(value: &Value<'_>) -> Result<u32, Cause> {
    let number = number(value)?;
    u32::try_from(number).map_err(|_| unexpected(&format!("{number} for a small number")))
}

#[cfg(test)]
mod tests;
