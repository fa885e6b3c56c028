//! The invariant of the jobs that are stored on the nodes.

use super::{
    Event, Invariant,
    memories::{Foundings, Memories},
    pool_log::{NOTICED_IN, PoolLog},
};
use crate::sim::{Excuse, StoredStep, scenario::true_wall, worker::POOL};
use quorate::env::WallTime;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The time in the fault-free phase within which each stored job must have started a run. No job has a longer period.
const RUNS_IN: Duration = Duration::from_millis(2_400);
/// The longest time before its tick at which a leader of the group opens a run, twice the longest TTL, and the offset of clocks.
const OPENED_AHEAD: Duration = Duration::from_secs(6);

/// Requires of each job that is stored on the nodes:
///
/// - Each run has the payload of its job.
/// - If a majority has stored it and its removal was not requested, it runs in the fault-free phase, whichever worker leads.
///   A single run has started by then. If a freeze of the group left it out, the history says so.
/// - No run starts after the removal was confirmed, apart from one that was open to workers before.
///
/// A job or a removal that servers lost does not count: the ledger was founded after it was requested.
#[derive(Debug, Default)]
pub(super) struct StoredJobs {
    jobs: BTreeMap<String, StoredJob>,
    log: PoolLog,
    foundings: Foundings,
    memories: Memories,
    /// The single runs that a freeze left out, by their histories.
    frozen: BTreeSet<String>,
    judged: u64,
    singles: u64,
    removed: u64,
}

#[derive(Debug, Default)]
struct StoredJob {
    /// The true time at which the request to store it was sent.
    asked: Duration,
    /// The time of a single run.
    due: Option<WallTime>,
    /// The true time at which the job was confirmed as stored.
    put: Option<Duration>,
    /// The true time at which the request to remove it was sent.
    removing: Option<Duration>,
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
        vec![
            ("stored job judged", self.judged),
            ("single run judged", self.singles),
            ("removed job judged", self.removed),
        ]
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        let wall = true_wall(now);
        self.log.see(wall, event);
        self.foundings.see(wall, POOL, event);
        self.memories.see(wall, event);
        match event {
            Event::JobStep { job, step } => {
                let known = self.jobs.entry((*job).to_owned()).or_default();
                match *step {
                    StoredStep::Putting { due } => (known.asked, known.due) = (now, due),
                    StoredStep::Put => known.put = Some(now),
                    StoredStep::Removing => known.removing = Some(now),
                    StoredStep::Removed => known.removed = Some(now),
                }
            }
            Event::StoredFrozen { job } => drop(self.frozen.insert((*job).to_owned())),
            Event::StoredRun { job, tick, is_own_payload } => {
                return self.ran(now, job, *tick, *is_own_payload);
            }
            Event::Settled { since, until } => return self.settled(*since, *until),
            _ => {}
        }
        Ok(())
    }
}

impl StoredJobs {
    fn ran(&mut self, now: Duration, job: &str, tick: WallTime, is_own_payload: bool) -> Result<(), String> {
        let known = self.jobs.entry(job.to_owned()).or_default();
        known.ran = Some(now);
        if !is_own_payload {
            return Err(format!("a run of {job} has another payload"));
        }
        let Some((removing, removed)) = known.removing.zip(known.removed) else { return Ok(()) };
        let was_open = tick < true_wall(removed) + OPENED_AHEAD;
        if now < removed + NOTICED_IN
            || Excuse::StoredOpen.excuses(was_open)
            || Excuse::StoredForgotten.excuses(self.foundings.any_since(true_wall(removing)))
        {
            return Ok(());
        }
        Err(format!("{job}, due at {tick:?}, starts after its removal was confirmed at {removed:?}"))
    }

