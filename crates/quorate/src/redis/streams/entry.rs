//! Parses the server's replies into entries of a stream. An invalid reply is an error, never a guess. A
//! deleted entry has no fields.

use crate::node::Cause;
use crate::redis::{
    reply::{array, bytes, mismatch, pair, unexpected, word},
    resp::{Value, digits},
};

/// The names and values of an entry's fields, in order.
pub(super) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The id, `MILLISECONDS-NUMBER`.
    pub(super) id: String,
    /// The names and values of the fields, in order. `None` if the entry was deleted while it was pending.
    pub(super) fields: Option<Fields>,
}

/// The data from the reply to XAUTOCLAIM.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Takeover {
    /// The id at which the next call must start. `None` once all pending entries have been checked.
    pub(super) next: Option<String>,
    pub(super) entries: Vec<Entry>,
    /// True if Redis 6.2 moved entries to this consumer that were deleted from the stream. The reply does not name
    /// them, but they are among the consumer's own pending entries.
    pub(super) moved_deleted: bool,
    /// The ids of entries that were deleted from the stream while they were pending. The server has removed
    /// them from the pending list.
    pub(super) deleted: Vec<String>,
}

/// Parses the reply to XREADGROUP of one stream.
pub(super) fn of_read(value: &Value<'_>) -> Result<Vec<Entry>, Cause> {
    if *value == Value::Nil {
        return Ok(Vec::new());
    }
    let mut entries = Vec::new();
    for stream in array(value, "XREADGROUP")? {
        let [_, listed] = pair(stream, "a stream")?;
        entries.extend(list(array(listed, "entries")?)?);
    }
    Ok(entries)
}

/// Parses the reply to XAUTOCLAIM.
pub(super) fn of_autoclaim(value: &Value<'_>) -> Result<Takeover, Cause> {
    let [next, entries, rest @ ..] = array(value, "XAUTOCLAIM")? else {
        return Err(unexpected("XAUTOCLAIM without two parts"));
    };
    let (next, entries) = (id(next)?, array(entries, "entries")?);
    // Redis 7 and later report the deleted entries in a third part of the reply.
    let deleted = match rest {
        [Value::Array(ids), ..] => ids.iter().map(id).collect::<Result<_, _>>()?,
        _ => Vec::new(),
    };
    // Redis 6.2 returns nil in place of a deleted entry.
    let moved_deleted = entries.contains(&Value::Nil);
    Ok(Takeover { next: (next != "0-0").then_some(next), entries: list(entries)?, moved_deleted, deleted })
}

fn list(entries: &[Value<'_>]) -> Result<Vec<Entry>, Cause> {
    entries.iter().filter(|entry| **entry != Value::Nil).map(entry).collect()
}

fn entry(value: &Value<'_>) -> Result<Entry, Cause> {
    let [entry, fields] = pair(value, "an entry")?;
    let fields = if *fields == Value::Nil { None } else { Some(pairs(array(fields, "fields")?)?) };
    Ok(Entry { id: id(entry)?, fields })
}

fn pairs(parts: &[Value<'_>]) -> Result<Fields, Cause> {
    let (pairs, odd) = parts.as_chunks::<2>();
    if !odd.is_empty() {
        return Err(unexpected("a field without a value"));
    }
    pairs.iter().map(|[name, value]| Ok((bytes(name)?, bytes(value)?))).collect()
}

/// Parses an id: two numbers joined by a dash. Any other text is an error, so an id is safe in a log and in a
/// command.
fn id(value: &Value<'_>) -> Result<String, Cause> {
    let text = word(value)?;
    match text.split_once('-').map(|(ms, number)| (digits(ms.as_bytes()), digits(number.as_bytes()))) {
        Some((Some(_), Some(_))) => Ok(text.into_owned()),
        _ => Err(mismatch(value, "an entry's id")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value<'_> {
        Value::Text(text.as_bytes())
    }

    fn one<'a>(id: &'a str, fields: Value<'a>) -> Value<'a> {
        Value::Array(vec![bulk(id), fields])
    }

    #[test]
    fn entries_are_read_with_those_that_were_deleted() {
        let fields = Value::Array(vec![bulk("item"), Value::Text(&[0xff])]);
        let entries = Value::Array(vec![one("5-1", fields), one("5-2", Value::Nil)]);
        let read = of_read(&Value::Array(vec![Value::Array(vec![bulk("orders"), entries])])).unwrap();
        assert_eq!(read[0].fields.as_deref(), Some(&[(b"item".to_vec(), vec![0xff])][..]));
        assert_eq!(read[1], Entry { id: "5-2".to_owned(), fields: None });
        assert_eq!(of_read(&Value::Nil), Ok(Vec::new()), "the read timed out");
    }

    #[test]
    fn a_takeover_returns_the_next_start() {
        let entries = || Value::Array(vec![Value::Nil, one("5-1", Value::Array(Vec::new()))]);
        let taken = of_autoclaim(&Value::Array(vec![bulk("5-2"), entries()])).unwrap();
        assert_eq!((taken.next.as_deref(), taken.entries.len()), (Some("5-2"), 1));
        assert!(taken.moved_deleted, "there is a nil");
        let none_deleted = of_autoclaim(&Value::Array(vec![bulk("0-0"), Value::Array(Vec::new())])).unwrap();
        assert!(!none_deleted.moved_deleted);
        let deleted = Value::Array(vec![bulk("4-0")]);
        let taken = of_autoclaim(&Value::Array(vec![bulk("0-0"), entries(), deleted])).unwrap();
        assert_eq!((taken.next, taken.deleted), (None, vec!["4-0".to_owned()]));
    }

    #[test]
    fn an_invalid_reply_is_refused() {
        let invalid = [
            Value::Text(b"OK"),
            Value::Array(vec![Value::Text(b"OK")]),
            Value::Array(vec![Value::Array(vec![bulk("orders")])]),
            Value::Array(vec![Value::Array(vec![
                bulk("orders"),
                Value::Array(vec![one("\u{1b}[2J", Value::Nil)]),
            ])]),
            Value::Array(vec![Value::Array(vec![
                bulk("orders"),
                Value::Array(vec![one("1-1", Value::Array(vec![bulk("odd")]))]),
            ])]),
        ];
        for value in invalid {
            assert!(matches!(of_read(&value), Err(Cause::Protocol(_))), "{value:?}");
        }
        for value in
            [Value::Nil, Value::Array(vec![bulk("0-0")]), Value::Array(vec![bulk("x"), Value::Array(vec![])])]
        {
            assert!(matches!(of_autoclaim(&value), Err(Cause::Protocol(_))), "{value:?}");
        }
    }
}
