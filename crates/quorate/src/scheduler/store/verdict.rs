//! The decisions about a run that follow from its record. `docs/design/scheduler.md` explains the rules.

use crate::scheduler::job::RunOutcome;

/// The decision on a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The leader writes a *started* record and executes the run, or writes an *open* record, so that a
    /// worker can execute it.
    Run,
    /// The tick does not run, for this reason.
    Skip(SkipReason),
}

/// The reason why a tick does not run. The text completes "the tick was skipped: …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkipReason {
    /// The tick has ended.
    #[error("its record is final")]
    Final,
    /// The run may have been started, and the job is at-most-once.
    #[error("it was started before, and the job is at-most-once")]
    Started,
    /// The run may have been started: too few nodes would remember a record of a start. The job is
    /// at-most-once.
    #[error("a majority of the nodes has forgotten that time, and the job is at-most-once")]
    Unknown,
    /// The tick is older than the records that the ledger keeps.
    #[error("it is older than the ledger's low-water mark")]
    Pruned,
}

/// Returns the outcome of a generation that no worker started. `end` is the outcome that the
/// leader intended. If `end` is *skipped*, a generation after the first is *cancelled* instead, because an
/// earlier generation may have been started.
pub fn voided(generation: u32, end: RunOutcome) -> RunOutcome {
    if end.is_skipped() && generation > 1 { RunOutcome::Cancelled } else { end }
}

/// Returns the number of the generation that a leader opens if it found no *open* record of the run. `known` is true if the
/// run has not started. Otherwise an earlier generation, or a leader itself, may have started it, so the new generation is
/// the second (rule R2c).
pub fn first_opened(known: bool) -> u32 {
    if known { 1 } else { 2 }
}
