//! The worker's side of a run that the leader opens: the worker finds the run, takes its slot, and executes it.
//!
//! # What is not guaranteed
//!
//! If a worker is paused between its last check of the claim and the start of the handler, the handler starts
//! late. So the handler must pass the fencing token with its writes. A worker reads about once a second which
//! of its runs are cancelled. A run that ends before the next such read is not cancelled.
//!
//! # The search for runs
//!
//! The leader keeps a short list of the open runs that no worker has taken. While the list has new runs, a
//! worker reads it up to ten times a second, and otherwise about once a second. When a run is due, the worker
//! waits for a random time. A worker with more active runs waits longer on average, so that the runs are spread
//! over the workers. Then the worker reads the run's record, and takes the run only if a majority of nodes
//! stores the same record (rule R3 of `docs/design/scheduler.md`).

use crate::{
    claim::Slots,
    env::{BootTime, Env, ScopedTask, WallTime},
    ledger::{LedgerError, LedgerView},
    scheduler::{
        job::Job,
        policy::Placement,
        registry::Phase,
        run::{
            Cancel,
            slot_attempt::{Attempt, TAKE_RETRY, Taking, Tried, WALL_CLOCK_CHECK},
        },
        store::{OpenList, RunRecord, job_and_tick},
    },
};
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, OptionFuture},
    stream::FuturesUnordered,
};
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// The shortest and the longest pause between two reads of the list of open runs.
const LIST_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The longest time between two such reads if it is known that nothing changes on the nodes.
const READ_AT_LEAST_EVERY: Duration = Duration::from_secs(60);
/// The pause between two reads of the records of active runs, which show cancellations.
const POLL_PAUSE: Duration = Duration::from_secs(1);
/// The upper limit of the random wait before a worker tries to take a run. The limit is the first value, plus
/// the second value for each run that the worker already executes. So workers without runs usually take new
/// runs first.
const SHARE_WAIT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(5));
/// The largest number of executed runs that count for the limit of the random wait.
const SHARE_WAIT_RUNS: u32 = 10;

/// Takes and executes runs until `stop` is cancelled or the scheduler is being drained. Then waits until the
/// runs that the worker executes have ended.
pub(in crate::scheduler) async fn take_runs(with: Taking, stop: CancellationToken) {
    let env = with.quorum.env().clone();
    let mut worker = Worker {
        slots: Slots::new(&with.quorum, &with.group, with.ttl, with.grace),
        takes: false,
        reads_began: (env.now(), env.now()),
        list_at: env.now(),
        list_pause: LIST_PAUSE.0,
        poll_at: env.now(),
        listing: None,
        polling: None,
        candidates: BTreeMap::new(),
        active: BTreeMap::new(),
        runs: FuturesUnordered::new(),
        env,
        with,
    };
    worker.serve(&stop).await;
}

struct Worker {
    with: Taking,
    env: Env,
    slots: Slots,
    /// True if a job of this worker is for any worker.
    takes: bool,
    candidates: BTreeMap<Arc<str>, Candidate>,
    active: BTreeMap<Arc<str>, Active>,
    runs: FuturesUnordered<BoxFuture<'static, (Arc<str>, Tried)>>,
    /// The times at which the last read of the list, and the last read of the records of active runs, began.
    reads_began: (BootTime, BootTime),
    /// The active read of the list of open runs, if there is one. `list_at` is the time of the next read, and
    /// `list_pause` the present pause between reads.
    listing: Option<ScopedTask<Result<LedgerView, LedgerError>>>,
    list_at: BootTime,
    list_pause: Duration,
    /// The active read of the records of active runs, if there is one. `poll_at` is the time of the next read.
    polling: Option<ScopedTask<Result<LedgerView, LedgerError>>>,
    poll_at: BootTime,
}

/// A run in the list of open runs whose job this worker has.
#[derive(Debug)]
struct Candidate {
    not_before: WallTime,
    /// The time of the next attempt to take the run. `None` before the run is due.
    try_at: Option<BootTime>,
}

/// A run that this worker tries to take, or executes.
#[derive(Debug)]
struct Active {
    cancel: Cancel,
    not_before: WallTime,
}

impl Worker {
    async fn serve(&mut self, stop: &CancellationToken) {
        let (mut changed, mut phase) = self.with.registry.watch();
        self.jobs_changed();
        while !stop.is_cancelled() && self.with.registry.phase() == Phase::Open {
            self.read_list();
            self.poll();
            self.take();
            let (listed, polled) = self.reads_began;
            let read_at = if self.active.is_empty() { listed } else { listed.min(polled) };
            let due = self.wake().map(|(wake, latest)| self.env.sleep_until_poll(read_at, wake, latest));
            tokio::select! { biased;
                () = stop.cancelled() => break,
                Some((key, tried)) = self.runs.next() => self.tried(&key, &tried),
                Some(answers) = OptionFuture::from(self.listing.as_mut()) => {
                    self.listing = None;
                    self.on_list(answers.ok().and_then(Result::ok));
                }
                Some(answers) = OptionFuture::from(self.polling.as_mut()) => {
                    self.polling = None;
                    self.on_poll(answers.ok().and_then(Result::ok));
                }
                _ = changed.changed() => self.jobs_changed(),
                _ = phase.changed() => {}
                Some(()) = OptionFuture::from(due) => {}
            }
        }
        self.last_runs(stop).await;
    }

