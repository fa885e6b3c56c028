//! The invariant of the ticks of the second group of the simulation, also called the pool. Most of its jobs
//! run on any worker.

use super::{
    Event, Invariant,
    closed_records::ClosedRecords,
    parsed,
    pool_log::{PoolLog, Run, RunOf},
};
use crate::sim::{
    Beside, Excuse, RunStart, Stored,
    scenario::true_wall,
    worker::{POOL, PoolSpec},
};
use quorate::{
    env::WallTime,
    internals::{JobRow, RunKey, RunRecord},
    scheduler::{Delivery, HistoryEntry, Overlap, RunOutcome},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The largest amount by which a worker's estimate of the servers' clocks may be ahead of these clocks. The
/// worker estimates the servers' time with its own boot clock, whose rate differs a little.
const CARRIED: Duration = Duration::from_millis(100);
/// The time after which a due tick must have started. A younger tick is not judged.
const YOUNG: Duration = Duration::from_secs(1);
/// The time after a pause within which a process must have ended the runs that it must not continue.
const WAKES_IN: Duration = Duration::from_millis(250);

/// Requires that every tick of the second group runs according to its job's rules, on any worker:
///
/// - A run starts under a claim or a term that its worker considers valid. A tick does not start before it is
///   due, by the clocks of a majority of the servers.
/// - Two runs of a job are not active at once, on any workers, unless its overlap rule is [`Overlap::Allow`].
/// - Once the faults are over, every tick starts. For a job that catches up all missed ticks, every tick has
///   come to an end. Under at-least-once, a handler has ended by itself. Under at-most-once, a handler has
///   started or the history has an entry.
///
/// Some violations are excused. The servers may have lost the entry of a tick of which they had a closed record. The operator may have paused the job or cancelled its runs. A worker that is
/// paused, or whose boot clock stood still, may continue a run while the next one is active.
/// Ticks before the newest registration of a job are not judged: a majority may have forgotten the earlier
/// registration. Any-worker jobs are not judged if they do not run after the faults.
#[derive(Debug, Default)]
pub(super) struct Runs {
    log: PoolLog,
    /// For each job, the time from which its ticks count: the latest `since` of all rows ([`JobRow`]) of the
    /// job that any server has accepted.
    since: BTreeMap<Arc<str>, WallTime>,
    histories: BTreeMap<Arc<str>, Vec<HistoryEntry>>,
    closed: ClosedRecords,
    /// The ticks of which closed records have counted.
    recorded: BTreeSet<RunKey>,
    reckoned: u64,
    overlaps: u64,
    asleep: u64,
}

impl Invariant for Runs {
    fn name(&self) -> &'static str {
        "runs"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("pool tick reckoned", self.reckoned),
            ("pool runs side by side, permitted", self.overlaps),
            ("pool asleep after the faults", self.asleep),
        ]
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        self.log.see(true_wall(now), event);
        for stored in event.stored().into_iter().filter(|stored| stored.ledger == POOL) {
            self.written(&stored);
        }
        self.recorded.extend(self.closed.see(POOL, event));
        match event {
            Event::RunStarted(start) => return self.started(start),
            Event::HistoryRead { job, entries, .. } => {
                self.histories.insert((*job).into(), entries.to_vec());
            }
            Event::Settled { since, until } => return self.reckon(*since, *until),
            _ => {}
        }
        Ok(())
    }
}

impl Runs {
    fn written(&mut self, stored: &Stored<'_>) {
        let Stored { node, key, value, term, .. } = *stored;
        let job = key.strip_prefix(JobRow::PREFIX);
        if let Some((job, row)) = job.and_then(|job| Some((job, JobRow::parse(value).ok()?))) {
            let since = self.since.entry(job.into()).or_default();
            *since = row.since.max(*since);
        }
        if let Ok(Some(run)) = RunKey::parse(key)
            && parsed::run_record(value).as_ref().as_ref().is_ok_and(RunRecord::is_closed)
            && self.closed.add(&run, term, node)
        {
            self.recorded.insert(run);
        }
    }

    fn started(&mut self, start: &RunStart) -> Result<(), String> {
        let RunStart { run, worker, job, at, token, .. } = start;
        let spec = self.log.spec(job).ok_or_else(|| format!("there is no job {job}"))?;
        let due = start.cause.request().is_some()
            || *at <= start.true_wall + CARRIED
            || Excuse::RunsAhead.excuses(*at <= start.true_wall + start.ahead + CARRIED);
        let wrong = if !start.valid {
            "though its hold is over".to_owned()
        } else if !due {
            format!("in truth at {:?}, with servers' clocks {:?} ahead at most", start.true_wall, start.ahead)
        } else if let Some(other) = beside(&self.log, spec, start).next() {
            format!("beside run {}", other.run)
        } else {
            self.overlaps += u64::from(!start.beside.is_empty());
            return Ok(());
        };
        Err(format!("{worker} starts run {run} of {job}, due at {at:?}, under {token}, {wrong}"))
    }

