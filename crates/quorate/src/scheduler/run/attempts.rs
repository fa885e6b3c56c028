use crate::scheduler::run::{RunContext, RunGuard, context::RunOutput};
use crate::{
    env::{BootTime, WallTime},
    panic,
    scheduler::{Delivery, Job, RunCause, RunOutcome},
};
use futures_util::FutureExt;
use std::{
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// A run about to be made: a handler, and under what it runs.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct Execution {
    pub(in crate::scheduler) job: Arc<Job>,
    pub(in crate::scheduler) tick: WallTime,
    pub(in crate::scheduler) cause: RunCause,
    pub(in crate::scheduler) hold: RunGuard,
    /// What the handler says beside its result.
    pub(in crate::scheduler) said: RunOutput,
    pub(in crate::scheduler) cancel: Cancel,
    /// How long a run that is cancelled has to end.
    pub(in crate::scheduler) grace: Duration,
}

/// How a run ended.
#[derive(Debug)]
pub(in crate::scheduler) struct ExecutionResult {
    pub(in crate::scheduler) end: ExecutionEnd,
    /// The last error, or why it was cancelled; may be empty.
    pub(in crate::scheduler) reason: Arc<str>,
    pub(in crate::scheduler) attempts: u32,
    pub(in crate::scheduler) took: Duration,
    /// What it leaves to the runs that come.
    pub(in crate::scheduler) state: Option<Arc<str>>,
    pub(in crate::scheduler) output: Option<Arc<str>>,
}

/// In which way a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scheduler) enum ExecutionEnd {
    Done,
    Failed,
    TimedOut,
    /// On request, or for a later tick.
    Cancelled,
    /// With its term or claim, or marked by its handler: an at-least-once tick runs again.
    Interrupted,
}

impl ExecutionEnd {
    /// How the run's tick has ended; `None` where it runs again.
    pub(in crate::scheduler) fn of_tick(self) -> Option<RunOutcome> {
        match self {
            Self::Done => Some(RunOutcome::Done),
            Self::Failed => Some(RunOutcome::Failed),
            Self::TimedOut => Some(RunOutcome::TimedOut),
            Self::Cancelled => Some(RunOutcome::Cancelled),
            Self::Interrupted => None,
        }
    }
}

/// Tells one run to stop, and why. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(in crate::scheduler) struct Cancel {
    stop: CancellationToken,
    words: Arc<Words>,
}

/// Why a run is to stop: the first word of each kind.
#[derive(Debug, Default)]
struct Words {
    /// Its tick has ended with it, also where it is to run at least once.
    for_good: OnceLock<Arc<str>>,
    /// Others may run it again.
    for_now: OnceLock<Arc<str>>,
}

impl Cancel {
    /// Nobody is to run it again, whatever it was told before.
    pub(in crate::scheduler) fn cancel(&self, why: &str) {
        let _ = self.words.for_good.set(why.into());
        self.stop.cancel();
    }

    /// Others may run it again.
    pub(in crate::scheduler) fn interrupt(&self, why: &str) {
        let _ = self.words.for_now.set(why.into());
        self.stop.cancel();
    }

    pub(in crate::scheduler) fn is_for_good(&self) -> bool {
        self.words.for_good.get().is_some()
    }

    pub(in crate::scheduler) fn is_cancelled(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits until the run is to stop.
    pub(in crate::scheduler) async fn cancelled(&self) {
        self.stop.cancelled().await;
    }

    pub(in crate::scheduler) fn why(&self) -> Arc<str> {
        self.words.for_good.get().or(self.words.for_now.get()).cloned().unwrap_or_default()
    }
}

/// Why a run is cancelled that somebody wants stopped.
pub(in crate::scheduler) fn on_request(by: &str) -> String {
    format!("on request of {by}")
}

/// The reason of a run that its handler marked, and then returned `Ok` from.
const MARKED: &str = "the handler marked this run as interrupted";

/// What is known of a run right after an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Signals {
    /// The handler called `mark_interrupted`.
    marked: bool,
    /// The term or the claim is over, or the work is to end with it.
    over: bool,
    /// The run was cancelled, for now or for good.
    cancelled: bool,
    /// The run was cancelled for good: on request, or for a later tick.
    for_good: bool,
}

impl Signals {
    /// Decides how a run ends after an attempt that ended as `attempt`; `None` where it may be tried again.
    ///
    /// The mark of the handler counts before the result: a run that was cut short has not done its work, whatever it
    /// returns.
    fn decide(self, attempt: ExecutionEnd, delivery: Delivery) -> Option<ExecutionEnd> {
        match attempt {
            // The handler came to its own end, even if it was told to stop meanwhile.
            ExecutionEnd::Done if !self.marked => Some(ExecutionEnd::Done),
            // A handler that is told to stop cannot tell a cancellation from a step-down.
            _ if self.over || self.marked && !self.for_good => Some(interrupted(delivery)),
            _ if self.cancelled || self.for_good => Some(ExecutionEnd::Cancelled),
            _ => None,
        }
    }
}

/// Returns how an interrupted run ends. Under at-most-once it has ended, for no worker starts it again.
fn interrupted(delivery: Delivery) -> ExecutionEnd {
    match delivery {
        Delivery::AtLeastOnce => ExecutionEnd::Interrupted,
        Delivery::AtMostOnce => ExecutionEnd::Cancelled,
    }
}

