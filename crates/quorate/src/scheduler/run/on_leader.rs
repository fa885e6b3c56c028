//! One run of one tick: *started* to a majority, a last look, the work, *done*.

use crate::scheduler::{
    plan::pending_run::PendingRun,
    store::{
        row_writer::RowWriter,
        run_writer::{NotWritten, RunWriter},
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
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

/// A tick about to run.
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

/// When the work of a run began, once it has; and the record under which it runs.
pub(in crate::scheduler) type Began = Arc<OnceLock<(WallTime, BootTime, Record)>>;

/// What a job's runs leave to each other.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct SavedState {
    key: Arc<str>,
    standing: Arc<Mutex<StateRow>>,
}

/// `state/NAME`
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(in crate::scheduler) struct StateRow {
    pub(in crate::scheduler) rev: u64,
    pub(in crate::scheduler) text: Option<Arc<str>>,
}

impl SavedState {
    /// What the keys of states begin with.
    pub(in crate::scheduler) const PREFIX: &str = "state/";

    /// The key of a job's state.
    pub(in crate::scheduler) fn key(job: &str) -> Arc<str> {
        format!("{}{job}", Self::PREFIX).into()
    }

    pub(in crate::scheduler) fn new(job: &str, standing: StateRow) -> Self {
        Self { key: Self::key(job), standing: Arc::new(Mutex::new(standing)) }
    }

    /// Leaves it to pruning: its job was removed.
    pub(in crate::scheduler) fn close(&self, rows: &RowWriter, now: WallTime) {
        if let Some(value) = self.next_value() {
            rows.close(&self.key, value, now, false);
        }
    }

    /// Has it stay again: its job has come back.
    pub(in crate::scheduler) fn keep(&self, rows: &RowWriter) {
        if let Some(value) = self.next_value() {
            rows.put(&self.key, value);
        }
    }

    /// What is to be written to say the same anew; nothing where nothing was left.
    fn next_value(&self) -> Option<Arc<str>> {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.text.as_ref()?;
        standing.rev += 1;
        Some(serde_json::to_string(&*standing).unwrap_or_default().into())
    }

    pub(in crate::scheduler) fn text(&self) -> Option<Arc<str>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).text.clone()
    }

    /// Has it written; the wait is for a majority, or for the news that there is none.
    pub(in crate::scheduler) fn leave(
        &self,
        text: Arc<str>,
        rows: &RowWriter,
    ) -> impl Future<Output = Result<(), Arc<str>>> + Send + use<> {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        *standing = StateRow { rev: standing.rev + 1, text: Some(text) };
        let value = serde_json::to_string(&*standing).unwrap_or_default();
        rows.write(&self.key, value.into())
    }
}

