use crate::{
    node::{FencingToken, Record},
    vote::Report,
};

/// Why a ledger could not be sealed, read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// A later term has sealed the ledger: this leader is a leader no more.
    #[error("the ledger is sealed by the later term {by}")]
    Superseded {
        /// The later term.
        by: FencingToken,
    },
    /// Another record stands than the leader has seen.
    #[error("another record stands: {0:?}")]
    Standing(Record),
    /// So many nodes have forgotten that time, on purpose or not, that no majority is left to write to. Time
    /// does not cure it.
    #[error("too few nodes can remember a record of that time: {0}")]
    Forgotten(Report),
    /// Too few nodes that can know answered.
    #[error("too few nodes answered for the ledger: {0}")]
    NoMajority(Report),
}