    fn settled(&mut self, since: WallTime, until: WallTime) -> Result<(), String> {
        if since + RUNS_IN > until {
            return Ok(());
        }
        for (name, job) in &self.jobs {
            let gone = job.removed.map(|removed| true_wall(removed + NOTICED_IN) + OPENED_AHEAD);
            let lost_from = true_wall(job.removing.unwrap_or(job.asked));
            // A run of it would have been an error for at least the time of one period.
            self.removed += u64::from(
                gone.is_some_and(|gone| gone + RUNS_IN < until) && !self.foundings.any_since(lost_from),
            );
            let Some(put) = job.put.filter(|_| job.removing.is_none()) else { continue };
            let has_run = job.ran.is_some_and(|ran| job.due.is_some() || since <= true_wall(ran));
            if has_run {
                let count = if job.due.is_some() { &mut self.singles } else { &mut self.judged };
                *count += 1;
                continue;
            }
            let is_lost = self.foundings.any_since(lost_from);
            if Excuse::StoredForgotten.excuses(is_lost) || self.was_frozen(name, job.due) {
                continue;
            }
            return Err(format!("{name} was stored at {put:?}, and has not run since {since:?}"));
        }
        Ok(())
    }

    /// Returns `true` if a freeze left out the single run that was due at this time.
    fn was_frozen(&self, name: &str, due: Option<WallTime>) -> bool {
        due.is_some_and(|due| {
            let is_entered = self.frozen.contains(name) || self.memories.forgot().any(|forgot| due < forgot);
            self.log.may_be_frozen(name, due) && Excuse::StoredFrozen.excuses(is_entered)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::pool_log::made, *};
    use crate::sim::Told;
    use quorate::internals::JobAction;

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
        step(&mut stored, 9, "stored-1", StoredStep::Putting { due: None });
        step(&mut stored, 10, "stored-1", StoredStep::Put);
        assert!(run(&mut stored, 900, 900, true).is_ok());
        assert!(run(&mut stored, 1_800, 1_800, false).unwrap_err().contains("another payload"));
        step(&mut stored, 2_000, "stored-1", StoredStep::Removing);
        step(&mut stored, 2_100, "stored-1", StoredStep::Removed);
        assert!(run(&mut stored, 2_700, 2_700, true).is_ok());
        assert!(run(&mut stored, 20_000, 20_000, true).unwrap_err().contains("after its removal"));
        assert_eq!(settled(&mut stored), Ok(()));
        assert_eq!(stored.removed, 1);
        made::founded(&mut stored, 19_000, POOL, 1).unwrap();
        assert_eq!(run(&mut stored, 20_000, 20_000, true), Ok(()), "the ledger has lost the removal");
    }

    fn settled(stored: &mut StoredJobs) -> Result<(), String> {
        let (since, until) = (true_wall(at(20_000)), true_wall(at(22_500)));
        see(stored, 22_500, &Event::Settled { since, until })
    }

    #[test]
    fn a_stored_job_must_run_in_the_calm() {
        let mut stored = StoredJobs::default();
        step(&mut stored, 10, "stored-1", StoredStep::Put);
        assert!(run(&mut stored, 19_000, 19_000, true).is_ok());
        assert!(settled(&mut stored).unwrap_err().contains("has not run since"));
        made::founded(&mut stored, 19_500, POOL, 1).unwrap();
        assert_eq!((settled(&mut stored), stored.judged), (Ok(()), 0), "the nodes have lost it");
        assert!(run(&mut stored, 21_000, 21_000, true).is_ok());
        assert_eq!((settled(&mut stored), stored.judged), (Ok(()), 1));
    }

    #[test]
    fn a_single_run_must_start_unless_the_history_says_that_it_was_frozen() {
        let mut stored = StoredJobs::default();
        step(&mut stored, 10, "single-2", StoredStep::Putting { due: Some(true_wall(at(3_000))) });
        step(&mut stored, 11, "single-2", StoredStep::Put);
        let freeze = JobAction::Freeze { reason: None, until: made::at(4_000) };
        made::asks(&mut stored, 100, freeze, Told::Unknown { id: None }).unwrap();
        assert!(settled(&mut stored).unwrap_err().contains("has not run since"), "no entry says why");
        see(&mut stored, 22_400, &Event::StoredFrozen { job: "single-2" }).unwrap();
        assert_eq!((settled(&mut stored), stored.singles), (Ok(()), 0));
        step(&mut stored, 12, "single-3", StoredStep::Put);
        assert!(settled(&mut stored).is_err());
        step(&mut stored, 13, "single-3", StoredStep::Removing);
        assert_eq!(settled(&mut stored), Ok(()));
    }
}
