//! Writes the records of runs. The rules R13 and R14 of the protocol (`docs/design/scheduler.md`) apply.

use crate::{
    election::Term,
    env::WallTime,
    ledger::{Ledger, LedgerError},
    node::Record,
    scheduler::store::{
        RunRecord, WRITE_RETRY,
        verdict::{goes_forward, memory_needed, overwrites},
    },
};
use std::sync::Arc;

/// The largest number of other records of a run that one write overwrites, one after another.
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
    /// True if the seal was answered by a majority of nodes that would remember a record of the time `at`.
    pub(in crate::scheduler) remembering: bool,
}

/// The reason why a record was not written.
#[derive(Debug)]
pub(in crate::scheduler) enum NotWritten {
    /// The nodes have another record, which decides on the run. This leader may not overwrite that record.
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

    /// Returns a time for this leader's writes of the run: a node counts for them only if the node's memory
    /// began before this time (rule R13).
    pub(in crate::scheduler) fn memory(&self, run: &RunId) -> WallTime {
        memory_needed(run.at, self.term.began())
    }

    /// Returns the ledger record of `written` under this leader's term.
    pub(in crate::scheduler) fn record(&self, run: &RunId, written: RunRecord) -> Record {
        written.into_record(run.at, self.term.token())
    }

    /// Writes `target` until a majority of nodes whose memories count for the run ([`RunWriter::memory`])
    /// stores it. The write overwrites `seen`, and any other record that rule R14 permits. If no majority
    /// answers, the write is repeated until the term ends. With `once` it is not repeated.
    pub(in crate::scheduler) async fn write(
        &self,
        run: &RunId,
        seen: Option<Record>,
        target: &Record,
        once: bool,
    ) -> Result<(), NotWritten> {
        self.write_to(run, seen, target, self.memory(run), once).await
    }

    /// Tries once to store `target`, the *open* record of a generation, on a majority of those nodes whose
    /// memories began before `at`, the time of the generation. Workers take a generation only if such a
    /// majority stores the same record (rule R3). A leader that continues the generation of an earlier leader
    /// may have written its record to another majority of the nodes. `seen` is the record that decided at the
    /// seal.
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

    /// Writes in the same way as [`RunWriter::write`], but a node counts only if its memory began before
    /// `memory`.
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
