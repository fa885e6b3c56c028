//! A worker's share of the runs that the leader opens: finds them, takes their slots, and executes them.
//!
//! # What is not guaranteed
//!
//! A worker that is paused between its last look at the claim and the start of the handler starts late: effects need the
//! fencing token. A cancellation reaches a worker when it next reads the run's record, about once a second; a run that ends
//! before that has ended.
//!
//! # How a run is found
//!
//! The leader keeps a short list of the runs that no worker has taken. A worker reads it a few times a second while there is
//! work, and otherwise about once a second. It then reads the record of a run by its key when the run is due, and takes the run only
//! on the same record at a majority of nodes (R3). Workers wait a random moment before that, longer the more they run, so that
//! the runs are shared and the votes seldom split.

use crate::scheduler::{
    Delivery, Job, OpenRun, RunCause, RunRecord, is_open,
    plan::verdict::rank,
    registry::{JobRegistry, Phase},
    run::{Cancel, Execution, ExecutionEnd, RunGuard, RunOutput},
    store::{OpenList, SlotResult},
};
use crate::{
    claim::{Claimed, SlotClaim, SlotId, Slots},
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

/// Between two reads of the list: while there is work, and at most.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The wall clock may step: it is read at least this often while a run is yet to come.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// Between two reads of the records of active runs.
const POLL: Duration = Duration::from_secs(1);
/// The longest random wait before a run is tried, for a worker that runs nothing; and for each run that it has.
const SHARE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(5));
/// The most runs that lengthen the wait.
const SHARE_RUNS: u32 = 10;
/// After an attempt that too few nodes answered.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// The parameters with which a worker takes runs.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct Taking {
    pub(in crate::scheduler) registry: JobRegistry,
    pub(in crate::scheduler) quorum: Quorum,
    pub(in crate::scheduler) ledger: Ledger,
    pub(in crate::scheduler) group: Arc<str>,
    pub(in crate::scheduler) max_running: usize,
    /// The longest time for which a crashed worker keeps a run.
    pub(in crate::scheduler) ttl: Duration,
    /// The time in which a cancelled run has to end.
    pub(in crate::scheduler) grace: Duration,
}

