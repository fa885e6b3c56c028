//! One assignment on its worker: its start, the execution of the run, and the report of its end.

use crate::{
    env::BootTime,
    lease::Lease,
    ledger::{Ledger, Registered},
    node::copy::{AssignmentId, WorkAct},
    quorum::Quorum,
    sabotage::Sabotage,
    scheduler::{
        job::{Job, RunCause, RunGuard, RunOutcome, RunOutput},
        policy::{Delivery, Labels},
        registry::JobRegistry,
        run::{
            Cancel, Execution,
            span::{record_end, run_span},
        },
        store::{OpenRun, WorkEnd, job_and_tick},
    },
};
use std::{sync::Arc, time::Duration};
use tracing::{Instrument, Span};

/// The pause before a worker asks the nodes again.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A worker whose start no majority registers within this time gives the run back. Too few nodes may take part in the
/// assignment, because others have forgotten it since.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(2);

/// The parts that a worker needs to execute runs.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct WorkerParts {
    pub(in crate::scheduler) registry: JobRegistry,
    pub(in crate::scheduler) quorum: Quorum,
    pub(in crate::scheduler) ledger: Ledger,
    pub(in crate::scheduler) group: Arc<str>,
    /// The number of runs that the worker executes at the same time.
    pub(in crate::scheduler) max_running: usize,
    pub(in crate::scheduler) labels: Labels,
    pub(in crate::scheduler) ttl: Duration,
    pub(in crate::scheduler) grace: Duration,
}

/// The result of an attempt to start an assignment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// The worker is done with the assignment.
    Over,
    /// Too few nodes answered, or some do not have the assignment yet.
    Again,
}

/// One assignment.
pub(super) struct Assignment {
    pub(super) key: Arc<str>,
    pub(super) id: AssignmentId,
    pub(super) open: OpenRun,
    /// The time of the first attempt to start it.
    pub(super) tried: BootTime,
    /// `None` if the worker does not have the job.
    pub(super) job: Option<Arc<Job>>,
    pub(super) session: Arc<Lease>,
    pub(super) with: WorkerParts,
    pub(super) cancel: Cancel,
}

impl Assignment {
    /// Starts the run if a majority of the nodes registers the start, executes it, and reports the end.
    pub(super) async fn run(self) -> Tried {
        let Some(job) = self.job.clone() else {
            self.report(WorkEnd::NotStarted {
                why: "the worker does not have the job".into(),
                lacks_job: true,
            })
            .await;
            return Tried::Over;
        };
        let not_started = |why: &str| WorkEnd::NotStarted { why: why.into(), lacks_job: false };
        let env = self.with.quorum.env();
        if self.open.cancel.is_some() || self.cancel.is_cancelled() {
            self.report(not_started("it was cancelled before its start")).await;
            return Tried::Over;
        }
        // The session as it is now decides. A later extension may come after another founding of the ledger.
        let valid_until = self.session.valid_until();
        let answers = self.with.ledger.work(&self.key, self.id, WorkAct::Start).await;
        let one_is_enough = self.with.quorum.config().sabotaged(Sabotage::StartUnregistered);
        if answers.by_majority() || one_is_enough && answers.done > 0 {
            if self.session.is_valid() && valid_until.is_some_and(|until| env.now() < until) {
                return self.execute(job).await;
            }
            self.report(not_started("the session of the worker ended before its start")).await;
            return Tried::Over;
        }
        let late = self.open.take_by < self.with.quorum.wall() || self.tried + GIVE_BACK_AFTER < env.now();
        if answers.too_late > 0 || late {
            self.report(not_started("it came too late")).await;
            return Tried::Over;
        }
        Tried::Again
    }

    async fn execute(self, job: Arc<Job>) -> Tried {
        let tick = job_and_tick(&self.key).map_or(self.open.not_before, |(_, tick)| tick);
        let span = run_span(&job, tick, self.open.cause, self.open.term);
        let work = Work { tick, span: span.clone(), assignment: self, job };
        work.run().instrument(span).await;
        Tried::Over
    }

    /// Reports the end of the assignment to the nodes, until a majority has it or the leader no longer needs it.
    async fn report(&self, end: WorkEnd) {
        report(&self.with.ledger, (&self.key, self.id), &end, self.with.ttl).await;
    }
}

/// Reports the end of an assignment, for at most `limit`.
async fn report(ledger: &Ledger, (key, id): (&Arc<str>, AssignmentId), end: &WorkEnd, limit: Duration) {
    let env = ledger.quorum().env();
    let (value, until): (Arc<str>, _) = (end.to_text().into(), env.now() + limit);
    loop {
        let answers: Registered = ledger.work(key, id, WorkAct::End { value: Arc::clone(&value) }).await;
        if answers.by_majority() || answers.is_over() {
            return;
        }
        if env.now() >= until {
            tracing::warn!(run = &**key, "its end is not recorded: too few nodes answered");
            return;
        }
        env.sleep(ASK_AGAIN).await;
    }
}

/// The execution of one run.
struct Work {
    assignment: Assignment,
    job: Arc<Job>,
    tick: crate::env::WallTime,
    span: Span,
}

impl Work {
    async fn run(self) {
        let Assignment { key, id, open, session, with, cancel, .. } = &self.assignment;
        let (env, quorum, job) = (with.quorum.env().clone(), &with.quorum, &self.job);
        let began = quorum.wall();
        if open.cause == RunCause::Scheduled {
            with.registry.counts().late(job.series(), open.not_before.until(began));
        }
        let output = RunOutput::new(open.state.clone(), job.rules.keep_output);
        let unreleased = Unreleased { output: output.clone(), session: Arc::clone(session) };
        let work = Execution {
            job: Arc::clone(job),
            tick: self.tick,
            cause: open.cause,
            payload: open.payload.clone(),
            guard: RunGuard::Session { lease: Arc::clone(session), token: open.token, env: env.clone() },
            output: output.clone(),
            cancel: cancel.clone(),
            grace: with.grace,
        };
        let lost = session.lost_token().clone();
        let result = tokio::select! { biased;
            result = work.run(&quorum.config().worker, began) => Some(result),
            () = lost.cancelled() => None,
        };
        let Some(mut result) = result else {
            self.span.record("outcome", RunOutcome::Lost.as_str());
            tracing::warn!(job = &*job.name, run = &**key, "dropped: the session of this worker was lost");
            return;
        };
        // If the handler stopped only because this worker is shutting down, the run's result is *interrupted*.
        // Then it is executed again.
        let again = result.end == Some(RunOutcome::Cancelled)
            && job.rules.delivery == Delivery::AtLeastOnce
            && !cancel.is_for_good();
        result.end = result.end.filter(|_| !again);
        let (outcome, error) = (result.end.map_or("interrupted", RunOutcome::as_str), result.error.as_ref());
        record_end(&self.span, outcome, result.attempts, error.unwrap_or(&result.reason));
        let row = WorkEnd::Done(result);
        if output.is_unreleased() {
            // Processes of the handler may still be running. So the worker reports the end of the run only one TTL later.
            // The next run then starts no earlier than it would if the session had expired.
            env.sleep(with.ttl).await;
        }
        report(&with.ledger, (key, *id), &row, with.ttl).await;
        drop(unreleased);
    }
}

/// If a run is dropped while processes of its handler may still be running, lets the session of its worker run out in
/// place of releasing it.
struct Unreleased {
    output: RunOutput,
    session: Arc<Lease>,
}

impl Drop for Unreleased {
    fn drop(&mut self) {
        if self.output.is_unreleased() {
            self.session.forget();
        }
    }
}
