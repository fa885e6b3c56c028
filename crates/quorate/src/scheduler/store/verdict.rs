//! The decisions about a run that follow from its record. `docs/design/scheduler.md` explains the rules.

use crate::{
    config::majority,
    env::WallTime,
    ledger::Answered,
    node::copy::{HEADER_KEY, Header},
    scheduler::{
        job::RunOutcome,
        store::{OpenRun, RunRecord},
    },
};
use std::sync::Arc;

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

/// Returns the outcome of a generation that the leader ended through its slot. `end` is the outcome that the
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

/// Returns the run's time or the beginning of the leader's term, whichever is later. A node counts for the slots of the
/// generations that the leader opens only if the node's memory began before this time (rule R13).
pub fn memory_needed(run: WallTime, term_began: WallTime) -> WallTime {
    run.max(term_began)
}

/// Returns the open record that a worker may take, if there is one: a majority of the node set, which has
/// `nodes` nodes, must store it (rule R3).
///
/// A node counts only if the leader that wrote the record, or a later one, has marked the node's copy. So the next leader finds
/// the record.
pub fn is_open(answers: &[Answered], key: &str, nodes: usize) -> Option<OpenRun> {
    let counted = answers.iter().filter_map(|answer| {
        let (record, header) = (answer.record(key)?, Header::of_record(answer.record(HEADER_KEY)?)?);
        (header.mark >= Some(record.term)).then_some(&record.value)
    });
    let values: Vec<&Arc<str>> = counted.collect();
    let same = |value: &Arc<str>| values.iter().filter(|other| ***other == *value).count();
    let value = values.iter().find(|value| same(value) >= majority(nodes))?;
    match RunRecord::parse(value) {
        Ok(RunRecord::Open(open)) => Some(open),
        _ => None,
    }
}
