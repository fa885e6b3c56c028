use super::{
    Event, Invariant, MAJORITY,
    pool_log::{OFFSET, PoolLog, Run, RunOf},
    runs::covers,
};
use crate::sim::{
    HandlerEnd, Promises,
    scenario::true_wall,
    worker::{POOL, PoolSpec, pool_specs},
};
use quorate::{
    env::WallTime,
    node::{Reply, Request},
    schedule::{Delivery, Overlap, TickEnd, TickHistory},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// A history tells what became of each run.
///
/// - Entries are read newest tick first, each once; the first page is the beginning of the whole.
/// - *Done*, *failed* and *timed out* mean that a handler ended so, on the worker and under the token of the entry.
///   *Cancelled* means that a handler was stopped, or that a request was given up. *Lost* is for at-most-once alone.
/// - *Skipped* means that the reason is one that the job's rules permit; with [`Promises::skips_are_final`] also that no
///   handler was called for the tick.
/// - The newest entries, as many as the job keeps, are there: those that were once stored on a majority of the servers
///   which still remember them.
/// - Once the faults are over, each run that has come to an end has its entry.
/// - With [`Promises::one_entry_a_tick`] a tick has one entry, however many workers or leaders had it.
///
/// Excuse: a tick that ran before its worker noticed a pause may have an entry of its own beside the one of the pause.
#[derive(Debug)]
pub(super) struct Histories {
    log: PoolLog,
    promises: Promises,
    /// The job of each part of the ledger that holds a history.
    parts: BTreeMap<String, &'static str>,
    /// The entries that servers have, by job.
    stored: BTreeMap<&'static str, BTreeMap<Arc<str>, Stored>>,
    read: BTreeMap<Arc<str>, Vec<TickHistory>>,
    judged: u64,
}

#[derive(Debug)]
struct Stored {
    /// When it was first written, which orders what is pruned.
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
        let part = |spec: PoolSpec| (format!("{POOL}{{{}}}", TickHistory::part(spec.name)), spec.name);
        Self {
            log: PoolLog::default(),
            promises: Promises::default(),
            parts: pool_specs().into_iter().map(part).collect(),
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
            Event::Promised(promises) => self.promises = *promises,
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
            Event::Settled { since, .. } => return self.reckon(*since),
            _ => {}
        }
        Ok(())
    }
}

