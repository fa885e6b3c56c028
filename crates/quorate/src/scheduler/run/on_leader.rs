//! A run that the leader executes itself. The leader writes *started* at a majority, checks its term,
//! executes the run, and writes its end.

use crate::scheduler::{
    plan::pending_run::PendingRun,
    store::{
        row_writer::RowWriter,
        run_writer::{NotWritten, RunWriter},
        saved_state::SavedState,
    },
};
use crate::{
    election::Term,
    env::{BootTime, WallTime},
    ledger::LedgerError,
    node::{FencingToken, Record},
    sabotage::Sabotage,
    scheduler::{
        Delivery, Job, RunCause, RunOutcome, RunRecord,
        run::{Cancel, Execution, ExecutionResult, RunGuard, RunOutput},
    },
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// A run that the leader is about to execute.
pub(in crate::scheduler) struct Run {
    pub(in crate::scheduler) job: Arc<Job>,
    pub(in crate::scheduler) start: PendingRun,
    pub(in crate::scheduler) writer: RunWriter,
    pub(in crate::scheduler) term: Term,
    pub(in crate::scheduler) rows: RowWriter,
    pub(in crate::scheduler) state: SavedState,
    pub(in crate::scheduler) cancel: Cancel,
    pub(in crate::scheduler) began: Began,
    pub(in crate::scheduler) grace: Duration,
}

/// The time at which the handler of a run began, by both clocks, and the *started* record. Empty until the
/// handler begins.
pub(in crate::scheduler) type Began = Arc<OnceLock<(WallTime, BootTime, Record)>>;

impl Run {
    /// Executes the run. If the future is dropped, the handler is dropped too, and the record stays
    /// *started*.
    pub(in crate::scheduler) async fn run(self) -> RunEnd {
        if self.stopped() {
            // No record of the run is written yet. The next leader starts the run as a catch-up run.
            return RunEnd::Abandoned;
        }
        let started = match self.write_started().await {
            Ok(record) => record,
            Err(NotWritten::Ledger(error)) => return RunEnd::NotStarted(error),
            Err(NotWritten::Met(met)) => return RunEnd::Met(met, Box::new(self.start)),
        };
        // The process may have been paused after the write. A later leader may then have started a catch-up
        // run.
        let checks = !self.term.quorum().config().sabotaged(Sabotage::NoLookBeforeWork);
        if checks && !self.term.is_valid() {
            return RunEnd::Abandoned;
        }
        // A step-down may have begun during the write of *started*. An at-least-once run is then left to the
        // next leader. An at-most-once run would not be started by any other worker. So it is executed here
        // for the rest of the grace period, with a cancelled token.
        if self.stopped() && self.job.delivery == Delivery::AtLeastOnce {
            return RunEnd::Abandoned;
        }
        let env = self.term.env();
        let began = self.term.quorum().wall();
        let _ = self.began.set((began, env.now(), started.clone()));
        let work = Execution {
            job: Arc::clone(&self.job),
            tick: self.start.tick,
            cause: self.start.cause,
            guard: RunGuard::Term(self.term.clone()),
            output: RunOutput::new(self.state.text(), self.job.keep_output),
            cancel: self.cancel.clone(),
            grace: self.grace,
        };
        let result = work.run().await;
        self.record_end(started, began, result).await
    }

    /// Records the end of the run. The end of an interrupted run is not recorded: the run is executed again.
    async fn record_end(self, started: Record, began: WallTime, mut worked: ExecutionResult) -> RunEnd {
        let ExecutionResult { end, took, .. } = worked;
        if let Some(text) = worked.state.take()
            && let Err(error) = self.state.set(text, &self.rows).await
        {
            tracing::warn!(job = &*self.job.name, "its state is not stored at a majority yet: {error}");
        }
        let Some(end) = end.of_tick() else {
            let cause = match self.start.cause {
                RunCause::Scheduled => RunCause::CatchUp,
                other => other,
            };
            let interruptions = self.start.interruptions + 1;
            let again = PendingRun { cause, seen: Some(started), interruptions, ..self.start };
            return RunEnd::Interrupted(RunSummary::on_leader(began, worked), Box::new(again));
        };
        let record = RunRecord::ended(self.writer.worker(), end, Some(took), &worked.reason);
        self.write_closed(started, record).await;
        RunEnd::Ended(end, RunSummary::on_leader(began, worked))
    }

    /// Writes *started* until a majority stores it.
    async fn write_started(&self) -> Result<Record, NotWritten> {
        let run = self.start.run();
        let record = self.writer.record(&run, RunRecord::started(self.writer.worker()));
        let unknown = self.start.unknown;
        match self.writer.write(&run, self.start.seen.clone(), &record, unknown).await {
            // The run is unknown: too few nodes remember its time to show whether it was started. Only
            // at-least-once runs are executed if they are unknown. They are executed even if no majority
            // stores the record.
            Err(NotWritten::Ledger(LedgerError::NoMajority(_))) if unknown => Ok(record),
            Err(NotWritten::Ledger(LedgerError::Forgotten(_)))
                if self.job.delivery == Delivery::AtLeastOnce =>
            {
                Ok(record)
            }
            written => written.map(|()| record),
        }
    }

    /// Writes the end of the run, repeatedly while the term lasts. If no write succeeds, an at-least-once
    /// tick runs again.
    async fn write_closed(&self, started: Record, closed: RunRecord) {
        let run = self.start.run();
        let closed = closed.remembered(self.writer.memory(&run), self.term.token());
        let record = self.writer.record(&run, closed);
        match self.writer.write(&run, Some(started), &record, self.start.unknown).await {
            Ok(()) => {}
            Err(NotWritten::Ledger(LedgerError::NoMajority(_))) if self.start.unknown => {}
            Err(error) => tracing::warn!(job = &*self.job.name, "its end is not recorded: {error}"),
        }
    }

    /// Returns whether the run should end. Also checks the clock, because the token may be cancelled late
    /// after a pause of the process.
    fn stopped(&self) -> bool {
        self.term.step_down_token().is_cancelled() || !self.term.is_valid()
    }
}

/// The data of an executed run for its history entry.
#[derive(Debug)]
pub(in crate::scheduler) struct RunSummary {
    /// The time at which the first attempt began, if there was one.
    pub(in crate::scheduler) began: Option<WallTime>,
    pub(in crate::scheduler) worked: ExecutionResult,
    /// The worker that executed the run; `None` if the leader executed it.
    pub(in crate::scheduler) worker: Option<Arc<str>>,
    /// The term of the history entry; `None` if it is the leader's present term.
    pub(in crate::scheduler) term: Option<FencingToken>,
}

impl RunSummary {
    fn on_leader(began: WallTime, worked: ExecutionResult) -> Self {
        Self { began: Some(began), worked, worker: None, term: None }
    }
}

/// The end of the task of one run.
#[derive(Debug)]
pub(in crate::scheduler) enum RunEnd {
    /// The run has ended, and its record is closed.
    Ended(RunOutcome, RunSummary),
    /// The run was interrupted, and must be executed again. The pending run has the *started* record as its
    /// `seen` record.
    Interrupted(RunSummary, Box<PendingRun>),
    /// The record of the start could not be written.
    NotStarted(LedgerError),
    /// The leader met this record of another term, which decides on the run.
    Met(Record, Box<PendingRun>),
    /// The term ended, or the step-down began, before the handler started.
    Abandoned,
    /// The run is not closed: the term ended, the leader stopped watching the run, or its end could not be
    /// recorded. Another leader continues the run, or this leader once it has the job.
    Left,
}
