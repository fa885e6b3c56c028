use super::{Hold, Tick, tick::Said};
use crate::{
    env::{BootTime, WallTime},
    schedule::{Delivery, Job, Placement, TickCause},
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
pub(in crate::schedule) struct Work {
    pub(in crate::schedule) job: Arc<Job>,
    pub(in crate::schedule) tick: WallTime,
    pub(in crate::schedule) cause: TickCause,
    pub(in crate::schedule) hold: Hold,
    /// What earlier runs have left.
    pub(in crate::schedule) state: Option<Arc<str>>,
    pub(in crate::schedule) cancel: Cancel,
    /// How long a run that is cancelled has to end.
    pub(in crate::schedule) grace: Duration,
}

/// How a run ended.
#[derive(Debug)]
pub(in crate::schedule) struct Worked {
    pub(in crate::schedule) end: WorkEnd,
    /// The last error, or why it was cancelled; may be empty.
    pub(in crate::schedule) reason: Arc<str>,
    pub(in crate::schedule) attempts: u32,
    pub(in crate::schedule) took: Duration,
    /// What it leaves to the runs that come.
    pub(in crate::schedule) state: Option<Arc<str>>,
    pub(in crate::schedule) output: Option<Arc<str>>,
}

/// In which way a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::schedule) enum WorkEnd {
    Done,
    Failed,
    TimedOut,
    /// On request, or for a later tick.
    Cancelled,
    /// With what it ran under, or by its own word: an at-least-once tick is owed another run.
    Interrupted,
}

/// Tells one run to stop, and why. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(in crate::schedule) struct Cancel {
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
    pub(in crate::schedule) fn cancel(&self, why: &str) {
        let _ = self.words.for_good.set(why.into());
        self.stop.cancel();
    }

    /// Others may run it again.
    pub(in crate::schedule) fn interrupt(&self, why: &str) {
        let _ = self.words.for_now.set(why.into());
        self.stop.cancel();
    }

    pub(in crate::schedule) fn is_for_good(&self) -> bool {
        self.words.for_good.get().is_some()
    }

    pub(in crate::schedule) fn is_cancelled(&self) -> bool {
        self.stop.is_cancelled()
    }

    fn why(&self) -> Arc<str> {
        self.words.for_good.get().or(self.words.for_now.get()).cloned().unwrap_or_default()
    }
}

/// Why a run is cancelled that somebody wants stopped.
pub(in crate::schedule) fn on_request(by: &str) -> String {
    format!("on request of {by}")
}

/// What came of one attempt.
enum Attempt {
    Done,
    Failed(String),
    TimedOut(String),
}

impl Work {
    /// Makes its attempts, one after another. Dropping it drops the handler.
    pub(in crate::schedule) async fn run(self) -> Worked {
        let env = self.hold.env().clone();
        let began = env.now();
        let said = Said::new(self.state.clone(), self.job.keep_output);
        let mut attempts = 0;
        let (end, reason) = loop {
            if self.cancel.is_for_good() {
                break (WorkEnd::Cancelled, String::new());
            }
            attempts += 1;
            let failed = self.attempt(attempts, &said).await;
            let (end, error) = match failed {
                Attempt::Done => break (WorkEnd::Done, String::new()),
                Attempt::Failed(error) => (WorkEnd::Failed, error),
                Attempt::TimedOut(error) => (WorkEnd::TimedOut, error),
            };
            // A handler that is told to stop cannot tell a cancellation from a step-down.
            if self.hold.is_over() || said.is_interrupted() && !self.cancel.is_for_good() {
                break (self.interrupted(), error);
            }
            if self.cancel.is_cancelled() {
                break (WorkEnd::Cancelled, error);
            }
            let Some(pause) = self.job.retries.pause(attempts, env.random()) else { break (end, error) };
            tracing::debug!(job = &*self.job.name, attempts, ?pause, "tried again: {error}");
            tokio::select! { biased;
                () = self.hold.step_down().cancelled() => break (self.interrupted(), error),
                () = self.cancel.stop.cancelled() => break (WorkEnd::Cancelled, error),
                () = env.sleep(pause) => {}
            }
            if self.hold.is_over() {
                break (self.interrupted(), error);
            }
        };
        let reason: Arc<str> = match end {
            WorkEnd::Cancelled if !self.cancel.why().is_empty() => self.cancel.why(),
            _ => reason.into(),
        };
        let (state, output) = said.take();
        let state = state.filter(|_| end == WorkEnd::Done);
        Worked { end, reason, attempts, took: env.now().since(began), state, output }
    }

    /// What is told to stop under at-most-once has ended, for nobody will start it again.
    fn interrupted(&self) -> WorkEnd {
        match self.job.delivery {
            Delivery::AtLeastOnce => WorkEnd::Interrupted,
            Delivery::AtMostOnce => WorkEnd::Cancelled,
        }
    }

    async fn attempt(&self, attempt: u32, said: &Said) -> Attempt {
        let env = self.hold.env();
        let stop = self.hold.step_down().child_token();
        let timeout_at = self.job.timeout.map(|timeout| env.now() + timeout);
        let tick = Tick {
            job: Arc::clone(&self.job.name),
            at: self.tick,
            cause: self.cause,
            attempt,
            spread: self.job.placement == Placement::Spread,
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
                Ok(Ok(())) => Attempt::Done,
                Ok(Err(error)) => Attempt::Failed(error),
                Err(panic) => Attempt::Failed(format!("panicked: {}", message(&*panic))),
            },
            () = dropped => Attempt::Failed("did not stop, and was dropped".to_owned()),
            () = env.sleep_until(timeout_at.unwrap_or(BootTime::from_nanos(u64::MAX))) => {
                stop.cancel();
                // It has the grace to end in good order, as at a step-down; whatever it says then, it took too long.
                let _ = env.before(env.now() + self.grace, work).await;
                Attempt::TimedOut(format!("timed out after {:.1?}", self.job.timeout.unwrap_or_default()))
            }
        }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

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
