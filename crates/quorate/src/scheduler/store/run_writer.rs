//! Writes the records of runs, as the rules R13 and R14 of the protocol demand (`docs/design/scheduler.md`).

use crate::{
    election::Term,
    env::WallTime,
    ledger::{Ledger, LedgerError},
    node::Record,
    scheduler::{RunRecord, goes_forward, memory_needed, overwrites, store::WRITE_RETRY},
};
use std::sync::Arc;

/// The largest number of other records that one write overwrites. They are overwritten one after another.
const OVERWRITES_MAX: usize = 32;

/// Writes the records of runs under one term.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct RunWriter {
    ledger: Ledger,
    term: Term,
}

/// The run to which a record belongs.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scheduler) struct RunId {
    pub(in crate::scheduler) key: Arc<str>,
    /// The earliest time at which a record of the run may exist.
    pub(in crate::scheduler) at: WallTime,
    /// True if a majority of the nodes that answered the seal would remember a record of the time `at`.
    pub(in crate::scheduler) remembering: bool,
}

/// The reason why a record was not written.
#[derive(Debug)]
pub(in crate::scheduler) enum NotWritten {
    /// The nodes have another record, which now decides on the run, and which this leader may not overwrite.
    Met(Record),
    Ledger(LedgerError),
}

impl RunWriter {
    pub(in crate::scheduler) fn new(ledger: &Ledger, term: &Term) -> Self {
        Self { ledger: ledger.clone(), term: term.clone() }
    }

    pub(in crate::scheduler) fn term(&self) -> &Term {
        &self.term
    }

    pub(in crate::scheduler) fn worker(&self) -> &Arc<str> {
        &self.term.quorum().config().worker
    }

    /// Returns the time before which a node's memory must have begun, so that the node counts for this leader's
    /// writes of the run (rule R13).
    pub(in crate::scheduler) fn memory(&self, run: &RunId) -> WallTime {
        memory_needed(run.at, self.term.began())
    }

    /// Returns the ledger record of `written` under this leader's term.
    pub(in crate::scheduler) fn record(&self, run: &RunId, written: RunRecord) -> Record {
        written.into_record(run.at, self.term.token())
    }

    /// Writes `target` until enough nodes store it: a majority of nodes whose memories count for the run
    /// ([`RunWriter::memory`]). The write overwrites `seen`, and any other record that rule R14 permits. If no
    /// majority answers, the write is repeated until the term ends, or not at all with `once`.
    pub(in crate::scheduler) async fn write(
        &self,
        run: &RunId,
        seen: Option<Record>,
        target: &Record,
        once: bool,
    ) -> Result<(), NotWritten> {
        self.write_to(run, seen, target, self.memory(run), once).await
    }

    /// Tries once to store `target`, the *open* record of a generation, on a majority of the nodes whose
    /// memories began before `at`, the generation's time. Workers take a generation only if such a majority
    /// stores the same record (rule R3). A leader that continues an earlier leader's generation may have
    /// written the record to another majority. `seen` is the record that decided at the seal.
    pub(in crate::scheduler) async fn spread(
        &self,
        run: &RunId,
        seen: Option<&Record>,
        target: &Record,
        at: WallTime,
    ) {
        if let Err(error) = self.write_to(run, seen.cloned(), target, at, true).await {
            tracing::debug!(
                run = &*run.key,
                "too few nodes have its record for a worker to take it: {error}"
            );
        }
    }

    /// Writes like [`RunWriter::write`]. A node counts only if its memory began before `memory`.
    async fn write_to(
        &self,
        run: &RunId,
        mut seen: Option<Record>,
        target: &Record,
        memory: WallTime,
        once: bool,
    ) -> Result<(), NotWritten> {
        let (decided, mut overwritten) = (seen.clone(), 0);
        loop {
            let written =
                self.ledger.write_remembered(&run.key, seen.as_ref(), target, memory.as_micros()).await;
            match written {
                Ok(()) => return Ok(()),
                Err(LedgerError::Standing(met)) if overwritten < OVERWRITES_MAX => {
                    overwritten += 1;
                    let may = match met.term == target.term {
                        true => goes_forward(&met, target),
                        false => overwrites(target, decided.as_ref(), &met, run.remembering),
                    };
                    if !may {
                        return Err(NotWritten::Met(met));
                    }
                    seen = Some(met);
                }
                Err(LedgerError::NoMajority(_)) if !once && self.term.is_valid() => {
                    self.term.env().sleep(WRITE_RETRY).await;
                }
                Err(error) => return Err(NotWritten::Ledger(error)),
            }
        }
    }
}

impl std::fmt::Display for NotWritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Met(record) => write!(f, "another record decides: {record:?}"),
            Self::Ledger(error) => error.fmt(f),
        }
    }
}