    /// Checks every tick that is due and old enough to be judged.
    fn reckon(&mut self, settled: WallTime, until: WallTime) -> Result<(), String> {
        let until = until - YOUNG;
        let asleep = Excuse::RunsAsleep.excuses(self.is_asleep(settled, until));
        self.asleep += u64::from(asleep);
        for spec in self.log.specs().filter(|spec| !asleep || !spec.is_any_worker()) {
            let name = spec.name;
            let since = self.since.get(name).copied();
            let since = since.ok_or_else(|| format!("{name} was never registered"))?;
            let from = if spec.catches_up_all() { since } else { since.max(settled) };
            let after = |at: &WallTime| spec.schedule.next_after(*at).filter(|at| *at <= until);
            for at in std::iter::successors(after(&from), after) {
                self.reckoned += 1;
                if let Some(why) = self.lacks(spec, at, at > settled.max(since)) {
                    return Err(format!("{name}, due at {at:?}, {why}"));
                }
            }
        }
        Ok(())
    }

    /// Returns `true` if there is an any-worker job without a run for a tick that was due after the faults.
    fn is_asleep(&self, settled: WallTime, until: WallTime) -> bool {
        let mut jobs = self.log.specs().filter(|spec| spec.is_any_worker());
        jobs.any(|spec| {
            let from = self.since.get(spec.name).map_or(settled, |since| settled.max(*since));
            let after = |at: &WallTime| spec.schedule.next_after(*at).filter(|at| *at <= until);
            let mut due = std::iter::successors(after(&from), after);
            due.any(|at| self.log.of(&RunOf::tick(spec.name, at)).next().is_none())
        })
    }

    /// Returns the reason why a due tick violates the invariant, or `None` if the tick does not violate it.
    /// `settled` is true if the tick was due after the faults.
    fn lacks(&self, spec: &PoolSpec, at: WallTime, settled: bool) -> Option<&'static str> {
        let runs: Vec<&Run> = self.log.of(&RunOf::tick(spec.name, at)).collect();
        if settled {
            return runs.is_empty().then_some("was not started, after the faults");
        }
        let history = self.histories.get(spec.name).into_iter().flatten();
        let entries: Vec<&HistoryEntry> = history.filter(|entry| covers(entry, at)).collect();
        let ended = match spec.delivery {
            Delivery::AtMostOnce => {
                let is_recorded = || self.recorded.contains(&RunKey::new(spec.name, at));
                !runs.is_empty() || !entries.is_empty() || Excuse::RunsForgotten.excuses(is_recorded())
            }
            Delivery::AtLeastOnce => {
                let cancelled = |run: &&&Run| {
                    let until = run.end.map_or(WallTime::from_micros(u64::MAX), |(at, _)| at);
                    self.log.may_be_cancelled(spec.name, run.start.true_wall, until)
                };
                let skipped = |entry: &&HistoryEntry| {
                    matches!(
                        entry.end,
                        RunOutcome::SkippedPaused | RunOutcome::SkippedFrozen | RunOutcome::Cancelled
                    )
                };
                // The operator may have cancelled the tick, or paused the job, and pruning may have removed the
                // entry from a short history.
                let by_operator = || {
                    runs.iter().any(|run| cancelled(&run))
                        || entries.iter().any(skipped)
                        || spec.pausable
                            && (self.log.may_be_cancelled(spec.name, at, WallTime::from_micros(u64::MAX))
                                || self.log.may_be_paused(spec.name, at))
                };
                runs.iter().any(|run| run.ended_itself()) || Excuse::RunsOperator.excuses(by_operator())
            }
        };
        (!ended).then_some(match (spec.delivery, runs.is_empty()) {
            (Delivery::AtMostOnce, _) => "was neither started nor entered in the history",
            (Delivery::AtLeastOnce, true) => "was never started",
            (Delivery::AtLeastOnce, false) => "was started and never came to an end",
        })
    }
}

/// Returns `true` if the entry includes this tick of the job's schedule.
pub(super) fn covers(entry: &HistoryEntry, at: WallTime) -> bool {
    entry.cause.request().is_none() && entry.tick <= at && at <= entry.until.unwrap_or(entry.tick)
}

/// Returns the active runs of the job beside which `start` is not permitted. The caller then checks whether a
/// loss of data on servers excuses the overlap.
fn beside<'a>(log: &PoolLog, spec: &PoolSpec, start: &'a RunStart) -> impl Iterator<Item = &'a Beside> {
    let may_overlap = spec.overlap == Overlap::Allow;
    let excused = move |other: &Beside| {
        let stopped = other.awake_for.is_none_or(|awake| awake < WAKES_IN);
        !other.same_process
            && (Excuse::RunsPaused.excuses(stopped)
                || Excuse::RunsClock.excuses(other.clock_stood || start.clock_stood))
    };
    let beside = start.beside.iter().filter(move |_| !may_overlap);
    beside.filter(move |other| log.run(other.run).is_some() && !excused(other))
}

#[cfg(test)]
mod tests;
