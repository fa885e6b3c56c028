//! The invariant of the jobs that are stored on the nodes.

use super::{Event, Invariant, memories::Memories, pool_log::NOTICED_IN};
use crate::sim::{Excuse, StoredStep, scenario::true_wall};
use quorate::env::WallTime;
use std::{collections::BTreeMap, time::Duration};

/// The time in the fault-free phase within which each stored job must have started a run. No job has a longer period.
const RUNS_IN: Duration = Duration::from_millis(2_400);
/// The longest time before its tick at which a leader of the group opens a run, twice the longest TTL, and the offset of clocks.
const OPENED_AHEAD: Duration = Duration::from_secs(6);

/// Requires of each job that is stored on the nodes:
///
/// - Each run has the payload of its job.
/// - If a majority has stored it and its removal was not requested, it runs in the fault-free phase, whichever worker leads.
///   A single run has started by then.
/// - No run starts after the removal was confirmed, apart from one that was open to workers before.
///
/// A job that servers lost need not run: at least one server lost data after the job was stored.
#[derive(Debug, Default)]
pub(super) struct StoredJobs {
    jobs: BTreeMap<String, StoredJob>,
    memories: Memories,
    judged: u64,
    removed: u64,
}

#[derive(Debug, Default)]
struct StoredJob {
    /// The true time at which the job was confirmed as stored.
    put: Option<Duration>,
    is_removing: bool,
    /// The true time at which the removal was confirmed.
    removed: Option<Duration>,
    /// The true time of the last start.
    ran: Option<Duration>,
}

impl Invariant for StoredJobs {
    fn name(&self) -> &'static str {
        "stored jobs"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("stored job judged", self.judged), ("removed job judged", self.removed)]
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        self.memories.see(true_wall(now), event);
        match event {
            Event::JobStep { job, step } => {
                let known = self.jobs.entry((*job).to_owned()).or_default();
                match step {
                    StoredStep::Put => known.put = Some(now),
                    StoredStep::Removing => known.is_removing = true,
                    StoredStep::Removed => known.removed = Some(now),
                }
                Ok(())
            }
            Event::StoredRun { job, tick, is_own_payload } => self.ran(now, job, *tick, *is_own_payload),
            Event::Settled { since, until } => self.settled(*since, *until),
            _ => Ok(()),
        }
    }
}

impl StoredJobs {
    fn ran(&mut self, now: Duration, job: &str, tick: WallTime, is_own_payload: bool) -> Result<(), String> {
        let known = self.jobs.entry(job.to_owned()).or_default();
        known.ran = Some(now);
        if !is_own_payload {
            return Err(format!("a run of {job} has another payload"));
        }
        let Some(removed) = known.removed else { return Ok(()) };
        self.removed += 1;
        let was_open = tick < true_wall(removed) + OPENED_AHEAD;
        if now < removed + NOTICED_IN || Excuse::StoredOpen.excuses(was_open) {
            return Ok(());
        }
        Err(format!("{job}, due at {tick:?}, starts after its removal was confirmed at {removed:?}"))
    }

    fn settled(&mut self, since: WallTime, until: WallTime) -> Result<(), String> {
        if since + RUNS_IN > until {
            return Ok(());
        }
        let forgot = self.memories.forgot().max().unwrap_or_default();
        for (name, job) in &self.jobs {
            let Some(put) = job.put.filter(|_| !job.is_removing) else { continue };
            if Excuse::StoredForgotten.excuses(true_wall(put) <= forgot) {
                continue;
            }
            self.judged += 1;
            let is_single = name.starts_with("single");
            let has_run = job.ran.is_some_and(|ran| is_single || since <= true_wall(ran));
            if !has_run {
                return Err(format!("{name} was stored at {put:?}, and has not run since {since:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn see(stored: &mut StoredJobs, ms: u64, event: &Event<'_>) -> Result<(), String> {
        stored.see(at(ms), event)
    }

    fn step(stored: &mut StoredJobs, ms: u64, job: &str, step: StoredStep) {
        see(stored, ms, &Event::JobStep { job, step }).unwrap();
    }

    fn run(stored: &mut StoredJobs, ms: u64, due: u64, is_own_payload: bool) -> Result<(), String> {
        let tick = true_wall(at(due));
        see(stored, ms, &Event::StoredRun { job: "stored-1", tick, is_own_payload })
    }

    #[test]
    fn a_removed_job_may_start_only_what_was_open() {
        let mut stored = StoredJobs::default();
        step(&mut stored, 10, "stored-1", StoredStep::Put);
        assert!(run(&mut stored, 900, 900, true).is_ok());
        assert!(run(&mut stored, 1_800, 1_800, false).unwrap_err().contains("another payload"));
        step(&mut stored, 2_000, "stored-1", StoredStep::Removing);
        step(&mut stored, 2_100, "stored-1", StoredStep::Removed);
        assert!(run(&mut stored, 2_700, 2_700, true).is_ok());
        assert!(run(&mut stored, 20_000, 20_000, true).unwrap_err().contains("after its removal"));
    }

    #[test]
    fn a_stored_job_must_run_in_the_calm() {
        let settled = |stored: &mut StoredJobs| {
            let (since, until) = (true_wall(at(20_000)), true_wall(at(22_500)));
            see(stored, 22_500, &Event::Settled { since, until })
        };
        let mut stored = StoredJobs::default();
        step(&mut stored, 10, "stored-1", StoredStep::Put);
        assert!(run(&mut stored, 19_000, 19_000, true).is_ok());
        assert!(settled(&mut stored).unwrap_err().contains("has not run since"));
        assert!(run(&mut stored, 21_000, 21_000, true).is_ok());
        assert_eq!(settled(&mut stored), Ok(()));
        step(&mut stored, 11, "single-2", StoredStep::Put);
        assert!(settled(&mut stored).is_err());
        step(&mut stored, 12, "single-2", StoredStep::Removing);
        assert_eq!(settled(&mut stored), Ok(()));
    }
}