/// Takes and executes runs until `stop` is cancelled or the scheduler is drained, and its runs have ended.
pub(in crate::scheduler) async fn take_runs(with: Taking, stop: CancellationToken) {
    let env = with.quorum.env().clone();
    let mut worker = Worker {
        slots: Slots::new(&with.quorum, &with.group, with.ttl, with.grace),
        look_at: env.now(),
        pause: LOOK.0,
        poll_at: env.now(),
        looking: None,
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
    looking: Option<ScopedTask<Result<Shown, LedgerError>>>,
    look_at: BootTime,
    pause: Duration,
    polling: Option<ScopedTask<Result<Polled, LedgerError>>>,
    poll_at: BootTime,
}

/// The memory, and the record under one key, of each node that answered.
type Shown = Vec<(Memory, Option<Record>)>;

/// The keys of active runs, and what is shown under each.
type Polled = (Vec<Arc<str>>, Vec<Shown>);

/// A run that is listed as open, of a job that this worker has.
#[derive(Debug)]
struct Candidate {
    not_before: WallTime,
    /// Not tried again before this.
    try_at: Option<BootTime>,
}

/// A run that is tried or executed here.
#[derive(Debug)]
struct Active {
    cancel: Cancel,
    not_before: WallTime,
}

/// The result of one attempt to take a run.
#[derive(Debug)]
enum Tried {
    /// This worker executed it, or will not take this generation.
    Over,
    /// It may be taken after this time.
    Again(Duration),
}

impl Worker {
    async fn serve(&mut self, stop: &CancellationToken) {
        let (mut changed, mut phase) = self.with.registry.watch();
        while !stop.is_cancelled() && self.with.registry.phase() == Phase::Open {
            self.look();
            self.poll();
            self.take();
            let wake = self.wake();
            tokio::select! { biased;
                () = stop.cancelled() => break,
                Some((key, tried)) = self.runs.next() => self.tried(&key, &tried),
                Some(shown) = OptionFuture::from(self.looking.as_mut()) => {
                    self.looking = None;
                    self.looked(shown.ok().and_then(Result::ok));
                }
                Some(shown) = OptionFuture::from(self.polling.as_mut()) => {
                    self.polling = None;
                    self.polled(shown.ok().and_then(Result::ok));
                }
                _ = changed.changed() => self.look_at = self.env.now(),
                _ = phase.changed() => {}
                () = self.env.sleep_until(wake) => {}
            }
        }
        self.last_runs(stop).await;
    }

    /// Nothing more is taken. What is active may be cancelled yet.
    async fn last_runs(&mut self, stop: &CancellationToken) {
        loop {
            if stop.is_cancelled() {
                let why = "the worker was told to stop";
                self.active.values().for_each(|run| run.cancel.interrupt(why));
            }
            self.poll();
            let poll_at = self.poll_at;
            tokio::select! { biased;
                ended = self.runs.next() => match ended {
                    Some((key, tried)) => self.tried(&key, &tried),
                    None => return,
                },
                Some(shown) = OptionFuture::from(self.polling.as_mut()) => {
                    self.polling = None;
                    self.polled(shown.ok().and_then(Result::ok));
                }
                () = self.env.sleep_until(poll_at), if self.polling.is_none() => {}
                () = stop.cancelled(), if !stop.is_cancelled() => {}
            }
        }
    }

    /// Reads the list of open runs, now and then.
    fn look(&mut self) {
        if self.looking.is_some() || self.env.now() < self.look_at || self.with.registry.jobs().is_empty() {
            return;
        }
        let ledger = self.with.ledger.clone();
        self.looking = Some(self.env.spawn_scoped(async move {
            let shown = ledger.read_keys(&[OpenList::KEY.into()]).await?;
            Ok(shown.into_iter().next().unwrap_or_default())
        }));
    }

    fn looked(&mut self, shown: Option<Shown>) {
        let Some(shown) = shown else {
            self.look_at = self.env.now() + TRY_AGAIN;
            return;
        };
        let (listed, jobs) = (OpenList::read(&shown), self.with.registry.jobs());
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
        let (least, most) = LOOK;
        self.pause = if found { least } else { (self.pause + self.pause / 4).min(most) };
        self.look_at = self.env.now() + self.pause;
    }

    /// Reads the records of active runs, to learn which are to be cancelled.
    fn poll(&mut self) {
        if self.polling.is_some() || self.env.now() < self.poll_at || self.active.is_empty() {
            return;
        }
        self.poll_at = self.env.now() + POLL;
        let (ledger, keys) = (self.with.ledger.clone(), self.active.keys().cloned().collect::<Vec<_>>());
        self.polling = Some(self.env.spawn_scoped(async move {
            let shown = ledger.read_keys(&keys).await?;
            Ok((keys, shown))
        }));
    }

    fn polled(&mut self, shown: Option<Polled>) {
        for (key, shown) in shown.into_iter().flat_map(|(keys, shown)| keys.into_iter().zip(shown)) {
            if let (Some(active), Some(why)) = (self.active.get(&key), cancelled(&shown)) {
                active.cancel.cancel(&why);
            }
        }
    }

    /// Tries the runs that are due, in order of priority and then of time, while there is room.
    fn take(&mut self) {
        let (now, wall) = (self.env.now(), self.with.quorum.wall());
        let busy = u32::try_from(self.active.len()).unwrap_or(u32::MAX).min(SHARE_RUNS);
        let jobs = self.with.registry.jobs();
        let mut due = Vec::new();
        for (key, candidate) in &mut self.candidates {
            let Some(job) = job_of(key).and_then(|job| jobs.get(job)) else { continue };
            if candidate.not_before > wall {
                candidate.try_at = None;
                continue;
            }
            let (idle, each) = SHARE;
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
        // Where a panic of ours tears it down, the leader finds out what became of it.
        self.runs.push(trying.map(move |tried| (key, tried.unwrap_or(Tried::Over))).boxed());
    }

    fn tried(&mut self, key: &Arc<str>, tried: &Tried) {
        let Some(Active { not_before, .. }) = self.active.remove(key) else { return };
        let after = match tried {
            Tried::Again(after) => *after + self.env.random_below(SHARE.0),
            // Unless it is opened again, the leader soon takes it off the list.
            Tried::Over => LOOK.1,
        };
        let try_at = Some(self.env.now() + after);
        self.candidates.insert(Arc::clone(key), Candidate { not_before, try_at });
        self.look_at = self.look_at.min(self.env.now() + LOOK.0);
    }

    fn wake(&self) -> BootTime {
        let (now, wall) = (self.env.now(), self.with.quorum.wall());
        let room = self.active.len() < self.with.max_running;
        // Only what `look` and `take` act on may wake this task, or it would wake again and again.
        let jobs = self.with.registry.jobs();
        let is_known = |key: &str| job_of(key).is_some_and(|job| jobs.contains_key(job));
        let candidates = self.candidates.iter().filter(|(key, _)| room && is_known(key));
        let candidates = candidates.map(|(_, candidate)| match candidate.try_at {
            Some(at) => at,
            None => now + wall.until(candidate.not_before).min(WAIT_MAX),
        });
        let look = (self.looking.is_none() && !jobs.is_empty()).then_some(self.look_at);
        let poll = (self.polling.is_none() && !self.active.is_empty()).then_some(self.poll_at);
        candidates.chain(look).chain(poll).min().unwrap_or(now + LOOK.1)
    }
}

/// The job of a run's key: `tick/JOB/TIME`, or `run/REQUEST/JOB/TIME`.
fn job_of(key: &str) -> Option<&str> {
    let rest = key.strip_prefix("tick/").or_else(|| Some(key.strip_prefix("run/")?.split_once('/')?.1))?;
    rest.rsplit_once('/').map(|(job, _)| job)
}

/// When the run of a key was due, or asked for.
fn tick_of(key: &str) -> Option<WallTime> {
    let micros = key.rsplit_once('/')?.1;
    micros.parse().ok().map(WallTime::from_micros)
}

/// Why the run of these records is to be cancelled, by the one that decides.
fn cancelled(shown: &[(Memory, Option<Record>)]) -> Option<Arc<str>> {
    let decides = shown.iter().filter_map(|(_, record)| record.as_ref()).max_by_key(|record| rank(record))?;
    match RunRecord::parse(&decides.value) {
        Ok(RunRecord::Open(open)) => open.cancel,
        Ok(RunRecord::Closed { .. }) => Some("the leader has closed the run".into()),
        _ => None,
    }
}

/// One attempt to take a run.
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
            Ok(None) => return Tried::Again(TRY_AGAIN),
            Err(over) => return over,
        };
        let now = self.with.quorum.wall();
        if open.not_before > now {
            return Tried::Again(now.until(open.not_before).min(WAIT_MAX));
        }
        if open.take_by < now || open.cancel.is_some() || self.cancel.is_cancelled() {
            return Tried::Over;
        }
        let slot = SlotId {
            run: Arc::clone(&self.key),
            generation: open.generation,
            at: open.at,
            horizon: open.horizon,
        };
        match self.slots.claim(&slot).await {
            Claimed::Free(claim) => self.execute(claim, open).await,
            // Another attempt may have started it: the leader decides.
            Claimed::Counted(_) | Claimed::Ended(_) => Tried::Over,
            Claimed::Held(after) => Tried::Again(after.unwrap_or(TRY_AGAIN).min(self.with.ttl)),
            Claimed::Unavailable => Tried::Again(TRY_AGAIN),
        }
    }

    /// The generation that is open, by a majority; nothing where no record has one yet.
    async fn read(&self) -> Result<Option<OpenRun>, Tried> {
        let keys = [Arc::clone(&self.key)];
        match self.with.ledger.read_keys(&keys).await {
            Ok(shown) => {
                let nodes = self.with.quorum.pool().len();
                Ok(shown.first().and_then(|shown| is_open(shown, nodes)).map(|(_, open)| open))
            }
            Err(error) => {
                tracing::debug!(run = &*self.key, "its record cannot be read yet: {error}");
                Err(Tried::Again(TRY_AGAIN))
            }
        }
    }

    /// Counts the attempt, looks at the claim, and executes the run.
    async fn execute(self, claim: SlotClaim, open: OpenRun) -> Tried {
        // The count is never taken back: what fails from here on the leader closes or opens again.
        if !claim.take().await || !claim.lease().is_valid() || self.cancel.is_cancelled() {
            return Tried::Over;
        }
        let (env, quorum) = (self.with.quorum.env().clone(), &self.with.quorum);
        let began = quorum.wall();
        if open.cause == RunCause::Scheduled {
            self.with.registry.counts().late(&self.job.name, open.not_before.until(began));
        }
        let said = RunOutput::new(open.state.clone(), self.job.keep_output);
        let claim = Held { said: said.clone(), claim };
        let work = Execution {
            job: Arc::clone(&self.job),
            tick: tick_of(&self.key).unwrap_or(open.not_before),
            cause: open.cause,
            hold: RunGuard::Claim(Arc::clone(claim.claim.lease()), env.clone()),
            said: said.clone(),
            cancel: self.cancel.clone(),
            grace: self.with.grace,
        };
        let lost = claim.claim.lease().lost_token().clone();
        let worked = tokio::select! { biased;
            worked = work.run() => Some(worked),
            () = lost.cancelled() => None,
        };
        let Some(worked) = worked else {
            tracing::warn!(job = &*self.job.name, run = &*self.key, "its claim was lost, and it was dropped");
            return Tried::Over;
        };
        // At a shutdown another worker may run it again.
        let again = worked.end == ExecutionEnd::Cancelled
            && self.job.delivery == Delivery::AtLeastOnce
            && !self.cancel.is_for_good();
        let outcome = SlotResult {
            worker: Arc::clone(&quorum.config().worker),
            end: worked.end.of_tick().filter(|_| !again),
            reason: worked.reason,
            began,
            took_ms: u64::try_from(worked.took.as_millis()).unwrap_or(u64::MAX),
            attempts: worked.attempts,
            state: worked.state,
            output: worked.output,
        };
        if said.is_unreleased() {
            // What it started may go on: nothing follows before a claim that is not extended would have ended.
            env.sleep(self.with.ttl).await;
        }
        if let Err(error) = claim.claim.complete(&outcome.to_text()).await {
            tracing::warn!(job = &*self.job.name, run = &*self.key, "its end is not recorded: {error}");
        }
        Tried::Over
    }
}