    /// Waits until the runs that this worker executes have ended, and takes no more runs. The leader may still
    /// cancel active runs.
    async fn last_runs(&mut self, stop: &CancellationToken) {
        loop {
            if stop.is_cancelled() {
                let why = "the worker is shutting down";
                self.active.values().for_each(|run| run.cancel.interrupt(why));
            }
            self.poll();
            let poll_at = self.poll_at;
            tokio::select! { biased;
                ended = self.runs.next() => match ended {
                    Some((key, tried)) => self.tried(&key, &tried),
                    None => return,
                },
                Some(answers) = OptionFuture::from(self.polling.as_mut()) => {
                    self.polling = None;
                    self.on_poll(answers.ok().and_then(Result::ok));
                }
                () = self.env.sleep_until(poll_at), if self.polling.is_none() => {}
                () = stop.cancelled(), if !stop.is_cancelled() => {}
            }
        }
    }

    /// Returns the time of the next read of the list. Returns `None` if a read is active, or if no job of the
    /// worker is for any worker.
    fn next_list(&self) -> Option<BootTime> {
        (self.listing.is_none() && self.takes).then_some(self.list_at)
    }

    /// Notes a change of the worker's jobs. Without a job for any worker, the worker does not ask the nodes.
    fn jobs_changed(&mut self) {
        let jobs = self.with.registry.jobs();
        self.takes = jobs.values().any(|job| job.placement == Placement::AnyWorker);
        self.candidates.retain(|key, _| self.takes && job_of(key).is_some_and(|job| jobs.contains_key(job)));
        self.list_at = self.env.now();
    }

    /// Returns the time of the next read of the records of active runs. Returns `None` if a read is active, or
    /// if no run is active.
    fn next_poll(&self) -> Option<BootTime> {
        (self.polling.is_none() && !self.active.is_empty()).then_some(self.poll_at)
    }

    /// Starts to read the list of open runs, if a read is due.
    fn read_list(&mut self) {
        if self.next_list().is_none_or(|at| self.env.now() < at) {
            return;
        }
        self.reads_began.0 = self.env.now();
        let ledger = self.with.ledger.clone();
        self.listing = Some(
            self.env
                .spawn_scoped(async move { LedgerView::read_keys(&ledger, &[OpenList::KEY.into()]).await }),
        );
    }

    fn on_list(&mut self, ledger: Option<LedgerView>) {
        let Some(ledger) = ledger else {
            self.list_at = self.env.now() + TAKE_RETRY;
            return;
        };
        let listed = ledger.records.get(OpenList::KEY).map(|row| OpenList::read(row)).unwrap_or_default();
        let jobs = self.with.registry.jobs();
        self.candidates.retain(|key, _| listed.contains_key(key));
        let mut found = false;
        for (key, not_before) in listed {
            let mine = job_of(&key).is_some_and(|job| jobs.contains_key(job));
            if mine && !self.active.contains_key(&key) {
                let new = Candidate { not_before, try_at: None };
                let known = self.candidates.entry(key).or_insert_with(|| {
                    found = true;
                    new
                });
                if known.not_before != not_before {
                    *known = Candidate { not_before, try_at: None };
                }
            }
        }
        let (least, most) = LIST_PAUSE;
        self.list_pause = if found { least } else { (self.list_pause + self.list_pause / 4).min(most) };
        self.list_at = self.env.now() + self.list_pause;
    }

    /// Starts to read the records of active runs, if a read is due. The records show which runs are
    /// cancelled.
    fn poll(&mut self) {
        if self.next_poll().is_none_or(|at| self.env.now() < at) {
            return;
        }
        self.reads_began.1 = self.env.now();
        self.poll_at = self.env.now() + POLL_PAUSE;
        let (ledger, keys) = (self.with.ledger.clone(), self.active.keys().cloned().collect::<Vec<_>>());
        self.polling =
            Some(self.env.spawn_scoped(async move { LedgerView::read_keys(&ledger, &keys).await }));
    }

    fn on_poll(&mut self, ledger: Option<LedgerView>) {
        for (key, value) in ledger.into_iter().flat_map(|ledger| ledger.records) {
            if let (Some(active), Some(why)) = (self.active.get(&key), cancel_reason(&value)) {
                active.cancel.cancel(&why);
            }
        }
    }

