//! The invariant of the histories of the second group of the simulation, also called the pool. Most of its
//! jobs run on any worker.

use super::{
    Event, Invariant, MAJORITY,
    pool_log::{OFFSET, PoolLog, Run, RunOf},
};
use crate::sim::{
    Excuse, HandlerEnd,
    scenario::true_wall,
    worker::{POOL, PoolSpec, pool_specs},
};
use quorate::{
    env::WallTime,
    node::{Reply, Request},
    scheduler::{Delivery, HistoryEntry, Overlap, RunOutcome},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The time within which the leader must enter the end of a run that another worker executed. The leader
/// looks for the end at least once a second, closes the run, and then writes the history entry.
const ENTERED_IN: Duration = Duration::from_secs(2);

/// Requires that the history of a job of the second group records the end of each run:
///
/// - A reader receives the newest tick first, and each entry once. The first page is the beginning of the whole
///   history.
/// - *Done*, *failed* and *timed out* mean that a handler ended in this way, on the worker of the entry. For a
///   leader-placed job it also ran under the term of the entry. (A run on any worker has the token of its
///   claim, and its entry has the term of the leader that opened it.) *Cancelled* means that a handler was
///   cancelled, or that its run was cancelled before it began. *Lost* occurs only for at-most-once jobs, and for
///   ticks that a pause left out before servers lost data.
/// - *Skipped* requires a reason that the job's rules permit. (The invariant *outcomes* judges that the tick does
///   not start later.)
/// - The newest entries are present, as many as the job keeps. This is required of the entries that a majority
///   of the servers still stores.
/// - Once the faults are over, each run that has come to an end has its entry.
///
/// There is an exception. A pause that an operator ended may come back: servers forgot the record of its end, so
/// that fewer than a majority store it, and another server still stores the pause. The leader then skips ticks
/// as paused. (See *Failures* in `docs/design/scheduler.md`.)
#[derive(Debug)]
pub(super) struct Histories {
    log: PoolLog,
    /// For each ledger that stores a history, the name of the job.
    parts: BTreeMap<String, &'static str>,
    /// For each job, the history entries that servers store, by key.
    stored: BTreeMap<&'static str, BTreeMap<Arc<str>, Stored>>,
    read: BTreeMap<Arc<str>, Vec<HistoryEntry>>,
    judged: u64,
}

#[derive(Debug)]
struct Stored {
    /// The time at which the entry was first written. Pruning removes the entries with the earliest times
    /// first.
    at: u64,
    on: BTreeSet<String>,
}

impl Default for Stored {
    fn default() -> Self {
        Self { at: u64::MAX, on: BTreeSet::new() }
    }
}

impl Default for Histories {
    fn default() -> Self {
        let part = |spec: &PoolSpec| (format!("{POOL}{{{}}}", HistoryEntry::part(spec.name)), spec.name);
        Self {
            log: PoolLog::default(),
            parts: pool_specs().iter().map(part).collect(),
            stored: BTreeMap::new(),
            read: BTreeMap::new(),
            judged: 0,
        }
    }
}

impl Invariant for Histories {
    fn name(&self) -> &'static str {
        "histories"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("history entry judged", self.judged)]
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        self.log.see(true_wall(now), event);
        match event {
            Event::Forgot { node } => {
                for stored in self.stored.values_mut().flat_map(BTreeMap::values_mut) {
                    stored.on.remove(*node);
                }
            }
            Event::Ran {
                node,
                request: Request::Write { ledger, key, record, .. },
                reply: Reply::Written,
            } => {
                if let Some(job) = self.parts.get(&**ledger) {
                    let entries = self.stored.entry(job).or_default();
                    let stored = entries.entry(Arc::clone(key)).or_default();
                    stored.at = record.at.min(stored.at);
                    stored.on.insert((*node).to_owned());
                }
            }
            Event::HistoryRead { job, entries, page } => return self.read(job, entries, page),
            Event::Settled { since, until } => return self.reckon(*since, *until),
            _ => {}
        }
        Ok(())
    }
}

impl Histories {
    fn read(&mut self, job: &str, entries: &[HistoryEntry], page: &[HistoryEntry]) -> Result<(), String> {
        self.judged += entries.len() as u64;
        self.read.insert(job.into(), entries.to_vec());
        let wrong = |why: String| Err(format!("the history of {job}: {why}"));
        if !entries.is_sorted_by(|one, next| one.tick >= next.tick) {
            return wrong("its entries are out of order".to_owned());
        }
        if page.len() > entries.len() || entries[..page.len()] != *page {
            return wrong("its first page is not its beginning".to_owned());
        }
        let mut seen = BTreeSet::new();
        for entry in entries {
            if !seen.insert(entry.key()) {
                return wrong(format!("two entries of {}", show(entry)));
            }
            if let Some(why) = self.contradicts(entry) {
                return wrong(format!("{}: {why}", show(entry)));
            }
        }
        self.retained(job, entries).map_err(|why| format!("the history of {job}: {why}"))
    }

