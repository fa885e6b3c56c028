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

use crate::scheduler::{
    Delivery, Job, OpenRun, RunCause, RunOutcome, RunRecord, is_open,
    plan::verdict::rank,
    registry::{JobRegistry, Phase},
    run::{
        Cancel, Execution, ExecutionEnd, RunGuard, RunOutput,
        span::{record_end, run_span},
    },
    store::{OpenList, SlotResult, job_and_tick},
};
use crate::{
    claim::{Claimed, SlotClaim, Slots},
    env::{BootTime, Env, ScopedTask, WallTime},
    ledger::{Ledger, LedgerError, Memory},
    node::Record,
    quorum::Quorum,
};
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, OptionFuture},
    stream::FuturesUnordered,
};
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

/// The shortest and the longest pause between two reads of the list of open runs.
const LIST_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The longest sleep of a worker that waits until a run is due. The wall clock may step during a sleep, so the
/// worker reads it at least this often.
const WALL_CLOCK_CHECK: Duration = Duration::from_millis(500);
/// The pause between two reads of the records of active runs, which show cancellations.
const POLL_PAUSE: Duration = Duration::from_secs(1);
/// The upper limit of the random wait before a worker tries to take a run. The limit is the first value, plus
/// the second value for each run that the worker already executes. So workers without runs usually take new
/// runs first.
const SHARE_WAIT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(5));
/// The largest number of executed runs that count for the limit of the random wait.
const SHARE_WAIT_RUNS: u32 = 10;
/// The pause before the next attempt to take a run, after an attempt that too few nodes answered.
const TAKE_RETRY: Duration = Duration::from_millis(200);

/// The settings with which a worker takes open runs.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct Taking {
    pub(in crate::scheduler) registry: JobRegistry,
    pub(in crate::scheduler) quorum: Quorum,
    pub(in crate::scheduler) ledger: Ledger,
    pub(in crate::scheduler) group: Arc<str>,
    pub(in crate::scheduler) max_running: usize,
    /// The TTL of the claim on a slot. If a worker crashes after it has acquired the claim, no worker can take
    /// the slot for at most this time.
    pub(in crate::scheduler) ttl: Duration,
    /// The time that the handler of a cancelled run has to return.
    pub(in crate::scheduler) grace: Duration,
}

