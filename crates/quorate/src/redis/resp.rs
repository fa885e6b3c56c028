//! Parses the RESP protocol (versions 2 and 3). [`Scan`] finds the end of a reply while it arrives, and limits its
//! elements. Then [`Value::parse`] returns the whole reply as a tree, whose texts lie in the bytes of the reply.

use std::borrow::Cow;

/// The largest number of elements of a reply. The longest valid replies, pages of a ledger and messages of a stream, have
/// some ten thousands.
const ELEMENTS_MAX: u64 = 1 << 19;

/// The deepest nesting of arrays. A page of a ledger, the deepest valid reply, has four levels.
const DEPTH_MAX: usize = 16;

/// The longest line that contains the number of bytes or of elements: a kind, a number of 20 digits, and the end of the
/// line.
const NUMBER_LINE_MAX: usize = 23;

/// The kinds of values whose line is followed by a text, and by other values.
const TEXTS: &[u8] = b"$=!";
const ARRAYS: &[u8] = b"*%~>";
/// The other kinds of values.
const LINES: &[u8] = b"+-:_,#(";

/// The reason why some bytes are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

const NO_VALUE: Malformed = Malformed("it sent something else than a reply");

/// A value of a server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Nil,
    Int(i64),
    /// A text of any kind.
    Text(&'a [u8]),
    /// The text of an error, which begins with its code.
    Error(Cow<'a, str>),
    Array(Vec<Value<'a>>),
    /// Keys, each followed by its value.
    Map(Vec<Value<'a>>),
    /// A push: its kind and its data.
    Push(Vec<Value<'a>>),
    /// A value of another kind, which no valid reply contains.
    Other,
}

impl<'a> Value<'a> {
    /// Parses a whole reply, which [`Scan`] has passed over: it has limited the depth of the recursion.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Values { bytes, at: 0 }.value()
    }

    /// Returns the elements of an array, or the keys and values of a map.
    pub(crate) fn list(&self) -> Option<&[Value<'a>]> {
        match self {
            Self::Array(parts) | Self::Map(parts) => Some(parts),
            _ => None,
        }
    }
}

/// A pass over a reply that finds its end without parsing it. It continues where it stopped, so a long reply that arrives
/// in pieces is passed over once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    /// The beginning of the first value whose end was not found yet.
    at: usize,
    /// The position up to which the end of that value's line was searched.
    searched: usize,
    /// For each array whose end was not found yet, from the outermost on, the number of its elements that follow. The first
    /// number is that of the reply itself.
    open: [u64; DEPTH_MAX],
    depth: usize,
    /// The number of elements, as far as the lengths of the arrays say.
    elements: u64,
}

impl Scan {
    pub(crate) fn new() -> Self {
        let mut open = [0; DEPTH_MAX];
        open[0] = 1;
        Self { at: 0, searched: 0, open, depth: 1, elements: 0 }
    }

    /// Continues the pass in `bytes`, which begin with the bytes of the calls before. Returns the length of the reply once
    /// all of it has arrived.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        while self.depth > 0 {
            if self.open[self.depth - 1] == 0 {
                self.depth -= 1;
                continue;
            }
            let Some(line) = Line::find(bytes, self.at, &mut self.searched)? else { return Ok(None) };
            let (text, more) = match line.kind {
                kind if TEXTS.contains(&kind) => (line.length()?.map_or(0, |length| length + 2), 0),
                b'%' => (0, 2 * line.length()?.unwrap_or(0)),
                kind if ARRAYS.contains(&kind) => (0, line.length()?.unwrap_or(0)),
                _ => (0, 0),
            };
            if text > (bytes.len() - line.next) as u64 {
                return Ok(None);
            }
            self.at = line.next + usize::try_from(text).unwrap_or_default();
            self.open[self.depth - 1] -= 1;
            if more > 0 {
                self.elements += more;
                if self.elements > ELEMENTS_MAX {
                    return Err(Malformed("a reply has more elements than any valid one"));
                }
                *self.open.get_mut(self.depth).ok_or(NO_VALUE)? = more;
                self.depth += 1;
            }
        }
        Ok(Some(self.at))
    }
}

/// The line that begins a value.
struct Line<'a> {
    kind: u8,
    text: &'a [u8],
    /// The position after the line.
    next: usize,
}

impl<'a> Line<'a> {
    /// Returns the line at `at`, or `None` if its end has not arrived. Its end is searched from `searched` on.
    fn find(bytes: &'a [u8], at: usize, searched: &mut usize) -> Result<Option<Self>, Malformed> {
        let Some(kind) = bytes.get(at).copied() else { return Ok(None) };
        let has_number = TEXTS.contains(&kind) || ARRAYS.contains(&kind);
        if !has_number && !LINES.contains(&kind) {
            return Err(NO_VALUE);
        }
        let from = at.max(*searched);
        let Some(end) = bytes[from..].iter().position(|byte| *byte == b'\n').map(|end| from + end) else {
            *searched = bytes.len();
            return if has_number && bytes.len() - at > NUMBER_LINE_MAX { Err(NO_VALUE) } else { Ok(None) };
        };
        let text = bytes[at + 1..end].strip_suffix(b"\r").ok_or(NO_VALUE)?;
        Ok(Some(Self { kind, text, next: end + 1 }))
    }