    /// Returns the way in which an entry contradicts the runs that happened. Returns `None` if the entry agrees
    /// with them.
    fn contradicts(&self, entry: &HistoryEntry) -> Option<String> {
        let Some(spec) = self.log.spec(&entry.job) else { return Some("there is no such job".to_owned()) };
        let of = RunOf { job: Arc::clone(&entry.job), tick: entry.tick, request: entry.cause.request() };
        let runs: Vec<&Run> = self.log.of(&of).filter(|run| is_under(spec, entry, run)).collect();
        let ended = |is: &dyn Fn(HandlerEnd, bool) -> bool| {
            runs.iter().any(|run| {
                let is = run.end.is_some_and(|(_, end)| is(end.end, end.overdue));
                is && run.start.worker == entry.worker && is_about(entry, run)
            })
        };
        let has = match entry.end {
            RunOutcome::Done => ended(&|end, _| end == HandlerEnd::Done),
            RunOutcome::Failed => ended(&|end, _| end == HandlerEnd::Failed),
            RunOutcome::TimedOut => ended(&|_, overdue| overdue),
            RunOutcome::Cancelled => {
                let until = WallTime::from_micros(u64::MAX);
                let given_up = self.log.may_be_cancelled(&entry.job, entry.tick, until);
                // After a generation ended without a recorded end, the tick may wait for a worker again. A
                // pause ends such a wait too.
                let paused = spec.is_any_worker() && self.log.may_be_paused(&entry.job, entry.tick);
                // A run also ends as cancelled if its end could not be recorded. Its handler may have ended
                // in any way.
                given_up
                    || paused
                    || ended(&|_, _| true)
                    || Excuse::HistoriesRefused
                        .excuses(self.log.may_have_been_cancelled(&entry.job, entry.tick, until))
            }
            RunOutcome::Lost => {
                spec.delivery == Delivery::AtMostOnce
                    || Excuse::HistoriesAnyWorker.excuses(spec.is_any_worker())
            }
            _ => return self.not_skipped(spec, entry),
        };
        (!has).then(|| format!("no handler ended so, of {} runs", self.log.of(&of).count()))
    }

    /// Returns the error in an entry of skipped ticks, or `None` if the entry is correct.
    fn not_skipped(&self, spec: &PoolSpec, entry: &HistoryEntry) -> Option<String> {
        let permitted = match entry.end {
            RunOutcome::SkippedMisfire => !spec.catches_up_all(),
            RunOutcome::SkippedOverlap => match spec.overlap {
                Overlap::Allow => false,
                Overlap::Queue => !spec.catches_up_all(),
                _ => true,
            },
            RunOutcome::SkippedPaused => self.log.may_be_paused(spec.name, entry.until.unwrap_or(entry.tick)),
            RunOutcome::SkippedFrozen => self.log.may_be_frozen(spec.name, entry.until.unwrap_or(entry.tick)),
            _ => false,
        };
        (!permitted && !Excuse::HistoriesAnyWorker.excuses(spec.is_any_worker()))
            .then(|| "its job's rules do not permit that".to_owned())
    }

    /// Checks that a history read contains the newest entries that a majority of the servers stores.
    fn retained(&self, job: &str, entries: &[HistoryEntry]) -> Result<(), String> {
        let (Some(spec), Some(stored)) = (self.log.spec(job), self.stored.get(job)) else { return Ok(()) };
        if spec.is_any_worker() {
            return Ok(());
        }
        let keys: BTreeSet<Arc<str>> = entries.iter().map(HistoryEntry::key).collect();
        let mut newest: Vec<_> = stored.iter().collect();
        newest.sort_by_key(|(_, stored)| std::cmp::Reverse(stored.at));
        let mut missing = newest.iter().take(spec.history).filter(|(key, _)| !keys.contains(*key));
        let few = |stored: &Stored| Excuse::HistoriesForgotten.excuses(stored.on.len() < MAJORITY);
        match missing.find(|(_, stored)| !few(stored)) {
            Some((key, stored)) => {
                Err(format!("the entry {key} is missing, which is on {} servers", stored.on.len()))
            }
            None => Ok(()),
        }
    }

    /// Checks that each run that started and ended after the faults has its history entry.
    fn reckon(&self, settled: WallTime, until: WallTime) -> Result<(), String> {
        for run in self.log.runs().filter(|run| run.start.true_wall > settled && run.ended_itself()) {
            let (Some(spec), Some(read)) = (self.log.spec(&run.start.job), self.read.get(&run.start.job))
            else {
                continue;
            };
            // The leader that must enter the end needs some time. The leader was stopped at `until`, perhaps
            // before it could write the entry.
            let ended = run.end.map_or(until, |(at, _)| at);
            let of = RunOf::started(&run.start);
            let is_its = |entry: &&HistoryEntry| {
                (entry.tick, entry.cause.request()) == (of.tick, of.request) && is_under(spec, entry, run)
            };
            if !read.iter().any(|entry| is_its(&entry))
                && !Excuse::HistoriesLate.excuses(spec.is_any_worker() && until < ended + ENTERED_IN)
            {
                return Err(format!(
                    "the history of {} lacks run {} of {:?}",
                    spec.name, run.start.run, of.tick
                ));
            }
        }
        Ok(())
    }
}

/// Returns `true` if the start time in the entry is that of this run.
fn is_about(entry: &HistoryEntry, run: &Run) -> bool {
    let began = run.start.true_wall;
    entry.started.is_none_or(|started| started <= began + OFFSET && began <= started + OFFSET)
}

/// Returns `true` if the term in the entry is the token of this run. For a job on any worker, always returns
/// `true`: the run has the token of its claim, and its entry has the term of the leader that opened it, so
/// they cannot be compared.
fn is_under(spec: &PoolSpec, entry: &HistoryEntry, run: &Run) -> bool {
    spec.is_any_worker() || entry.term.get() == run.start.token
}

fn show(entry: &HistoryEntry) -> String {
    let HistoryEntry { tick, until, end, cause, worker, term, reason, .. } = entry;
    format!("{end} of {tick:?} until {until:?} ({cause}), of {worker} under {}, {reason:?}", term.get())
}

#[cfg(test)]
mod tests;