/// A slot that was taken. Dropped while its handler runs, it is released, unless that is to wait for the TTL.
struct Held {
    claim: SlotClaim,
    said: RunOutput,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.said.is_unreleased() {
            self.claim.let_run_out();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{FencingToken, NodeTime};
    use crate::scheduler::{RunKey, RunOutcome};

    #[test]
    fn a_key_names_its_job_and_its_tick() {
        let tick = WallTime::from_micros(5);
        assert_eq!(job_of(&RunKey::new("nightly", tick).key()), Some("nightly"));
        assert_eq!(job_of("run/00ab/nightly/00000000000000000005"), Some("nightly"));
        assert_eq!(tick_of("run/00ab/nightly/00000000000000000005"), Some(tick));
        assert_eq!((job_of("open"), job_of("job/j")), (None, None));
    }

    #[test]
    fn a_run_is_cancelled_by_the_record_that_decides() {
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
        let shown = |records: [Option<Record>; 2]| records.map(|record| (memory, record));
        assert_eq!(cancelled(&shown([None, record(1, open(None))])), None);
        let why = cancelled(&shown([record(1, open(None)), record(1, open(Some("on request")))]));
        assert_eq!(why.as_deref(), Some("on request"));
        let closed = RunRecord::closed("w", RunOutcome::Lost, "");
        assert_eq!(cancelled(&shown([record(2, open(None)), record(1, closed.clone())])), None, "R11b");
        assert!(cancelled(&shown([record(2, open(None)), record(3, closed)])).is_some());
    }
}