    /// Starts attempts to take the runs that are due, in order of priority and then of time. At most
    /// `max_running` runs are active at once.
    fn take(&mut self) {
        let (now, wall) = (self.env.now(), self.with.quorum.wall());
        let busy = u32::try_from(self.active.len()).unwrap_or(u32::MAX).min(SHARE_WAIT_RUNS);
        let jobs = self.with.registry.jobs();
        self.candidates.retain(|key, _| job_of(key).is_some_and(|job| jobs.contains_key(job)));
        let mut due = Vec::new();
        for (key, candidate) in &mut self.candidates {
            let Some(job) = job_of(key).and_then(|job| jobs.get(job)) else { continue };
            if candidate.not_before > wall {
                candidate.try_at = None;
                continue;
            }
            let (idle, each) = SHARE_WAIT;
            let at = *candidate.try_at.get_or_insert_with(|| now + self.env.random_below(idle + each * busy));
            if at <= now {
                due.push((Reverse(job.priority), candidate.not_before, Arc::clone(key), Arc::clone(job)));
            }
        }
        due.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
        for (_, _, key, job) in due {
            if self.active.len() >= self.with.max_running {
                return;
            }
            let not_before = self.candidates.remove(&key).map_or(wall, |candidate| candidate.not_before);
            self.begin(key, job, not_before);
        }
    }

    fn begin(&mut self, key: Arc<str>, job: Arc<Job>, not_before: WallTime) {
        let cancel = Cancel::default();
        self.active.insert(Arc::clone(&key), Active { cancel: cancel.clone(), not_before });
        let attempt = Attempt {
            key: Arc::clone(&key),
            job,
            slots: self.slots.clone(),
            with: self.with.clone(),
            cancel,
        };
        let trying = self.env.spawn_scoped(attempt.run());
        // A panic of the task is treated as `Finished`. The leader finds the state of the run in the
        // slot.
        self.runs.push(trying.map(move |tried| (key, tried.unwrap_or(Tried::Finished))).boxed());
    }

    fn tried(&mut self, key: &Arc<str>, tried: &Tried) {
        let Some(Active { not_before, .. }) = self.active.remove(key) else { return };
        let after = match tried {
            Tried::Again(after) => *after + self.env.random_below(SHARE_WAIT.0),
            // This worker still has an old list, which contains the run. So the worker waits before it tries
            // the run again. The leader soon removes the run from the list, unless it opens another generation.
            Tried::Finished => LIST_PAUSE.1,
        };
        let try_at = Some(self.env.now() + after);
        self.candidates.insert(Arc::clone(key), Candidate { not_before, try_at });
        self.list_at = self.list_at.min(self.env.now() + LIST_PAUSE.0);
    }

    /// Returns the time of the next call at which `read_list`, `poll` or `take` has something to do. The second
    /// time is that of the next call that is needed if nothing changes on the nodes. Returns `None` if there is nothing
    /// to do before another event, as in a worker without a job for any worker.
    fn wake(&self) -> Option<(BootTime, BootTime)> {
        let (now, wall) = (self.env.now(), self.with.quorum.wall());
        let room = self.active.len() < self.with.max_running;
        let candidates = self.candidates.values().filter(|_| room).map(|candidate| match candidate.try_at {
            Some(at) => at,
            None => now + wall.until(candidate.not_before).min(WALL_CLOCK_CHECK),
        });
        let due = candidates.min();
        let reads = [self.next_list(), self.next_poll()].into_iter().flatten();
        let wake = reads.chain(due).min()?;
        Some((wake, due.unwrap_or(wake + READ_AT_LEAST_EVERY)))
    }
}

/// Returns the name of the job in a run's key.
fn job_of(key: &str) -> Option<&str> {
    job_and_tick(key).map(|(job, _)| job)
}

/// Returns the reason for which the run must be cancelled, if its record has one.
fn cancel_reason(value: &str) -> Option<Arc<str>> {
    match RunRecord::parse(value) {
        Ok(RunRecord::Open(open)) => open.cancel,
        Ok(RunRecord::Closed { .. }) => Some("the leader has closed the run".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::FencingToken,
        scheduler::{
            job::{RunCause, RunOutcome},
            policy::Delivery,
            store::OpenRun,
        },
    };

    #[test]
    fn the_record_of_a_run_cancels_it() {
        let at = WallTime::from_micros(5);
        let open = |cancel: Option<&str>| {
            RunRecord::Open(OpenRun {
                generation: 1,
                at,
                not_before: at,
                take_by: at,
                horizon: at,
                delivery: Delivery::AtMostOnce,
                cause: RunCause::Scheduled,
                term: FencingToken::new(1),
                state: None,
                cancel: cancel.map(Into::into),
            })
        };
        let reason = |record: RunRecord| cancel_reason(&record.to_value());
        assert_eq!(reason(open(None)), None);
        assert_eq!(reason(open(Some("on request"))).as_deref(), Some("on request"));
        let under = (FencingToken::new(1), at);
        assert_eq!(reason(RunRecord::started("w", under)), None);
        assert!(reason(RunRecord::closed("w", (RunOutcome::Lost, ""), None, under)).is_some());
        assert_eq!(cancel_reason("of a later version"), None);
    }
}
