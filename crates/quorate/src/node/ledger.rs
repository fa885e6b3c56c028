//! The content of a ledger, and the pages in which a node returns it.

use super::FencingToken;
use std::sync::Arc;

/// The approximate number of records that a node reads in one call. The node serves no other client during the
/// call.
pub const PAGE_RECORDS: usize = 500;

/// The approximate number of bytes of records that a node returns in one call.
pub const PAGE_BYTES: usize = 256 << 10;

/// The largest page that a client accepts, in bytes of records. The limit is far larger than [`PAGE_BYTES`],
/// because a Redis server returns a hash in the packed encoding as a whole, and may be configured to store
/// long hashes in this encoding.
const BELIEVED_BYTES: usize = 16 << 20;

/// The longest cursor that a client accepts, in bytes. Some kinds of node use the key of the last record as
/// the cursor, so the keys of records must not be longer either.
const CURSOR_MAX: usize = 4096;

/// An entry of a ledger: a small value with its time and its term.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// The time that decides when the record is pruned, in microseconds since the epoch. For a record of a
    /// tick, it is the tick's time.
    pub at: u64,
    /// The term that wrote the record, in a led ledger. It is 0 in a part, which any client writes.
    pub term: FencingToken,
    /// True if the record is final, so that no other record may replace it.
    pub last: bool,
    /// The text that the writer stored. The node does not read it.
    pub value: Arc<str>,
}

/// The content of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct LedgerState {
    /// The low-water mark: records before it have been pruned.
    pub low_water: u64,
    /// The records with their keys. A page is in no order, and may have a key twice: the later record is the newer one.
    pub records: Vec<(Arc<str>, Record)>,
}

/// One page of a ledger, as one call returns it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LedgerPage {
    /// The low-water mark of the whole ledger, and some of its records.
    pub state: LedgerState,
    /// The cursor of the next page, or `None` after the last page. Pages may repeat a record. A page may be
    /// empty although more pages follow.
    pub next: Option<Cursor>,
}

impl LedgerPage {
    /// Returns whether the page is short enough for a client to accept it.
    pub fn is_bounded(&self) -> bool {
        self.bytes() <= BELIEVED_BYTES && self.next.as_ref().is_none_or(Cursor::is_bounded)
    }

    /// Returns the size of the records in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let records = self.state.records.iter();
        records.map(|(key, record)| key.len() + record.value.len() + size_of::<Record>()).sum()
    }
}

impl From<LedgerState> for LedgerPage {
    fn from(state: LedgerState) -> Self {
        Self { state, next: None }
    }
}

/// The position in a node's ledger at which the next page begins. A cursor is opaque, and valid neither for
/// another node nor for the same server after a restart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(Arc<str>);

impl Cursor {
    /// Wraps the text that a node returned.
    pub fn new(word: impl Into<Arc<str>>) -> Self {
        Self(word.into())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the cursor is short enough for a client to accept it.
    pub(crate) fn is_bounded(&self) -> bool {
        self.0.len() <= CURSOR_MAX
    }
}
