//! The tasks of the leader's active runs: the runs that the leader executes itself, and the runs that it has
//! opened to workers.

use crate::{
    election::Term,
    env::{BootTime, ScopedTask, WallTime},
    ledger::TermLedger,
    scheduler::{
        leader::leading::Leading,
        plan::{
            active_run::Withdrawal,
            effect::{RunCompletion, RunStart},
            job_id::JobId,
        },
        run::{
            Cancel,
            assign::{LiveWorker, OpenRuns},
            next_start::NextStart,
            on_leader::{Began, Run, RunEnd},
            opened::Opened,
            span::run_span,
        },
        store::snapshot::LedgerSnapshot,
    },
    session::Sessions,
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::watch;

/// The active runs of one term. Dropping this value drops the runs.
pub(in crate::scheduler) struct ActiveRuns {
    term: Term,
    grace: Duration,
    ledger: TermLedger,
    open_runs: OpenRuns,
    /// Unknown runs of before the ledger was founded start no earlier.
    unknown_from: WallTime,
    next_start: NextStart,
    tasks: FuturesUnordered<BoxFuture<'static, RunCompletion>>,
    /// The runs that the leader executes, by key.
    executing: BTreeMap<Arc<str>, Executing>,
}

/// A run that the leader executes.
struct Executing {
    owner: Option<JobId>,
    cancel: Cancel,
    began: Began,
}

impl ActiveRuns {
    pub(in crate::scheduler) fn new(
        leading: &Leading,
        sealed: &LedgerSnapshot,
        led: &TermLedger,
        next_start: NextStart,
    ) -> Self {
        let Leading { term, ledger, ttl, grace, .. } = leading;
        let sessions = Sessions::new(term.quorum(), term.group(), *ttl, *grace);
        let measures = leading.registry.counts().measures().clone();
        Self {
            term: term.clone(),
            grace: *grace,
            ledger: led.clone(),
            open_runs: OpenRuns::start(term, (ledger, led), sealed, (sessions, measures)),
            unknown_from: sealed.founded_at() + term.quorum().config().max_ttl,
            next_start,
            tasks: FuturesUnordered::new(),
            executing: BTreeMap::new(),
        }
    }

    /// Starts the task that executes a run on the leader.
    pub(in crate::scheduler) fn execute(&mut self, start: RunStart) {
        let (cancel, began) = (Cancel::default(), Began::default());
        let RunStart { owner, job, state, run, payload, end_needed_at } = start;
        let executing = Executing { owner, cancel: cancel.clone(), began: Arc::clone(&began) };
        self.executing.insert(Arc::clone(&run.key), executing);
        let run = Run {
            job,
            start: run,
            ledger: self.ledger.clone(),
            term: self.term.clone(),
            state,
            payload,
            cancel,
            began,
            grace: self.grace,
            delay: self.next_start.delay(end_needed_at),
        };
        // The span is created here, where the span of the term is the current one, so that the term is its
        // parent.
        let span = run_span(&run.job, run.start.tick, run.start.cause, self.term.unchecked_token());
        let (key, task) = (Arc::clone(&run.start.key), self.term.spawn_scoped(run.run(span)));
        self.add(owner, key, task);
    }

    /// Gives a run to the workers.
    pub(in crate::scheduler) fn open(&mut self, start: RunStart) {
        let RunStart { owner, job, state, run, payload, .. } = start;
        let key = Arc::clone(&run.key);
        let with = (&self.term, &self.ledger, &self.open_runs);
        let opened = Opened::new((job, run, payload), with, state, owner.is_some(), self.unknown_from);
        let task = self.term.spawn_scoped(opened.run());
        self.add(owner, key, task);
    }

    /// Says whether the leader has jobs for any worker.
    pub(in crate::scheduler) fn need_workers(&self, needed: bool) {
        self.open_runs.need_workers(needed);
    }

    /// Returns the workers that live. `None` until the leader has looked for them.
    pub(in crate::scheduler) fn workers(&self) -> watch::Receiver<Option<Vec<LiveWorker>>> {
        self.open_runs.workers()
    }

    /// Returns the moment of the next start of runs, for which the closed records of runs wait.
    pub(in crate::scheduler) fn next_start(&self) -> &NextStart {
        &self.next_start
    }

    /// Cancels a run.
    pub(in crate::scheduler) fn cancel(&self, key: &Arc<str>, why: &str) {
        match self.executing.get(key) {
            Some(run) => run.cancel.cancel(why),
            None => self.open_runs.cancel(key, why),
        }
    }

    /// Ends an open run, unless a worker has started it.
    pub(in crate::scheduler) fn withdraw(&self, key: &Arc<str>, why: Withdrawal) {
        self.open_runs.withdraw(key, why.end(), why.reason());
    }

    /// Leaves an open run to the next leader.
    pub(in crate::scheduler) fn release(&self, key: &Arc<str>) {
        self.open_runs.leave(key);
    }

    /// Waits until the next run ends, and returns its completion. Returns `None` if no run is active.
    ///
    /// # Cancel safety
    /// If the future is dropped, no completion is lost: the next call returns it.
    pub(in crate::scheduler) async fn next(&mut self) -> Option<RunCompletion> {
        let ended = self.tasks.next().await?;
        self.executing.remove(&ended.key);
        Some(ended)
    }

    /// Drops all active runs. Returns the completions of the runs that the leader executed itself and whose handlers had
    /// started, so that their histories get an entry.
    pub(in crate::scheduler) fn abort(&mut self) -> Vec<RunCompletion> {
        self.tasks.clear();
        let now = self.term.env().now();
        let executing = std::mem::take(&mut self.executing).into_iter();
        executing.filter_map(|(key, run)| run.aborted(key, now)).collect()
    }

    fn add(&mut self, owner: Option<JobId>, key: Arc<str>, task: ScopedTask<RunEnd>) {
        let ended = task.map(move |end| RunCompletion { owner, key, end: end.ok() });
        self.tasks.push(ended.boxed());
    }
}

impl Executing {
    /// Returns the completion of the run, which was dropped at `now`. Returns `None` if its handler had not begun.
    fn aborted(self, key: Arc<str>, now: BootTime) -> Option<RunCompletion> {
        let (began, since) = *self.began.get()?;
        let end = RunEnd::Aborted { began, took: now.since(since) };
        Some(RunCompletion { owner: self.owner, key, end: Some(end) })
    }
}
