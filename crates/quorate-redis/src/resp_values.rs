//! The values of the RESP protocol as they lie in the bytes of a reply, without a copy.

use crate::reply;
use std::str;

/// The longest line that begins a value: a kind, a number of 20 digits, and the end of the line.
const LINE_MAX: usize = 23;

/// Counts the elements of one reply, from its bytes as they arrive.
///
/// The decoder of the `redis` crate needs about 70 bytes of memory for an element of three bytes. So its input is limited
/// by elements too.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ElementCount {
    count: u64,
    /// The bytes to skip: the rest of a text and the end of its line.
    skipped: u64,
    /// The kind of the value whose line has begun.
    kind: Option<u8>,
    /// The number in this line, while it consists of digits.
    number: Option<u64>,
}

impl ElementCount {
    /// The largest number of elements. The longest valid replies, pages of a ledger and messages of a stream, have some
    /// ten thousands.
    pub(crate) const MOST: u64 = 1 << 19;

    /// Counts the elements in the next bytes. Returns false if there are too many.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) -> bool {
        while let Some((first, rest)) = bytes.split_first() {
            if self.skipped > 0 {
                let skipped = usize::try_from(self.skipped).unwrap_or(usize::MAX).min(bytes.len());
                self.skipped -= skipped as u64;
                bytes = &bytes[skipped..];
                continue;
            }
            bytes = rest;
            match (self.kind, first) {
                (None, kind) => {
                    self.count += 1;
                    (self.kind, self.number) = (Some(*kind), Some(0));
                }
                (Some(kind), b'\n') => {
                    let text = self.number.filter(|_| b"$=!".contains(&kind));
                    (self.kind, self.skipped) = (None, text.map_or(0, |length| length.saturating_add(2)));
                }
                (Some(_), b'\r') => {}
                (Some(_), byte) => {
                    let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
                    self.number = self
                        .number
                        .zip(digit)
                        .and_then(|(number, digit)| number.checked_mul(10)?.checked_add(digit));
                }
            }
        }
        self.count <= Self::MOST
    }
}

/// The reason why a value was not read.
#[derive(Debug, PartialEq)]
pub(crate) enum Stop {
    /// More bytes are needed.
    Incomplete,
    /// The bytes are something else.
    Other,
}

/// A pass over the beginning of some bytes that finds the end of their values without parsing them. It continues where
/// it stopped, so a long reply that arrives in pieces is passed over once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    /// The position that the pass has reached.
    at: usize,
    /// The number of values whose ends were not found yet.
    values: u64,
    /// The number of values whose ends were found.
    passed: u64,
}

impl Scan {
    /// Begins a pass over one value.
    pub(crate) fn new() -> Self {
        Self::of(0, 1)
    }

    /// Begins a pass over `values` values from the position `at` on.
    pub(crate) fn of(at: usize, values: u64) -> Self {
        Self { at, values, passed: 0 }
    }

    /// Continues the pass in `bytes`, which begin with the bytes of the calls before. Returns true once it has found the
    /// end, and false if more bytes are needed. Fails if there are other values than arrays, strings and numbers, or too many.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Result<bool, Stop> {
        while self.values > 0 {
            let mut values = Values { bytes, at: self.at };
            let more = match bytes.get(self.at) {
                Some(b'*') => values.number(b'*'),
                Some(b'$') => values.skip_text().map(|_| 0),
                Some(b':') => values.number(b':').map(|_| 0),
                Some(_) => Err(Stop::Other),
                None => Err(Stop::Incomplete),
            };
            match more {
                Ok(more) => {
                    self.values = (self.values - 1).checked_add(more).ok_or(Stop::Other)?;
                    self.at = values.at;
                    self.passed += 1;
                    if self.values > ElementCount::MOST || self.passed > ElementCount::MOST {
                        return Err(Stop::Other);
                    }
                }
                Err(Stop::Incomplete) => return Ok(false),
                Err(Stop::Other) => return Err(Stop::Other),
            }
        }
        Ok(true)
    }
}

/// The values in some bytes.
pub(crate) struct Values<'a> {
    pub(crate) bytes: &'a [u8],
    /// The beginning of the next value.
    pub(crate) at: usize,
}

impl<'a> Values<'a> {
    /// Returns the number in a line of this kind.
    pub(crate) fn number(&mut self, kind: u8) -> Result<u64, Stop> {
        let rest = &self.bytes[self.at..];
        match rest.first() {
            None => return Err(Stop::Incomplete),
            Some(first) if *first != kind => return Err(Stop::Other),
            Some(_) => {}
        }
        let Some(end) = rest.iter().take(LINE_MAX).position(|byte| *byte == b'\r') else {
            return Err(if rest.len() < LINE_MAX { Stop::Incomplete } else { Stop::Other });
        };
        match rest.get(end + 1) {
            None => return Err(Stop::Incomplete),
            Some(b'\n') => {}
            Some(_) => return Err(Stop::Other),
        }
        self.at += end + 2;
        digits(str::from_utf8(&rest[1..end]).map_err(|_| Stop::Other)?)
    }

    /// Passes over a bulk string. Returns its bytes, with the end of the line.
    fn skip_text(&mut self) -> Result<&'a [u8], Stop> {
        let length = usize::try_from(self.number(b'$')?).map_err(|_| Stop::Other)?;
        let end = self.at.checked_add(length).and_then(|end| end.checked_add(2)).ok_or(Stop::Other)?;
        let text = self.bytes.get(self.at..end).ok_or(Stop::Incomplete)?;
        self.at = end;
        Ok(text)
    }

    /// Returns the text of a bulk string.
    pub(crate) fn text(&mut self) -> Result<&'a str, Stop> {
        let text = self.skip_text()?.strip_suffix(b"\r\n").ok_or(Stop::Other)?;
        str::from_utf8(text).map_err(|_| Stop::Other)
    }
}

/// Returns the number that `text` consists of.
pub(crate) fn digits(text: &str) -> Result<u64, Stop> {
    reply::digits(text).ok_or(Stop::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_over_pieces_of_a_reply_ends_where_the_reply_does() {
        let bytes = b"*3\r\n$2\r\n17\r\n*2\r\n$6\r\nledger\r\n$0\r\n\r\n*2\r\n*0\r\n:5\r\n";
        for piece in [1, 3, 7, 100] {
            let mut scan = Scan::new();
            let ends = (piece..bytes.len()).step_by(piece).chain([bytes.len()]);
            for end in ends {
                assert_eq!(scan.advance(&bytes[..end]), Ok(end == bytes.len()), "{end} bytes");
            }
            assert_eq!(scan.at, bytes.len());
        }
        assert_eq!(Scan::new().advance(b"*1\r\n-ERR\r\n"), Err(Stop::Other));
        assert_eq!(Scan::new().advance(b"*524289\r\n"), Err(Stop::Other));
        let many = format!("*2\r\n*400000\r\n{0}*400000\r\n{0}", ":1\r\n".repeat(400_000));
        assert_eq!(Scan::new().advance(many.as_bytes()), Err(Stop::Other));
    }
}
