//! One run of one tick: *started* to a majority, a last look, the work, *done*.

use super::{
    plan::{Start, start_over},
    rows::Rows,
};
use crate::{
    election::Term,
    env::{BootTime, WallTime},
    ledger::{Ledger, LedgerError},
    node::Record,
    sabotage::Sabotage,
    schedule::{
        Delivery, Job, TickCause, TickEnd, TickRecord,
        work::{Cancel, Hold, Work, WorkEnd, Worked},
    },
};
use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

/// Between attempts to write without a majority.
const WRITE_AGAIN: Duration = Duration::from_millis(50);

/// A tick about to run.
pub(super) struct Run {
    pub(super) job: Arc<Job>,
    pub(super) start: Start,
    pub(super) ledger: Ledger,
    pub(super) term: Term,
    pub(super) rows: Rows,
    pub(super) state: JobState,
    pub(super) cancel: Cancel,
    pub(super) began: Began,
    pub(super) grace: Duration,
}

/// When the work of a run began, once it has; and the record under which it runs.
pub(super) type Began = Arc<OnceLock<(WallTime, BootTime, Record)>>;

/// What a job's runs leave to each other.
#[derive(Clone, Debug)]
pub(super) struct JobState {
    key: Arc<str>,
    standing: Arc<Mutex<StateRow>>,
}

/// `state/NAME`
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct StateRow {
    pub(super) rev: u64,
    pub(super) text: Option<Arc<str>>,
}

impl JobState {
    /// What the keys of states begin with.
    pub(super) const PREFIX: &str = "state/";

    /// The key of a job's state.
    pub(super) fn key(job: &str) -> Arc<str> {
        format!("{}{job}", Self::PREFIX).into()
    }

    pub(super) fn new(job: &str, standing: StateRow) -> Self {
        Self { key: Self::key(job), standing: Arc::new(Mutex::new(standing)) }
    }

    /// Leaves it to pruning: its job was removed.
    pub(super) fn close(&self, rows: &Rows, now: WallTime) {
        if let Some(value) = self.next_value() {
            rows.close(&self.key, value, now, false);
        }
    }

    /// Has it stay again: its job has come back.
    pub(super) fn keep(&self, rows: &Rows) {
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

    fn text(&self) -> Option<Arc<str>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).text.clone()
    }

    /// Has it written; the wait is for a majority, or for the news that there is none.
    fn leave(
        &self,
        text: Arc<str>,
        rows: &Rows,
    ) -> impl Future<Output = Result<(), Arc<str>>> + Send + use<> {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        *standing = StateRow { rev: standing.rev + 1, text: Some(text) };
        let value = serde_json::to_string(&*standing).unwrap_or_default();
        rows.write(&self.key, value.into())
    }
}

impl Run {
    /// Runs the tick. Dropping it drops the work; the tick stands as started.
    pub(super) async fn run(self) -> Outcome {
        if self.stopped() {
            // Nothing is recorded yet: the next leader makes the tick up.
            return Outcome::Abandoned;
        }
        let started = match self.write_started().await {
            Ok(record) => record,
            Err(error) => return Outcome::NotStarted(error),
        };
        // A pause may lie between the write and here: a later leader may have made this tick up.
        let looks = !self.term.quorum().config().sabotaged(Sabotage::NoLookBeforeWork);
        if looks && !self.term.is_valid() {
            return Outcome::Abandoned;
        }
        // Told to stop during the write: what is at most once nobody else will start any more, so it has what
        // is left of the grace, under a stop signal that has fired. What is at least once is left to the next.
        if self.stopped() && self.job.delivery == Delivery::AtLeastOnce {
            return Outcome::Abandoned;
        }
        let env = self.term.env();
        let began = self.term.quorum().wall();
        let _ = self.began.set((began, env.now(), started.clone()));
        let work = Work {
            job: Arc::clone(&self.job),
            tick: self.start.tick,
            cause: self.start.cause,
            hold: Hold::Term(self.term.clone()),
            state: self.state.text(),
            cancel: self.cancel.clone(),
            grace: self.grace,
        };
        let worked = work.run().await;
        self.ended(started, began, worked).await
    }

