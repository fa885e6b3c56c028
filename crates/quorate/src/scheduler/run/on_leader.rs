//! A run that the leader executes itself. The leader writes a *started* record at a majority, checks that its
//! term is valid, executes the run, and writes the end of the run.

use crate::{
    election::Term,
    env::{BootTime, WallTime},
    ledger::{LedgerError, TermLedger},
    sabotage::Sabotage,
    scheduler::{
        job::{Job, Payload, RunCause, RunGuard, RunOutcome, RunOutput},
        policy::Delivery,
        run::{Cancel, Execution, next_start::RecordDelay, pending_run::PendingRun, span::record_end},
        store::{HistoryEntry, RunRecord, WorkResult, snapshot::state_key},
    },
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tracing::{Instrument, Span};

/// A run that the leader is about to execute.
pub(in crate::scheduler) struct Run {
    pub(in crate::scheduler) job: Arc<Job>,
    pub(in crate::scheduler) start: PendingRun,
    pub(in crate::scheduler) ledger: TermLedger,
    pub(in crate::scheduler) term: Term,
    /// The state that the job's last run has saved.
    pub(in crate::scheduler) state: Option<Arc<str>>,
    pub(in crate::scheduler) payload: Option<Payload>,
    pub(in crate::scheduler) cancel: Cancel,
    pub(in crate::scheduler) began: Began,
    pub(in crate::scheduler) grace: Duration,
    pub(in crate::scheduler) delay: RecordDelay,
}

/// The time at which the handler of a run began, by the wall clock and by the boot clock. Empty until the handler begins.
pub(in crate::scheduler) type Began = Arc<OnceLock<(WallTime, BootTime)>>;

impl Run {
    /// Executes the run, within its span. If the future is dropped, the handler is dropped too. The ledger
    /// then has the
    /// *started* record of the run, and no end.
    pub(in crate::scheduler) async fn run(self, span: Span) -> RunEnd {
        let end = self.steps().instrument(span.clone()).await;
        let (outcome, entry) = match &end {
            RunEnd::Ended { entry, .. } => (entry.end.as_str(), entry),
            RunEnd::Interrupted(entry, _) => ("interrupted", entry),
            _ => {
                span.record("outcome", "not started");
                return end;
            }
        };
        record_end(&span, outcome, entry.attempts, entry.attempt_error.as_ref().unwrap_or(&entry.reason));
        end
    }

    async fn steps(self) -> RunEnd {
        if self.stopped() {
            // This leader has written no record of the run, so it has nothing to undo. The next leader decides
            // on the run.
            return RunEnd::Abandoned;
        }
        let started = match self.write_started().await {
            Ok(record) => record,
            Err(error) => {
                tracing::debug!(run = &*self.start.key, "not started: {error}");
                return RunEnd::Abandoned;
            }
        };
        // The process may have been paused after the write. Meanwhile a later leader may have started a
        // catch-up run of the same tick. So the term is checked again.
        let checks = !self.term.quorum().config().sabotaged(Sabotage::NoCheckBeforeWork);
        if checks && !self.term.is_valid() {
            return RunEnd::Abandoned;
        }
        // A step-down may have begun while *started* was written. An at-least-once run is abandoned, because
        // the next leader repeats it. An at-most-once run is not repeated, so this leader executes it in the
        // rest of the grace period. The handler's cancellation token is already cancelled.
        if self.stopped() && self.job.rules.delivery == Delivery::AtLeastOnce {
            return RunEnd::Abandoned;
        }
        let env = self.term.env();
        let began = self.term.quorum().wall();
        let _ = self.began.set((began, env.now()));
        let work = Execution {
            job: Arc::clone(&self.job),
            tick: self.start.tick,
            cause: self.start.cause,
            payload: self.payload.clone(),
            guard: RunGuard::Term(self.term.clone()),
            output: RunOutput::new(self.state.clone(), self.job.rules.keep_output),
            cancel: self.cancel.clone(),
            grace: self.grace,
        };
        let result = work.run(self.worker(), began).await;
        self.record_end(started, result).await
    }

    /// Records the end of the run in the ledger. If the run was interrupted and will be executed again, no end
    /// is recorded.
    async fn record_end(self, started: RunRecord, mut result: WorkResult) -> RunEnd {
        let state = result.state.take();
        // The state is stored before the end is. If the leader crashed in between, the next leader would repeat the run
        // with the new state. So this time is kept short.
        let may_wait = state.is_none();
        store_state(&self.job.name, state.as_ref(), &self.ledger).await;
        let Some(end) = result.end else {
            let cause = match self.start.cause {
                RunCause::Scheduled => RunCause::CatchUp,
                other => other,
            };
            let interruptions = self.start.interruptions + 1;
            let entry = self.entry(RunOutcome::Cancelled, result);
            let again = PendingRun { cause, seen: Some(started), interruptions, ..self.start };
            return RunEnd::Interrupted(entry, Box::new(again));
        };
        let of = (self.term.unchecked_token(), self.start.at);
        let closed = RunRecord::closed(self.worker(), (end, &result.reason), result.handler_took(), of);
        if may_wait {
            self.delay.wait(self.term.env(), self.term.quorum().wall()).await;
        }
        if let Err(error) = self.ledger.write(&self.start.key, closed.to_value()).await {
            // The next leader repeats an at-least-once run.
            tracing::warn!(job = &*self.job.name, "its end is not recorded: {error}");
        }
        RunEnd::Ended { entry: self.entry(end, result), state }
    }

    /// Writes *started*, and waits until a majority stores it.
    async fn write_started(&self) -> Result<RunRecord, LedgerError> {
        let started = RunRecord::started(self.worker(), (self.term.unchecked_token(), self.start.at));
        self.ledger.write(&self.start.key, started.to_value()).await?;
        Ok(started)
    }

    /// Returns the history entry of the run, which this leader has executed.
    fn entry(&self, end: RunOutcome, result: WorkResult) -> Box<HistoryEntry> {
        let (of, term) = ((self.start.tick, self.start.cause), self.term.unchecked_token());
        Box::new(result.entry(&self.job.name, of, end, term))
    }

    fn worker(&self) -> &Arc<str> {
        &self.term.quorum().config().worker
    }

    /// Returns whether the run should end. This function checks the clock too, because after a pause of the
    /// process the token may not be cancelled yet.
    fn stopped(&self) -> bool {
        self.term.step_down_token().is_cancelled() || !self.term.is_valid()
    }
}

/// Stores the state that a run has saved for the later runs of its job, and waits until a majority has it.
pub(super) async fn store_state(job: &str, text: Option<&Arc<str>>, ledger: &TermLedger) {
    if let Some(text) = text
        && let Err(error) = ledger.write(&state_key(job), Arc::clone(text)).await
    {
        tracing::warn!(job, "its state is not stored at a majority yet: {error}");
    }
}

/// The result of the leader's task for a run, which the event loop receives.
#[derive(Debug)]
pub(in crate::scheduler) enum RunEnd {
    /// The run has ended. Its record is closed, unless the leader executed the run and could not write the
    /// record. `state` is what the run has saved for the later runs of its job.
    Ended { entry: Box<HistoryEntry>, state: Option<Arc<str>> },
    /// The run was interrupted, and must be executed again. The `seen` record of the pending run is the
    /// *started* record. The history gets the entry only if this leader does not execute the run again.
    Interrupted(Box<HistoryEntry>, Box<PendingRun>),
    /// The leader dropped the run, whose handler had begun and did not stop within the grace period.
    Aborted { began: WallTime, took: Duration },
    /// The term ended, or the step-down began, before the handler started.
    Abandoned,
    /// The run stays open, and the next leader continues it. The reason is one of these: the step-down began,
    /// the term ended, the closed record could not be written, or the leader stopped watching the run. In the
    /// last case the run's job was just added to this leader, which then continues the run itself.
    Left,
}
