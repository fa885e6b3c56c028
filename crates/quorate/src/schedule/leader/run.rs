//! One run of one tick: *started* to a majority, a last look, the work, *done*.

use super::plan::{Start, start_over};
use crate::{
    election::Term,
    env::BootTime,
    ledger::{Ledger, LedgerError},
    node::Record,
    round::Sabotage,
    schedule::{Delivery, Job, Tick, TickKey, TickRecord},
};
use futures_util::FutureExt;
use std::{
    fmt,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Between attempts to write without a majority.
const WRITE_AGAIN: Duration = Duration::from_millis(50);

/// A tick about to run.
pub(super) struct Run {
    job: Job,
    start: Start,
    key: Arc<str>,
    ledger: Ledger,
    term: Term,
}

impl Run {
    pub(super) fn new(job: Job, start: Start, ledger: Ledger, term: Term) -> Self {
        let key = TickKey::new(&job.name, start.tick).key();
        Self { job, start, key, ledger, term }
    }

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
        let looks = !self.term.quorum().setup().sabotaged(Sabotage::NoLookBeforeWork);
        if looks && !self.term.is_valid() {
            return Outcome::Abandoned;
        }
        // Told to stop during the write: what is at most once nobody else will start any more, so it has what
        // is left of the grace, under a stop signal that has fired. What is at least once is left to the next.
        if self.stopped() && self.job.delivery == Delivery::AtLeastOnce {
            return Outcome::Abandoned;
        }
        let env = self.term.env();
        let began = env.now();
        let interrupted = Arc::new(AtomicBool::new(false));
        let result = self.work(began, &interrupted).await;
        let took = env.now().since(began);
        match result {
            Ok(()) => {
                self.write_last(&started, TickRecord::done(self.worker(), took, "")).await;
                Outcome::Done(took)
            }
            Err(_)
                if (self.stopped() || interrupted.load(Ordering::Acquire))
                    && self.job.delivery == Delivery::AtLeastOnce =>
            {
                let again =
                    Start { made_up: true, seen: Some(started), times: self.start.times + 1, ..self.start };
                Outcome::Interrupted(Box::new(again))
            }
            Err(why) => {
                self.write_last(&started, TickRecord::failed(self.worker(), took, &why)).await;
                Outcome::Failed(took, why)
            }
        }
    }

    async fn work(&self, began: BootTime, interrupted: &Arc<AtomicBool>) -> Result<(), String> {
        let env = self.term.env();
        let stop = self.term.step_down().child_token();
        let tick = Tick {
            job: Arc::clone(&self.job.name),
            at: self.start.tick,
            made_up: self.start.made_up,
            term: self.term.clone(),
            stop: stop.clone(),
            interrupted: Arc::clone(interrupted),
        };
        let handler = Arc::clone(&self.job.handler);
        let work = AssertUnwindSafe(async move { handler(tick).await }).catch_unwind();
        let deadline = self.job.timeout.map_or(BootTime::from_nanos(u64::MAX), |timeout| began + timeout);
        match env.before(deadline, work).await {
            Some(Ok(result)) => result,
            Some(Err(panic)) => Err(format!("panicked: {}", message(&*panic))),
            None => {
                stop.cancel();
                Err(format!("timed out after {:.1?}", self.job.timeout.unwrap_or_default()))
            }
        }
    }

    /// Writes *started* until a majority has it.
    async fn write_started(&self) -> Result<Record, LedgerError> {
        let record = TickRecord::started(self.worker());
        let record = record.into_record(self.start.tick, self.term.number(), false);
        let mut seen = self.start.seen.clone();
        loop {
            match self.ledger.write(&self.key, seen.as_ref(), &record).await {
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
        let record = last.into_record(self.start.tick, self.term.number(), true);
        loop {
            match self.ledger.write(&self.key, Some(started), &record).await {
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
        self.term.step_down().is_cancelled() || !self.term.is_valid()
    }

    fn worker(&self) -> &str {
        &self.term.quorum().setup().worker
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}

/// What a run of one tick came to, for logs.
#[derive(Debug)]
pub(super) enum Outcome {
    Done(Duration),
    Failed(Duration, String),
    /// Ended before it was done; an at-least-once tick will run again, over this record.
    Interrupted(Box<Start>),
    NotStarted(LedgerError),
    Abandoned,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(took) => write!(f, "done in {took:.1?}"),
            Self::Failed(took, why) => write!(f, "failed after {took:.1?}: {why}"),
            Self::Interrupted(_) => f.write_str("interrupted: it will run again"),
            Self::NotStarted(why) => write!(f, "not started: {why}"),
            Self::Abandoned => f.write_str("not started: the term ended before"),
        }
    }
}