    /// Returns the number of bytes or of elements. Returns `None` for a nil.
    fn length(&self) -> Result<Option<u64>, Malformed> {
        match self.text {
            b"-1" if b"$*".contains(&self.kind) => Ok(None),
            // More digits would overflow where the numbers of several lines are added.
            text if text.len() < 19 => digits(text).map(Some).ok_or(NO_VALUE),
            _ => Err(NO_VALUE),
        }
    }
}

/// Returns the number that consists of these digits.
pub(crate) fn digits(text: &[u8]) -> Option<u64> {
    let sound = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| sound)?.parse().ok()
}

/// The values of a reply.
struct Values<'a> {
    bytes: &'a [u8],
    /// The beginning of the next value.
    at: usize,
}

impl<'a> Values<'a> {
    fn value(&mut self) -> Result<Value<'a>, Malformed> {
        let line = Line::find(self.bytes, self.at, &mut 0)?.ok_or(NO_VALUE)?;
        self.at = line.next;
        Ok(match line.kind {
            b'+' => Value::Text(line.text),
            b'-' => Value::Error(String::from_utf8_lossy(line.text)),
            b':' => Value::Int(
                std::str::from_utf8(line.text).ok().and_then(|text| text.parse().ok()).ok_or(NO_VALUE)?,
            ),
            b'_' => Value::Nil,
            b'$' => self.text(&line)?.map_or(Value::Nil, Value::Text),
            // The text of this kind begins with its format, of three letters, and a colon.
            b'=' => match self.text(&line)?.and_then(|text| text.split_first_chunk::<4>()) {
                Some(([format @ .., b':'], text)) if !format.contains(&b':') => Value::Text(text),
                _ => return Err(NO_VALUE),
            },
            b'!' => Value::Error(String::from_utf8_lossy(self.text(&line)?.ok_or(NO_VALUE)?)),
            b'*' | b'~' => self.list(&line, 1)?.map_or(Value::Nil, Value::Array),
            b'%' => self.list(&line, 2)?.map_or(Value::Nil, Value::Map),
            b'>' => self.list(&line, 1)?.map_or(Value::Nil, Value::Push),
            _ => Value::Other,
        })
    }

    fn text(&mut self, line: &Line<'a>) -> Result<Option<&'a [u8]>, Malformed> {
        let Some(length) = line.length()? else { return Ok(None) };
        let rest = &self.bytes[self.at..];
        let end = usize::try_from(length).map_err(|_| NO_VALUE)?;
        if rest.get(end..end + 2) != Some(b"\r\n") {
            return Err(NO_VALUE);
        }
        self.at += end + 2;
        Ok(Some(&rest[..end]))
    }

    /// Returns the values that follow the line. It has the number of pieces, of which each has `width` values.
    fn list(&mut self, line: &Line<'a>, width: u64) -> Result<Option<Vec<Value<'a>>>, Malformed> {
        let Some(pieces) = line.length()? else { return Ok(None) };
        // The pass has found so many values.
        let count = usize::try_from((pieces * width).min(ELEMENTS_MAX)).unwrap_or_default();
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(self.value()?);
        }
        Ok(Some(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first reply in `bytes`, of which `piece` bytes arrive at a time.
    fn first(bytes: &[u8], piece: usize) -> Result<Option<Value<'_>>, Malformed> {
        let mut scan = Scan::new();
        for end in (piece..bytes.len()).step_by(piece).chain([bytes.len()]) {
            if let Some(length) = scan.advance(&bytes[..end])? {
                return Value::parse(&bytes[..length]).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the value of the `redis` crate in our form, or `None` if it has a value of which we know only the kind.
    fn ours(theirs: &redis::Value) -> Option<Value<'_>> {
        fn list(values: &[redis::Value]) -> Option<Vec<Value<'_>>> {
            values.iter().map(ours).collect()
        }
        Some(match theirs {
            redis::Value::Nil => Value::Nil,
            redis::Value::Int(number) => Value::Int(*number),
            redis::Value::BulkString(bytes) => Value::Text(bytes),
            redis::Value::SimpleString(text) | redis::Value::VerbatimString { text, .. } => {
                Value::Text(text.as_bytes())
            }
            redis::Value::Okay => Value::Text(b"OK"),
            redis::Value::Array(values) | redis::Value::Set(values) => Value::Array(list(values)?),
            redis::Value::Map(pairs) => {
                let values = pairs.iter().flat_map(|(key, value)| [ours(key), ours(value)]);
                Value::Map(values.collect::<Option<_>>()?)
            }
            redis::Value::Boolean(_) | redis::Value::Double(_) | redis::Value::BigNumber(_) => Value::Other,
            _ => return None,
        })
    }

    /// Values of each kind.
    const ALL: &str = "*17\r\n$2\r\n17\r\n:5\r\n:-5\r\n+OK\r\n+\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n_\r\n%1\r\n$1\r\na\r\n:1\r\n\
                       ~1\r\n+x\r\n=8\r\ntxt:text\r\n#t\r\n,1.5\r\n(123456789012345678901234567890\r\n\
                       *2\r\n$4\r\n\r\n\r\n\r\n*1\r\n:7\r\n";

    #[test]
    fn a_reply_is_parsed_as_by_the_redis_crate_and_never_before_its_end() {
        let bytes = ALL.as_bytes();
        let theirs = redis::parse_redis_value(bytes).unwrap();
        for piece in [1, 2, 3, 7, bytes.len()] {
            assert_eq!(first(bytes, piece), Ok(ours(&theirs)), "in pieces of {piece}");
            for end in 0..bytes.len() {
                assert_eq!(first(&bytes[..end], piece), Ok(None), "{end} bytes in pieces of {piece}");
            }
        }
        let followed = [bytes, b"*1\r\n"].concat();
        assert_eq!(first(&followed, usize::MAX / 2), Ok(ours(&theirs)), "the next reply has begun");
    }

    #[test]
    fn a_changed_byte_gives_no_other_reply_than_that_of_the_redis_crate() {
        let bytes = ALL.as_bytes();
        let mut compared = 0;
        for at in 0..bytes.len() {
            for byte in [b'0', b'9', b'-', b':', b'$', b'*', b'\r', b'\n', b'x', 0x7f] {
                let mut changed = bytes.to_vec();
                changed[at] = byte;
                if let (Ok(Some(value)), Ok(theirs)) =
                    (first(&changed, 9), redis::parse_redis_value(&changed))
                    && let Some(theirs) = ours(&theirs)
                {
                    assert_eq!(theirs, value, "{byte} at {at}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 100, "{compared} changes gave a reply");
    }

    #[test]
    fn errors_have_their_text_and_pushes_their_data() {
        let error = |text: &'static str| Ok(Some(Value::Error(text.into())));
        assert_eq!(first(b"-ERR no\r\n", 1), error("ERR no"));
        assert_eq!(first(b"!6\r\nERR no\r\n", 1), error("ERR no"));
        let push = Value::Push(vec![Value::Text(b"message"), Value::Nil]);
        assert_eq!(first(b">2\r\n$7\r\nmessage\r\n_\r\n", 1), Ok(Some(push)));
    }

    #[test]
    fn other_bytes_are_refused_as_soon_as_possible() {
        for bytes in [
            "x",
            "\r\n",
            "|1\r\n",
            "$x\r\n",
            "$-2\r\n",
            "*+1\r\n",
            "%-1\r\n",
            "*1\n",
            "$9999999999999999999\r\n",
            "$00000000000000000000000000",
            "$1\r\nabc",
            ":x\r\n",
            "=2\r\nab\r\n",
            "=-1\r\n",
        ] {
            assert_eq!(first(bytes.as_bytes(), 1), Err(NO_VALUE), "{bytes:?}");
        }
        let nested = |depth: usize| "*1\r\n".repeat(depth) + "*0\r\n";
        assert!(matches!(first(nested(DEPTH_MAX - 1).as_bytes(), 7), Ok(Some(_))));
        assert_eq!(first(nested(DEPTH_MAX).as_bytes(), 7), Err(NO_VALUE));
        assert_eq!(first("*1\r\n".repeat(100_000).as_bytes(), 4_096), Err(NO_VALUE), "before its end");
    }

    #[test]
    fn a_reply_of_too_many_elements_is_refused_before_it_is_complete() {
        let too_many = Err(Malformed("a reply has more elements than any valid one"));
        assert_eq!(first(b"*524289\r\n", 1), too_many);
        assert_eq!(first(b"%262145\r\n", 1), too_many);
        assert_eq!(first(b"*999999999999999999\r\n", 1), too_many);
        let parts = format!("*2\r\n*400000\r\n{0}*400000\r\n{0}", ":1\r\n".repeat(400_000));
        assert_eq!(first(parts.as_bytes(), 4_096), too_many);
        // Lines within a text are no elements.
        let text = "\r\n".repeat(1 << 20);
        let long = format!("${}\r\n{text}\r\n", text.len());
        assert_eq!(first(long.as_bytes(), 4_096), Ok(Some(Value::Text(text.as_bytes()))));
    }
}
