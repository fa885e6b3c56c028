//! Parses the values of a server's replies. The functions are strict: a value that does not fit gives [`Cause::Protocol`],
//! never a panic and never a guess.

use crate::{
    node::{Cause, FencingToken, NodeTime, Record, Refusal, Reply},
    plain::plain,
    redis::resp::{self, Value},
};
use std::{borrow::Cow, sync::Arc};

/// The maximum number of bytes of a text from a server or another client that an error or an owner token
/// keeps.
pub(crate) const TEXT_MAX: usize = 1024;

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
        // Valid text is checked faster so than by the function that replaces what is not valid.
        Value::Text(bytes) => {
            Ok(str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed))
        }
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

/// Parses an unsigned number from its text.
pub(crate) fn number(value: &Value<'_>) -> Result<u64, Cause> {
    let text = word(value)?;
    digits(&text).ok_or_else(|| unexpected(&format!("{:?} for a number", cut(&text))))
}

pub(crate) fn digits(text: &str) -> Option<u64> {
    resp::digits(text.as_bytes())
}