    /// Records how it ended. What was interrupted is not recorded: it runs again.
    async fn ended(self, started: Record, began: WallTime, mut worked: Worked) -> Outcome {
        let Worked { end, took, .. } = worked;
        if let Some(text) = worked.state.take()
            && let Err(error) = self.state.leave(text, &self.rows).await
        {
            tracing::warn!(job = &*self.job.name, "its state does not stand on a majority yet: {error}");
        }
        let (end, record) = match end {
            WorkEnd::Done => (TickEnd::Done, TickRecord::done(self.worker(), took, "")),
            WorkEnd::Failed => (TickEnd::Failed, TickRecord::failed(self.worker(), took, &worked.reason)),
            WorkEnd::TimedOut => (TickEnd::TimedOut, self.closed(TickEnd::TimedOut, &worked)),
            WorkEnd::Cancelled => (TickEnd::Cancelled, self.closed(TickEnd::Cancelled, &worked)),
            WorkEnd::Interrupted => {
                let cause = match self.start.cause {
                    TickCause::Scheduled => TickCause::MadeUp,
                    other => other,
                };
                let times = self.start.times + 1;
                let again = Start { cause, seen: Some(started), times, ..self.start };
                return Outcome::Interrupted(Ran { began, worked }, Box::new(again));
            }
        };
        self.write_last(&started, record).await;
        Outcome::Ended(end, Ran { began, worked })
    }

    fn closed(&self, end: TickEnd, worked: &Worked) -> TickRecord {
        TickRecord::closed(self.worker(), end, &worked.reason)
    }

    /// Writes *started* until a majority has it.
    async fn write_started(&self) -> Result<Record, LedgerError> {
        let record = TickRecord::started(self.worker());
        let record = record.into_record(self.start.at, self.term.token(), false);
        let mut seen = self.start.seen.clone();
        loop {
            match self.ledger.write(&self.start.key, seen.as_ref(), &record).await {
                Ok(()) => return Ok(record),
                // A majority that could remember it is not to be had: at least once means to run it still.
                Err(LedgerError::NoMajority(_)) if self.start.unknown => return Ok(record),
                Err(LedgerError::Forgotten(_)) if self.job.delivery == Delivery::AtLeastOnce => {
                    return Ok(record);
                }
                // A minority's record, which the seal did not show.
                Err(LedgerError::Standing(other))
                    if start_over(self.job.delivery, &other) && seen.as_ref() != Some(&other) =>
                {
                    seen = Some(other);
                }
                Err(error @ LedgerError::NoMajority(_)) => self.pause(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes the last word while the term lasts. Short of it, an at-least-once tick runs again.
    async fn write_last(&self, started: &Record, last: TickRecord) {
        let record = last.into_record(self.start.at, self.term.token(), true);
        loop {
            match self.ledger.write(&self.start.key, Some(started), &record).await {
                Ok(()) => return,
                Err(LedgerError::NoMajority(_)) if self.start.unknown => return,
                Err(error @ LedgerError::NoMajority(_)) => {
                    if let Err(error) = self.pause(error).await {
                        tracing::warn!(job = &*self.job.name, "not recorded: {error}");
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(job = &*self.job.name, "not recorded: {error}");
                    return;
                }
            }
        }
    }

    /// Waits a little, unless the term has ended.
    async fn pause(&self, error: LedgerError) -> Result<(), LedgerError> {
        if !self.term.is_valid() {
            return Err(error);
        }
        self.term.env().sleep(WRITE_AGAIN).await;
        Ok(())
    }

    /// The clock is looked at as well: after a pause the signal may be behind it.
    fn stopped(&self) -> bool {
        self.term.step_down_token().is_cancelled() || !self.term.is_valid()
    }

    fn worker(&self) -> &str {
        &self.term.quorum().config().worker
    }
}

/// What a run came to.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) began: WallTime,
    pub(super) worked: Worked,
}

/// What a run of one tick came to.
#[derive(Debug)]
pub(super) enum Outcome {
    Ended(TickEnd, Ran),
    /// Ended before it was done; an at-least-once tick will run again, over this record.
    Interrupted(Ran, Box<Start>),
    NotStarted(LedgerError),
    Abandoned,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(TickEnd::Done, ran) => write!(f, "done in {:.1?}", ran.worked.took),
            Self::Ended(end, ran) => write!(f, "{end} after {:.1?}: {}", ran.worked.took, ran.worked.reason),
            Self::Interrupted(..) => f.write_str("interrupted: it will run again"),
            Self::NotStarted(why) => write!(f, "not started: {why}"),
            Self::Abandoned => f.write_str("not started: the term ended before"),
        }
    }
}
