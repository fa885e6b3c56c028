use super::{
    Event, Invariant,
    pool_log::{OFFSET, PoolLog, Run, RunOf},
};
use crate::sim::{
    Beside, Promises, RunStart,
    scenario::true_wall,
    worker::{POOL, PoolSpec},
};
use quorate::{
    env::WallTime,
    node::{Record, Reply, Request},
    schedule::{Delivery, JobRow, Overlap, TickEnd, TickHistory},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How far ahead of the servers' clocks a worker may take them to be: it carries them on by its own boot clock.
const CARRIED: Duration = Duration::from_millis(100);
/// Ticks younger than this may be yet to come.
const YOUNG: Duration = Duration::from_secs(1);
/// A run that was interrupted so often may be left for later.
const INTERRUPTED: usize = 4;
/// A process that runs on after a pause needs this long to end what it must not go on with.
const WAKES_IN: Duration = Duration::from_millis(250);

/// Every tick of the second group runs as its job's rules say, on whichever worker.
///
/// - A run starts under a claim or a term that its worker takes for valid. A tick does not start before it is due, by the
///   clocks of a majority of the servers.
/// - A job whose overlap rule is not [`Overlap::Allow`] does not run beside itself: an any-worker job on one worker (on
///   all workers with [`Promises::overlap_across_workers`]), a leader-placed job anywhere.
/// - Once the faults are over, every tick starts. Every tick of a job that catches up all has come to an end: under
///   at-least-once a handler has ended by itself, under at-most-once it has started or its history has an entry (of any-worker jobs, and where a
///   server has forgotten since, with [`Promises::every_end_is_entered`]).
///
/// Excuses: a pause and a cancellation on request, from the operator's requests. A worker that is paused, or whose boot
/// clock stood still, may go on with a run beside the next one. Ticks before the newest registration of a job have no
/// owner: a majority may have forgotten the earlier one. A tick that was interrupted four times may be left for later.
/// Without [`Promises::any_worker_progress`] any-worker jobs are not accounted for where they do not run at all after
/// the faults.
#[derive(Debug, Default)]
pub(super) struct Runs {
    log: PoolLog,
    promises: Promises,
    /// The newest time since which each job is due, of all rows that any server was written.
    since: BTreeMap<Arc<str>, WallTime>,
    /// When a server last forgot.
    forgot: Option<WallTime>,
    histories: BTreeMap<Arc<str>, Vec<TickHistory>>,
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
        match event {
            Event::Promised(promises) => self.promises = *promises,
            // The memory of a server begins when it is marked, which may be long after it forgot.
            Event::Forgot { .. } | Event::Ran { request: Request::Mark { .. }, reply: Reply::Marked, .. } => {
                self.forgot = Some(true_wall(now));
            }
            Event::RunStarted(start) => return self.started(start),
            Event::Ran {
                request: Request::Write { ledger, key, record, .. }, reply: Reply::Written, ..
            } if ledger.starts_with(POOL) => {
                self.written(key, record);
            }
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
    fn written(&mut self, key: &str, record: &Record) {
        let job = key.strip_prefix(JobRow::PREFIX);
        if let Some((job, row)) = job.and_then(|job| Some((job, JobRow::parse(&record.value).ok()?))) {
            let since = self.since.entry(job.into()).or_default();
            *since = row.since.max(*since);
        }
    }

    fn started(&mut self, start: &RunStart) -> Result<(), String> {
        let RunStart { run, worker, job, at, token, .. } = start;
        let spec = self.log.spec(job).ok_or_else(|| format!("there is no job {job}"))?;
        let due = start.cause.request().is_some() || *at <= start.true_wall + start.ahead + CARRIED;
        let beside = beside(&self.log, self.promises, spec, start);
        let wrong = if !start.valid {
            "though its hold is over".to_owned()
        } else if !due {
            format!("in truth at {:?}, with servers' clocks {:?} ahead at most", start.true_wall, start.ahead)
        } else if let Some(other) = beside {
            format!("beside run {}", other.run)
        } else {
            self.overlaps += u64::from(!start.beside.is_empty());
            return Ok(());
        };
        Err(format!("{worker} starts run {run} of {job}, due at {at:?}, under {token}, {wrong}"))
    }

    /// Accounts for every tick that is due.
    fn reckon(&mut self, settled: WallTime, until: WallTime) -> Result<(), String> {
        let until = until - YOUNG;
        let asleep = !self.promises.any_worker_progress && self.is_asleep(settled, until);
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

    /// Whether the history must have an entry of a tick that was never started.
    fn is_to_be_entered(&self, spec: &PoolSpec, at: WallTime) -> bool {
        let remembered = self.forgot.is_none_or(|forgot| forgot + OFFSET < at);
        self.promises.every_end_is_entered || !spec.is_any_worker() && remembered
    }

    /// Whether any-worker jobs do not run at all, though the faults are over.
    fn is_asleep(&self, settled: WallTime, until: WallTime) -> bool {
        let mut jobs = self.log.specs().filter(|spec| spec.is_any_worker());
        jobs.any(|spec| {
            let from = self.since.get(spec.name).map_or(settled, |since| settled.max(*since));
            let after = |at: &WallTime| spec.schedule.next_after(*at).filter(|at| *at <= until);
            let mut due = std::iter::successors(after(&from), after);
            due.any(|at| self.log.of(&RunOf::tick(spec.name, at)).next().is_none())
        })
    }

    /// What a tick lacks that is due.
    fn lacks(&self, spec: &PoolSpec, at: WallTime, settled: bool) -> Option<&'static str> {
        let runs: Vec<&Run> = self.log.of(&RunOf::tick(spec.name, at)).collect();
        if settled {
            return runs.is_empty().then_some("was not started, after the faults");
        }
        let history = self.histories.get(spec.name).into_iter().flatten();
        let entries: Vec<&TickHistory> = history.filter(|entry| covers(entry, at)).collect();
        let ended = match spec.delivery {
            Delivery::AtMostOnce => {
                !runs.is_empty() || !entries.is_empty() || !self.is_to_be_entered(spec, at)
            }
            Delivery::AtLeastOnce => {
                let cancelled = |run: &&&Run| {
                    let until = run.end.map_or(WallTime::from_micros(u64::MAX), |(at, _)| at);
                    self.log.may_be_cancelled(spec.name, run.start.true_wall, until)
                };
                let own = runs.iter().any(|run| run.ended_itself() || cancelled(&run));
                own || runs.len() >= INTERRUPTED
                    || entries.iter().any(|entry| matches!(entry.end, TickEnd::SkippedPaused | TickEnd::Cancelled))
                    // A short history may have let go of the entry.
                    || spec.pausable && self.log.may_be_cancelled(spec.name, at, WallTime::from_micros(u64::MAX))
            }
        };
        (!ended).then_some(match (spec.delivery, runs.is_empty()) {
            (Delivery::AtMostOnce, _) => "was neither started nor entered in the history",
            (Delivery::AtLeastOnce, true) => "was never started",
            (Delivery::AtLeastOnce, false) => "was started and never came to an end",
        })
    }
}

/// Whether an entry is of this tick of the schedule.
pub(super) fn covers(entry: &TickHistory, at: WallTime) -> bool {
    entry.cause.request().is_none() && entry.tick <= at && at <= entry.until.unwrap_or(entry.tick)
}

/// The run beside which `start` must not go on.
fn beside<'a>(log: &PoolLog, promises: Promises, spec: &PoolSpec, start: &'a RunStart) -> Option<&'a Beside> {
    if spec.overlap == Overlap::Allow {
        return None;
    }
    let across = !spec.is_any_worker() || promises.overlap_across_workers;
    // A request's run is the leader's, which does not know what workers run of the job.
    let counts = |run: Option<&Run>| {
        run.is_some_and(|run| across || run.start.cause.request().is_none())
            && (across || start.cause.request().is_none())
    };
    let excused = |other: &Beside| {
        let stopped = other.awake_for.is_none_or(|awake| awake < WAKES_IN);
        !other.same_process && (!across || stopped || other.clock_stood || start.clock_stood)
    };
    start.beside.iter().find(|other| counts(log.run(other.run)) && !excused(other))
}

#[cfg(test)]
mod tests;