impl Histories {
    fn read(&mut self, job: &str, entries: &[TickHistory], page: &[TickHistory]) -> Result<(), String> {
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
            let key = match self.promises.one_entry_a_tick {
                true => format!("{:?} {:?}", entry.tick, entry.cause.request()),
                false => entry.key().to_string(),
            };
            if !seen.insert(key) {
                return wrong(format!("two entries of {}", show(entry)));
            }
            if let Some(why) = self.contradicts(entry) {
                return wrong(format!("{}: {why}", show(entry)));
            }
        }
        self.retained(job, entries).map_err(|why| format!("the history of {job}: {why}"))
    }

    /// How an entry contradicts what happened.
    fn contradicts(&self, entry: &TickHistory) -> Option<String> {
        let Some(spec) = self.log.spec(&entry.job) else { return Some("there is no such job".to_owned()) };
        let of = RunOf { job: Arc::clone(&entry.job), tick: entry.tick, request: entry.cause.request() };
        let runs: Vec<&Run> = self.log.of(&of).filter(|run| run.start.token == entry.term.get()).collect();
        let ended = |is: &dyn Fn(HandlerEnd, bool) -> bool| {
            runs.iter().any(|run| {
                let is = run.end.is_some_and(|(_, end)| is(end.end, end.overdue));
                is && run.start.worker == entry.worker && is_about(entry, run)
            })
        };
        let has = match entry.end {
            TickEnd::Done => ended(&|end, _| end == HandlerEnd::Done),
            TickEnd::Failed => ended(&|end, _| end == HandlerEnd::Failed),
            TickEnd::TimedOut => ended(&|_, overdue| overdue),
            TickEnd::Cancelled => {
                let until = WallTime::from_micros(u64::MAX);
                let given_up = self.log.may_be_cancelled(&entry.job, entry.tick, until);
                // A handler may have ended whose term or claim was over before that was recorded.
                given_up || ended(&|_, _| true)
            }
            TickEnd::Lost => spec.delivery == Delivery::AtMostOnce || !self.judges(spec),
            _ => return self.not_skipped(spec, entry),
        };
        (!has).then(|| format!("no handler ended so, of {} runs", self.log.of(&of).count()))
    }

    /// Whether the reasons of what was skipped or lost, and the length of the history, are judged.
    fn judges(&self, spec: &PoolSpec) -> bool {
        !spec.is_any_worker() || self.promises.any_worker_entries
    }

    /// What is wrong with an entry of ticks that were skipped.
    fn not_skipped(&self, spec: &PoolSpec, entry: &TickHistory) -> Option<String> {
        let permitted = match entry.end {
            TickEnd::SkippedMisfire => !spec.catches_up_all(),
            TickEnd::SkippedOverlap => match spec.overlap {
                Overlap::Allow => false,
                Overlap::Queue => !spec.catches_up_all(),
                _ => true,
            },
            TickEnd::SkippedPaused => self.log.may_be_paused(spec.name, entry.until.unwrap_or(entry.tick)),
            _ => false,
        };
        if !permitted && self.judges(spec) {
            return Some("its job's rules do not permit that".to_owned());
        }
        if !self.promises.skips_are_final || entry.end == TickEnd::SkippedPaused && spec.is_any_worker() {
            return None;
        }
        let mut runs = self.log.runs().filter(|run| *run.start.job == *spec.name);
        let started = runs.find(|run| run.start.cause.request().is_none() && covers(entry, run.start.at));
        started.map(|run| format!("run {} of {:?} has started", run.start.run, run.start.at))
    }

    /// The newest entries that a majority of the servers has are there.
    fn retained(&self, job: &str, entries: &[TickHistory]) -> Result<(), String> {
        let (Some(spec), Some(stored)) = (self.log.spec(job), self.stored.get(job)) else { return Ok(()) };
        if !self.judges(spec) {
            return Ok(());
        }
        let keys: BTreeSet<Arc<str>> = entries.iter().map(TickHistory::key).collect();
        let mut newest: Vec<_> = stored.iter().collect();
        newest.sort_by_key(|(_, stored)| std::cmp::Reverse(stored.at));
        let mut kept = newest.iter().take(spec.history).filter(|(_, stored)| stored.on.len() >= MAJORITY);
        match kept.find(|(key, _)| !keys.contains(*key)) {
            Some((key, stored)) => {
                Err(format!("the entry {key} is missing, which is on {} servers", stored.on.len()))
            }
            None => Ok(()),
        }
    }

    /// Each run that has come to an end since the faults has its entry.
    fn reckon(&self, settled: WallTime) -> Result<(), String> {
        for run in self.log.runs().filter(|run| run.start.true_wall > settled && run.ended_itself()) {
            let (Some(spec), Some(read)) = (self.log.spec(&run.start.job), self.read.get(&run.start.job))
            else {
                continue;
            };
            let of = RunOf::started(&run.start);
            let is_its = |entry: &&TickHistory| {
                (entry.tick, entry.cause.request()) == (of.tick, of.request)
                    && entry.term.get() == run.start.token
            };
            // A short history may have let go of it.
            let newer = read.iter().filter(|entry| entry.tick > of.tick).count();
            if newer + 1 < spec.history && !read.iter().any(|entry| is_its(&entry)) {
                return Err(format!(
                    "the history of {} lacks run {} of {:?}",
                    spec.name, run.start.run, of.tick
                ));
            }
        }
        Ok(())
    }
}

/// Whether an entry says that its run began when this one did.
fn is_about(entry: &TickHistory, run: &Run) -> bool {
    let began = run.start.true_wall;
    entry.started.is_none_or(|started| started <= began + OFFSET && began <= started + OFFSET)
}

fn show(entry: &TickHistory) -> String {
    let TickHistory { tick, until, end, cause, worker, term, reason, .. } = entry;
    format!("{end} of {tick:?} until {until:?} ({cause}), of {worker} under {}, {reason:?}", term.get())
}

#[cfg(test)]
mod tests;
