use crate::{
    node::{FencingToken, Record},
    vote::NoMajority,
};

/// The reason why a ledger could not be sealed, read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// A later term has sealed the ledger, so the writer no longer leads.
    #[error("the ledger is sealed by the later term {by}")]
    Superseded {
        /// The later term.
        by: FencingToken,
    },
    /// Nodes store this record, which differs from the record that the leader had read before its write.
    #[error("another record stands: {0:?}")]
    Standing(Record),
    /// So many nodes have forgotten the ledger under this leader that it cannot make a majority complete. The next leader begins
    /// the ledger again.
    #[error(
        "a majority of the nodes has forgotten the ledger under this leader; the next one begins it again"
    )]
    Stranded,
    /// The leader's term has ended.
    #[error("the term has ended")]
    Ended,
    /// Too few of the nodes that remember the record's time answered.
    #[error("too few nodes answered for the ledger: {0}")]
    NoMajority(NoMajority),
}