impl Run {
    /// Runs the tick. Dropping it drops the work; the tick stands as started.
    pub(in crate::scheduler) async fn run(self) -> RunEnd {
        if self.stopped() {
            // Nothing is recorded yet: the next leader makes the tick up.
            return RunEnd::Abandoned;
        }
        let started = match self.write_started().await {
            Ok(record) => record,
            Err(NotWritten::Ledger(error)) => return RunEnd::NotStarted(error),
            Err(NotWritten::Met(met)) => return RunEnd::Met(met, Box::new(self.start)),
        };
        // A pause may lie between the write and here: a later leader may have made this tick up.
        let looks = !self.term.quorum().config().sabotaged(Sabotage::NoLookBeforeWork);
        if looks && !self.term.is_valid() {
            return RunEnd::Abandoned;
        }
        // Told to stop during the write: what is at most once nobody else will start any more, so it has what
        // is left of the grace, under a stop signal that has fired. What is at least once is left to the next.
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
            hold: RunGuard::Term(self.term.clone()),
            said: RunOutput::new(self.state.text(), self.job.keep_output),
            cancel: self.cancel.clone(),
            grace: self.grace,
        };
        let worked = work.run().await;
        self.ended(started, began, worked).await
    }

    /// Records how it ended. What was interrupted is not recorded: it runs again.
    async fn ended(self, started: Record, began: WallTime, mut worked: ExecutionResult) -> RunEnd {
        let ExecutionResult { end, took, .. } = worked;
        if let Some(text) = worked.state.take()
            && let Err(error) = self.state.leave(text, &self.rows).await
        {
            tracing::warn!(job = &*self.job.name, "its state does not stand on a majority yet: {error}");
        }
        let Some(end) = end.of_tick() else {
            let cause = match self.start.cause {
                RunCause::Scheduled => RunCause::CatchUp,
                other => other,
            };
            let interruptions = self.start.interruptions + 1;
            let again = PendingRun { cause, seen: Some(started), interruptions, ..self.start };
            return RunEnd::Interrupted(RunSummary::here(began, worked), Box::new(again));
        };
        let record = RunRecord::ended(self.writer.worker(), end, Some(took), &worked.reason);
        self.write_last(started, record).await;
        RunEnd::Ended(end, RunSummary::here(began, worked))
    }

    /// Writes *started* until a majority has it.
    async fn write_started(&self) -> Result<Record, NotWritten> {
        let run = self.start.run();
        let record = self.writer.record(&run, RunRecord::started(self.writer.worker()));
        let unknown = self.start.unknown;
        match self.writer.write(&run, self.start.seen.clone(), &record, unknown).await {
            // A majority that could remember it is not to be had: at least once means to run it still.
            Err(NotWritten::Ledger(LedgerError::NoMajority(_))) if unknown => Ok(record),
            Err(NotWritten::Ledger(LedgerError::Forgotten(_)))
                if self.job.delivery == Delivery::AtLeastOnce =>
            {
                Ok(record)
            }
            written => written.map(|()| record),
        }
    }

    /// Writes the end while the term lasts. Short of it, an at-least-once tick runs again.
    async fn write_last(&self, started: Record, last: RunRecord) {
        let run = self.start.run();
        let last = last.remembered(self.writer.memory(&run), self.term.token());
        let record = self.writer.record(&run, last);
        match self.writer.write(&run, Some(started), &record, self.start.unknown).await {
            Ok(()) => {}
            Err(NotWritten::Ledger(LedgerError::NoMajority(_))) if self.start.unknown => {}
            Err(error) => tracing::warn!(job = &*self.job.name, "not recorded: {error}"),
        }
    }

    /// The clock is looked at as well: after a pause the signal may be behind it.
    fn stopped(&self) -> bool {
        self.term.step_down_token().is_cancelled() || !self.term.is_valid()
    }
}

/// What a run came to.
#[derive(Debug)]
pub(in crate::scheduler) struct RunSummary {
    /// When its first attempt began, where it had one.
    pub(in crate::scheduler) began: Option<WallTime>,
    pub(in crate::scheduler) worked: ExecutionResult,
    /// The worker that executed it, where that is not the leader's own executor.
    pub(in crate::scheduler) worker: Option<Arc<str>>,
    /// The term under which the history has it, where that is not the leader's.
    pub(in crate::scheduler) term: Option<FencingToken>,
}

impl RunSummary {
    fn here(began: WallTime, worked: ExecutionResult) -> Self {
        Self { began: Some(began), worked, worker: None, term: None }
    }
}

/// What a run of one tick came to.
#[derive(Debug)]
pub(in crate::scheduler) enum RunEnd {
    Ended(RunOutcome, RunSummary),
    /// Ended before it was done; an at-least-once tick will run again, over this record.
    Interrupted(RunSummary, Box<PendingRun>),
    NotStarted(LedgerError),
    /// This record of an earlier term decides instead.
    Met(Record, Box<PendingRun>),
    Abandoned,
    /// It is open to workers, and the next leader goes on with it.
    Left,
}
