//! The records that a copy has beside those of its leader.

use super::{AssignmentId, Entry, Header, Register, Seal, Stamp};
use crate::node::{FencingToken, Incarnation, Record};
use std::sync::Arc;

/// The key of the header.
pub const HEADER_KEY: &str = "!";

/// Returns whether a leader may store a record under this key.
pub fn is_key(key: &str) -> bool {
    key.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// Returns the key of the register of the assignment under `key`.
pub fn register_key(key: &str) -> Arc<str> {
    format!("@{key}").into()
}

/// Returns the key of the end of the assignment under `key`.
pub fn end_key(key: &str) -> Arc<str> {
    format!("${key}").into()
}

/// Returns the key of the record to which a register belongs, if `key` is that of a register.
pub fn run_of_register(key: &str) -> Option<&str> {
    key.strip_prefix('@')
}

/// Returns the key of the record to which an end belongs, if `key` is that of an end.
pub fn run_of_end(key: &str) -> Option<&str> {
    key.strip_prefix('$')
}

/// Returns the record of the end of an assignment.
pub fn end_row(id: AssignmentId, value: Arc<str>) -> Record {
    record(id, value)
}

fn record(Stamp { term, seq }: Stamp, value: Arc<str>) -> Record {
    Record { at: seq, term, last: false, value }
}

impl Stamp {
    /// Returns the stamp of the write that stored a record, or the assignment to which a register or an end belongs.
    pub fn of(record: &Record) -> Self {
        Self { term: record.term, seq: record.at }
    }
}

impl Header {
    /// Returns the record under [`HEADER_KEY`]. `None` if the copy is not sealed; then nothing is stored.
    pub fn to_record(&self) -> Option<Record> {
        let Self { incarnation, seal, mark, founded, removed } = self;
        let Seal { term, leader } = (*seal)?;
        let mark = mark.map_or_else(|| "-".to_owned(), |term| term.to_string());
        let value = format!("{leader:016x}:{incarnation}:{mark}:{founded}:{removed}").into();
        Some(record(Stamp { term, seq: 0 }, value))
    }

    /// Reads the record under [`HEADER_KEY`]. `None` if it is not the record of a header.
    pub fn of_record(record: &Record) -> Option<Self> {
        let mut parts = record.value.split(':');
        let mut next = || parts.next();
        let leader = u64::from_str_radix(next().filter(|text| text.len() == 16)?, 16).ok()?;
        let incarnation = Incarnation::parse(next()?)?;
        let mark = match next()? {
            "-" => None,
            term => Some(FencingToken::new(term.parse().ok()?)),
        };
        let founded = FencingToken::new(next()?.parse().ok()?);
        let removed = next()?.parse().ok()?;
        let seal = Some(Seal { term: record.term, leader });
        next().is_none().then_some(Self { incarnation, seal, mark, founded, removed })
    }
}

/// The record of an assignment's register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterRow {
    /// The assignment.
    pub id: AssignmentId,
    /// The memory of the node in which the register was made. In any other one the node takes no part.
    pub memory: Incarnation,
    /// The register. `None` if the node never took part.
    pub register: Option<Register>,
}

impl RegisterRow {
    /// Returns the row of a record's entry in the memory `memory`. `None` if the record is no assignment.
    pub fn of(entry: &Entry, memory: Incarnation) -> Option<Self> {
        entry.assignment.map(|id| Self { id, memory, register: entry.register })
    }

    /// Returns the register as it counts in the memory `present`.
    pub fn in_memory(&self, present: Incarnation) -> Option<Register> {
        self.register.filter(|_| self.memory == present)
    }

    /// Returns the record under [`register_key`].
    pub fn to_record(self) -> Record {
        let state = match self.register {
            None => '-',
            Some(Register::Open) => 'o',
            Some(Register::Started) => 's',
            Some(Register::Void) => 'v',
        };
        record(self.id, format!("{}:{state}", self.memory).into())
    }

    /// Reads the record under [`register_key`]. `None` if it is not the record of a register.
    pub fn of_record(record: &Record) -> Option<Self> {
        let (memory, state) = record.value.split_once(':')?;
        let register = match state {
            "-" => None,
            "o" => Some(Register::Open),
            "s" => Some(Register::Started),
            "v" => Some(Register::Void),
            _ => return None,
        };
        Some(Self { id: Stamp::of(record), memory: Incarnation::parse(memory)?, register })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(term: u64, seq: u64) -> Stamp {
        Stamp { term: FencingToken::new(term), seq }
    }

    #[test]
    fn the_record_of_a_header_keeps_every_field() {
        let mut header = Header::empty(Incarnation::from_number(7));
        assert_eq!(header.to_record(), None);
        assert_eq!(header.seal(Seal { term: FencingToken::new(3), leader: 0xab }), Ok(()));
        assert_eq!(Header::of_record(&header.to_record().unwrap()), Some(header));
        header.mark(FencingToken::new(3), FencingToken::new(2));
        header.remove(9);
        let record = header.to_record().unwrap();
        assert_eq!(&*record.value, "00000000000000ab:0000000000000007:3:2:9");
        assert_eq!(Header::of_record(&record), Some(header));
        for value in ["", "ab:0000000000000007:3:2:9", "00000000000000ab:0000000000000007:3:2:9:1"] {
            assert_eq!(Header::of_record(&Record { value: value.into(), ..record.clone() }), None, "{value}");
        }
    }

    #[test]
    fn a_register_counts_only_in_the_memory_in_which_it_was_made() {
        let (one, two) = (Incarnation::from_number(1), Incarnation::from_number(2));
        for register in [None, Some(Register::Open), Some(Register::Started), Some(Register::Void)] {
            let row = RegisterRow { id: stamp(2, 5), memory: one, register };
            assert_eq!(RegisterRow::of_record(&row.to_record()), Some(row));
            assert_eq!((row.in_memory(one), row.in_memory(two)), (register, None));
        }
        let other = Record { value: "0000000000000001:x".into(), ..record(stamp(2, 5), "".into()) };
        assert_eq!(RegisterRow::of_record(&other), None);
    }
}