impl Execution {
    /// Makes its attempts, one after another. Dropping it drops the handler.
    pub(in crate::scheduler) async fn run(self) -> ExecutionResult {
        let env = self.hold.env().clone();
        let began = env.now();
        let said = self.said.clone();
        let mut attempts = 0;
        let (end, reason) = loop {
            if self.cancel.is_for_good() {
                break (ExecutionEnd::Cancelled, String::new());
            }
            attempts += 1;
            let (attempt, error) = self.attempt(attempts, &said).await;
            let signals = self.signals(&said);
            if let Some(end) = signals.decide(attempt, self.job.delivery) {
                let error =
                    if attempt == ExecutionEnd::Done && signals.marked { MARKED.to_owned() } else { error };
                break (end, error);
            }
            let Some(pause) = self.job.retries.pause(attempts, env.random()) else { break (attempt, error) };
            tracing::debug!(job = &*self.job.name, attempts, ?pause, "tried again: {error}");
            tokio::select! { biased;
                () = self.hold.step_down_token().cancelled() => break (interrupted(self.job.delivery), error),
                () = self.cancel.stop.cancelled() => break (ExecutionEnd::Cancelled, error),
                () = env.sleep(pause) => {}
            }
            // A clone of the tick may have been marked in the pause.
            if let Some(end) = self.signals(&said).decide(attempt, self.job.delivery) {
                break (end, error);
            }
        };
        let reason: Arc<str> = match end {
            ExecutionEnd::Cancelled if !self.cancel.why().is_empty() => self.cancel.why(),
            _ => reason.into(),
        };
        let (state, output) = said.take();
        let state = state.filter(|_| end == ExecutionEnd::Done);
        ExecutionResult { end, reason, attempts, took: env.now().since(began), state, output }
    }

    fn signals(&self, said: &RunOutput) -> Signals {
        Signals {
            marked: said.is_interrupted(),
            over: self.hold.is_over(),
            cancelled: self.cancel.is_cancelled(),
            for_good: self.cancel.is_for_good(),
        }
    }

    /// Makes one attempt. Returns whether it was done, failed or timed out, and its error.
    async fn attempt(&self, attempt: u32, said: &RunOutput) -> (ExecutionEnd, String) {
        let env = self.hold.env();
        let stop = self.hold.step_down_token().child_token();
        let timeout_at = self.job.timeout.map(|timeout| env.now() + timeout);
        let tick = RunContext {
            job: Arc::clone(&self.job.name),
            at: self.tick,
            cause: self.cause,
            attempt,
            hold: self.hold.clone(),
            stop: stop.clone(),
            timeout_at,
            said: said.clone(),
        };
        let handler = Arc::clone(&self.job.handler);
        let mut work = pin!(AssertUnwindSafe(async move { handler(tick).await }).catch_unwind());
        let dropped = async {
            self.cancel.stop.cancelled().await;
            stop.cancel();
            env.sleep(self.grace).await;
        };
        tokio::select! { biased;
            done = &mut work => match done {
                Ok(Ok(())) => (ExecutionEnd::Done, String::new()),
                Ok(Err(error)) => (ExecutionEnd::Failed, error),
                Err(caught) => (ExecutionEnd::Failed, format!("panicked: {}", panic::message(&*caught))),
            },
            () = dropped => (ExecutionEnd::Failed, "did not stop, and was dropped".to_owned()),
            () = env.sleep_until(timeout_at.unwrap_or(BootTime::from_nanos(u64::MAX))) => {
                stop.cancel();
                // It has the grace to end in good order, as at a step-down; whatever it says then, it took too long.
                let _ = env.before(env.now() + self.grace, work).await;
                (ExecutionEnd::TimedOut, format!("timed out after {:.1?}", self.job.timeout.unwrap_or_default()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_the_handler_counts_before_its_result() {
        use ExecutionEnd::{Cancelled, Done, Failed, Interrupted, TimedOut};
        let none = Signals::default();
        let marked = Signals { marked: true, ..none };
        let over = Signals { over: true, ..none };
        let cancelled = Signals { cancelled: true, ..none };
        let for_good = Signals { cancelled: true, for_good: true, ..none };
        let (least, most) = (Delivery::AtLeastOnce, Delivery::AtMostOnce);
        for result in [Done, Failed, TimedOut] {
            assert_eq!(marked.decide(result, least), Some(Interrupted), "{result:?}");
            assert_eq!(marked.decide(result, most), Some(Cancelled), "{result:?}");
            for also in [over, cancelled] {
                let marked = Signals { marked: true, ..also };
                assert_eq!(marked.decide(result, least), Some(Interrupted), "{result:?} {also:?}");
                assert_eq!(marked.decide(result, most), Some(Cancelled), "{result:?} {also:?}");
            }
            let marked = Signals { marked: true, ..for_good };
            assert_eq!(marked.decide(result, least), Some(Cancelled), "{result:?}");
            assert_eq!(marked.decide(result, most), Some(Cancelled), "{result:?}");
        }
        for signals in [none, over, cancelled, for_good] {
            assert_eq!(signals.decide(Done, least), Some(Done), "{signals:?}: it came to its own end");
        }
        for result in [Failed, TimedOut] {
            assert_eq!(none.decide(result, least), None);
            assert_eq!(
                (over.decide(result, least), over.decide(result, most)),
                (Some(Interrupted), Some(Cancelled))
            );
            assert_eq!(cancelled.decide(result, least), Some(Cancelled));
            assert_eq!(for_good.decide(result, least), Some(Cancelled));
        }
    }

    #[test]
    fn what_is_cancelled_for_good_is_so_though_it_was_interrupted_before() {
        let cancel = Cancel::default();
        cancel.interrupt("a shutdown");
        assert!(cancel.is_cancelled() && !cancel.is_for_good() && &*cancel.why() == "a shutdown");
        cancel.cancel("on request");
        cancel.interrupt("a shutdown");
        assert!(cancel.is_for_good() && &*cancel.why() == "on request");
    }
}