/// Takes and executes runs until `stop` is cancelled or the scheduler is being drained. Then waits until the
/// runs that the worker executes have ended.
pub(in crate::scheduler) async fn take_runs(with: Taking, stop: CancellationToken) {
    let env = with.quorum.env().clone();
    let mut worker = Worker {
        slots: Slots::new(&with.quorum, &with.group, with.ttl, with.grace),
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
    candidates: BTreeMap<Arc<str>, Candidate>,
    active: BTreeMap<Arc<str>, Active>,
    runs: FuturesUnordered<BoxFuture<'static, (Arc<str>, Tried)>>,
    /// The active read of the list of open runs, if there is one. `list_at` is the time of the next read, and
    /// `list_pause` the present pause between reads.
    listing: Option<ScopedTask<Result<Answers, LedgerError>>>,
    list_at: BootTime,
    list_pause: Duration,
    /// The active read of the records of active runs, if there is one. `poll_at` is the time of the next read.
    polling: Option<ScopedTask<Result<Polled, LedgerError>>>,
    poll_at: BootTime,
}

/// The answers of the nodes to the read of one key: each node's memory, and its record under the key.
type Answers = Vec<(Memory, Option<Record>)>;

/// The keys of active runs, and the answers of the nodes for each key.
type Polled = (Vec<Arc<str>>, Vec<Answers>);

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

/// The result of an attempt to take a run.
#[derive(Debug)]
enum Tried {
    /// The worker has executed the run, or must not take this generation of the run. It does not repeat the
    /// attempt.
    Finished,
    /// The worker has not taken the run. It may try again after this time.
    Again(Duration),
}

impl Worker {
    async fn serve(&mut self, stop: &CancellationToken) {
        let (mut changed, mut phase) = self.with.registry.watch();
        while !stop.is_cancelled() && self.with.registry.phase() == Phase::Open {
            self.read_list();
            self.poll();
            self.take();
            let wake = self.wake();
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
                _ = changed.changed() => self.list_at = self.env.now(),
                _ = phase.changed() => {}
                () = self.env.sleep_until(wake) => {}
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

    /// Returns the time of the next read of the list. Returns `None` if a read is active, or if the worker has
    /// no jobs.
    fn next_list(&self) -> Option<BootTime> {
        (self.listing.is_none() && !self.with.registry.jobs().is_empty()).then_some(self.list_at)
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
        let ledger = self.with.ledger.clone();
        self.listing = Some(self.env.spawn_scoped(async move {
            let answers = ledger.read_keys(&[OpenList::KEY.into()]).await?;
            Ok(answers.into_iter().next().unwrap_or_default())
        }));
    }

    fn on_list(&mut self, answers: Option<Answers>) {
        let Some(answers) = answers else {
            self.list_at = self.env.now() + TAKE_RETRY;
            return;
        };
        let (listed, jobs) = (OpenList::read(&answers), self.with.registry.jobs());
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
        self.poll_at = self.env.now() + POLL_PAUSE;
        let (ledger, keys) = (self.with.ledger.clone(), self.active.keys().cloned().collect::<Vec<_>>());
        self.polling = Some(self.env.spawn_scoped(async move {
            let answers = ledger.read_keys(&keys).await?;
            Ok((keys, answers))
        }));
    }

    fn on_poll(&mut self, polled: Option<Polled>) {
        let Some((keys, answers)) = polled else { return };
        for (key, answers) in keys.iter().zip(&answers) {
            if let (Some(active), Some(why)) = (self.active.get(key), cancel_reason(answers)) {
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

    /// Returns the time of the next call at which `read_list`, `poll` or `take` has something to do.
    fn wake(&self) -> BootTime {
        let (now, wall) = (self.env.now(), self.with.quorum.wall());
        let room = self.active.len() < self.with.max_running;
        let candidates = self.candidates.values().filter(|_| room).map(|candidate| match candidate.try_at {
            Some(at) => at,
            None => now + wall.until(candidate.not_before).min(WALL_CLOCK_CHECK),
        });
        candidates.chain(self.next_list()).chain(self.next_poll()).min().unwrap_or(now + LIST_PAUSE.1)
    }
}

/// Returns the name of the job in a run's key.
fn job_of(key: &str) -> Option<&str> {
    job_and_tick(key).map(|(job, _)| job)
}

/// Returns the reason for which the run must be cancelled, if the deciding record in `answers` has one.
fn cancel_reason(answers: &[(Memory, Option<Record>)]) -> Option<Arc<str>> {
    let decides =
        answers.iter().filter_map(|(_, record)| record.as_ref()).max_by_key(|record| rank(record))?;
    match RunRecord::parse(&decides.value) {
        Ok(RunRecord::Open(open)) => open.cancel,
        Ok(RunRecord::Closed { .. }) => Some("the leader has closed the run".into()),
        _ => None,
    }
}

/// One attempt of this worker to take a run.
struct Attempt {
    key: Arc<str>,
    job: Arc<Job>,
    slots: Slots,
    with: Taking,
    cancel: Cancel,
}

impl Attempt {
    async fn run(self) -> Tried {
        let open = match self.read().await {
            Ok(Some(open)) => open,
            Ok(None) => return Tried::Again(TAKE_RETRY),
            Err(tried) => return tried,
        };
        let now = self.with.quorum.wall();
        if open.not_before > now {
            return Tried::Again(now.until(open.not_before).min(WALL_CLOCK_CHECK));
        }
        if open.take_by < now || open.cancel.is_some() || self.cancel.is_cancelled() {
            return Tried::Finished;
        }
        match self.slots.claim(&open.slot(&self.key)).await {
            Claimed::Free(claim) => self.execute(claim, open).await,
            // The slot was taken before, or has ended. So a worker may have started the run, and the leader
            // decides whether another generation follows.
            Claimed::Counted(_) | Claimed::Ended(_) => Tried::Finished,
            Claimed::Held(after) => Tried::Again(after.unwrap_or(TAKE_RETRY).min(self.with.ttl)),
            Claimed::Unavailable => Tried::Again(TAKE_RETRY),
        }
    }

    /// Reads the open generation of the run, which a majority of nodes must store. Returns `None` if no record
    /// has a majority yet.
    async fn read(&self) -> Result<Option<OpenRun>, Tried> {
        let keys = [Arc::clone(&self.key)];
        match self.with.ledger.read_keys(&keys).await {
            Ok(answers) => {
                let nodes = self.with.quorum.pool().len();
                Ok(answers.first().and_then(|answers| is_open(answers, nodes)).map(|(_, open)| open))
            }
            Err(error) => {
                tracing::debug!(run = &*self.key, "its record cannot be read yet: {error}");
                Err(Tried::Again(TAKE_RETRY))
            }
        }
    }

    async fn execute(self, claim: SlotClaim, open: OpenRun) -> Tried {
        let tick = job_and_tick(&self.key).map_or(open.not_before, |(_, tick)| tick);
        let span = run_span(&self.job, tick, open.cause, open.term);
        self.take_and_execute(claim, open, tick, span.clone()).instrument(span).await
    }

    /// Takes the slot: lets the nodes count this attempt, checks the claim, and executes the run within its
    /// span.
    async fn take_and_execute(self, claim: SlotClaim, open: OpenRun, tick: WallTime, span: Span) -> Tried {
        // Once this attempt is counted, no other attempt can take this slot. If a later step fails, the leader
        // closes the run or opens its next generation.
        if !claim.take().await || !claim.lease().is_valid() || self.cancel.is_cancelled() {
            span.record("outcome", "not started");
            return Tried::Finished;
        }
        let (env, quorum) = (self.with.quorum.env().clone(), &self.with.quorum);
        let began = quorum.wall();
        if open.cause == RunCause::Scheduled {
            self.with.registry.counts().late(&self.job.name, open.not_before.until(began));
        }
        let output = RunOutput::new(open.state.clone(), self.job.keep_output);
        let taken = TakenSlot { output: output.clone(), claim };
        let work = Execution {
            job: Arc::clone(&self.job),
            tick,
            cause: open.cause,
            guard: RunGuard::Claim(Arc::clone(taken.claim.lease()), env.clone()),
            output: output.clone(),
            cancel: self.cancel.clone(),
            grace: self.with.grace,
        };
        let lost = taken.claim.lease().lost_token().clone();
        let result = tokio::select! { biased;
            result = work.run() => Some(result),
            () = lost.cancelled() => None,
        };
        let Some(result) = result else {
            span.record("outcome", RunOutcome::Lost.as_str());
            tracing::warn!(job = &*self.job.name, run = &*self.key, "dropped: its claim was lost");
            return Tried::Finished;
        };
        // If the handler stopped only because this worker is shutting down, the run's result is *interrupted*.
        // Another worker then executes the run again.
        let again = result.end == ExecutionEnd::Cancelled
            && self.job.delivery == Delivery::AtLeastOnce
            && !self.cancel.is_for_good();
        let end = result.end.of_tick().filter(|_| !again);
        record_end(&span, end.map_or("interrupted", RunOutcome::as_str), &result);
        let outcome = SlotResult {
            worker: Arc::clone(&quorum.config().worker),
            end,
            reason: result.reason,
            began,
            took: Some(result.took),
            attempts: result.attempts,
            error: result.error,
            state: result.state,
            output: result.output,
        };
        if output.is_unreleased() {
            // Processes of the handler may still be running. So the worker records the end of the run only one
            // TTL later. The next run then starts no earlier than it would if the claim had expired.
            env.sleep(self.with.ttl).await;
        }
        if let Err(error) = taken.claim.complete(&outcome.to_text()).await {
            tracing::warn!(job = &*self.job.name, run = &*self.key, "its end is not recorded: {error}");
        }
        Tried::Finished
    }
}

/// A slot that this worker has taken. If this value is dropped while the handler runs, the claim is released,
/// so that the leader sees at once that the run is lost. If the handler has called
/// [`end_without_release`](crate::scheduler::RunContext::end_without_release), the claim is not released, but
/// expires.
struct TakenSlot {
    claim: SlotClaim,
    output: RunOutput,
}

impl Drop for TakenSlot {
    fn drop(&mut self) {
        if self.output.is_unreleased() {
            self.claim.let_run_out();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{FencingToken, NodeTime};

    #[test]
    fn the_record_that_decides_cancels_a_run() {
        let memory = Memory { since: NodeTime::default(), max_clock_offset: Duration::ZERO };
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
        let record = |term, written: RunRecord| Some(written.into_record(at, FencingToken::new(term)));
        let answers = |records: [Option<Record>; 2]| records.map(|record| (memory, record));
        assert_eq!(cancel_reason(&answers([None, record(1, open(None))])), None);
        let why = cancel_reason(&answers([record(1, open(None)), record(1, open(Some("on request")))]));
        assert_eq!(why.as_deref(), Some("on request"));
        let closed = RunRecord::closed("w", RunOutcome::Lost, "");
        assert_eq!(cancel_reason(&answers([record(2, open(None)), record(1, closed.clone())])), None, "R11b");
        assert!(cancel_reason(&answers([record(2, open(None)), record(3, closed)])).is_some());
    }
}
