//! The state of a run, as the nodes store it, for the commands that show the output of a run.

use crate::{exit::Failure, failures};
use quorate::{
    env::WallTime,
    scheduler::{HistoryEntry, JobStatus, Jobs, RunOutcome},
};
use std::{iter, time::Duration};

/// The number of entries of a history among which a run is looked for.
pub(super) const ENTRIES: usize = 10_000;

/// The state of one run.
#[derive(Debug)]
pub(super) enum RunState {
    /// A worker executes the run, or a leader will repeat it or record it as lost.
    Active,
    Ended(Box<HistoryEntry>),
    /// The history no longer has an entry as old as the run.
    Forgotten,
    /// The nodes store neither a start nor an end of the run.
    Unknown,
}

/// A run and its worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Newest {
    pub(super) tick: WallTime,
    pub(super) worker: String,
}

/// Returns the pauses between the reads of the nodes while a run is active. Each read is that of a whole history.
pub(super) fn pauses() -> impl Iterator<Item = Duration> {
    let longest = Duration::from_secs(5);
    iter::successors(Some(Duration::from_secs(1)), move |pause| Some((*pause * 2).min(longest)))
}

/// Reads the state of a run.
pub(super) async fn state_of(jobs: &Jobs, job: &str, tick: WallTime) -> Result<RunState, Failure> {
    let status = jobs.show(job).await.map_err(|error| failures::of_jobs(&error))?;
    if status.running.iter().any(|run| run.tick == tick) {
        return Ok(RunState::Active);
    }
    let is_its = |entry: &HistoryEntry| entry.tick == tick;
    if let Some(entry) = status.last.into_iter().find(is_its) {
        return Ok(RunState::Ended(Box::new(entry)));
    }
    let entries = jobs.history(job, ENTRIES).await.map_err(|error| failures::of_jobs(&error))?;
    let is_forgotten = entries.iter().map(|entry| entry.tick).min().is_some_and(|oldest| oldest > tick);
    Ok(match entries.into_iter().find(is_its) {
        Some(entry) => RunState::Ended(Box::new(entry)),
        None if is_forgotten => RunState::Forgotten,
        None => RunState::Unknown,
    })
}

/// Reads the newest run of a job, which may be active.
pub(super) async fn newest(jobs: &Jobs, job: &str) -> Result<Option<Newest>, Failure> {
    let mut status = jobs.show(job).await.map_err(|error| failures::of_jobs(&error))?;
    if !status.last.iter().any(was_executed) {
        // The newest entries may all be of skipped ticks.
        status.last = jobs.history(job, ENTRIES).await.map_err(|error| failures::of_jobs(&error))?;
    }
    Ok(newest_of(&status))
}

fn newest_of(status: &JobStatus) -> Option<Newest> {
    let active = status.running.iter().map(|run| (run.tick, &run.worker));
    let ended =
        status.last.iter().filter(|entry| was_executed(entry)).map(|entry| (entry.tick, &entry.worker));
    let newest = active.chain(ended).max_by_key(|(tick, _)| *tick);
    newest.map(|(tick, worker)| Newest { tick, worker: worker.to_string() })
}

/// Returns whether a worker has executed the run, at least in part.
pub(super) fn was_executed(entry: &HistoryEntry) -> bool {
    entry.took.is_some() || entry.started.is_some() || entry.end == RunOutcome::Lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_are_read_a_few_times_a_minute() {
        let mut passed = Duration::ZERO;
        let reads = pauses().take_while(|pause| {
            passed += *pause;
            passed <= Duration::from_secs(60)
        });
        assert_eq!(reads.count(), 13);
        assert_eq!(pauses().next(), Some(Duration::from_secs(1)), "a short run is shown soon after its end");
    }
}
