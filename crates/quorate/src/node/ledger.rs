//! What stands in a ledger, and the pages in which a node tells it.

use super::FencingToken;
use std::sync::Arc;

/// How many records, about, a node looks at in one call: it serves nobody else meanwhile.
pub const PAGE_RECORDS: usize = 500;

/// How many bytes of records, about, a node tells in one call.
pub const PAGE_BYTES: usize = 256 << 10;

/// The most bytes of records in a page that is believed. A server whose operator has it keep long hashes packed tells
/// them whole, so that this is far more than [`PAGE_BYTES`].
const BELIEVED_BYTES: usize = 16 << 20;

/// The longest cursor that is believed, in bytes: a record's key, where a node goes by keys.
const CURSOR_MAX: usize = 4096;

/// A small value in a ledger.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// The time that orders it for pruning: a tick's, in microseconds since the epoch.
    pub at: u64,
    /// The term that wrote it.
    pub term: FencingToken,
    /// Whether it is the last word under its key.
    pub last: bool,
    /// The value.
    pub value: Arc<str>,
}

/// What stands in a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct LedgerState {
    /// The newest term that sealed it or wrote to it.
    pub term: FencingToken,
    /// What is before this has been forgotten on purpose.
    pub low_water: u64,
    /// The records by key, in the order of their keys.
    pub records: Vec<(Arc<str>, Record)>,
}

/// Some of what stands in a ledger: what one call tells.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LedgerPage {
    /// The term and the mark of the whole ledger, and some of its records.
    pub state: LedgerState,
    /// Where to go on; `None` once all has been told. Pages may repeat a record, and one may be empty with more to come.
    pub next: Option<Cursor>,
}

impl LedgerPage {
    /// Whether it is no longer than a node tells in one call.
    pub fn is_bounded(&self) -> bool {
        self.bytes() <= BELIEVED_BYTES && self.next.as_ref().is_none_or(Cursor::is_bounded)
    }

    /// How long the records are, with what it takes to keep them.
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

/// Where a node goes on in a ledger: its own word, which means nothing to another node, or to the same server after a
/// restart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(Arc<str>);

impl Cursor {
    /// From a node's own word.
    pub fn new(word: impl Into<Arc<str>>) -> Self {
        Self(word.into())
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is as short as one that a node gives.
    pub(crate) fn is_bounded(&self) -> bool {
        self.0.len() <= CURSOR_MAX
    }
}
