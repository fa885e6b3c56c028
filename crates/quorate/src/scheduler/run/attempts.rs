use crate::{
    env::{BootTime, WallTime},
    panic,
    scheduler::{
        job::{Job, Payload, RunCause, RunContext, RunGuard, RunOutcome, RunOutput},
        policy::Delivery,
        run::Cancel,
        store::WorkResult,
    },
};
use futures_util::FutureExt;
use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

/// The execution of one run of a job.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct Execution {
    pub(in crate::scheduler) job: Arc<Job>,
    pub(in crate::scheduler) tick: WallTime,
    pub(in crate::scheduler) cause: RunCause,
    pub(in crate::scheduler) payload: Option<Payload>,
    pub(in crate::scheduler) guard: RunGuard,
    /// The output and the state that the handler sets, besides its result.
    pub(in crate::scheduler) output: RunOutput,
    pub(in crate::scheduler) cancel: Cancel,
    /// The time within which a cancelled run must end.
    pub(in crate::scheduler) grace: Duration,
}

/// The way in which a run or an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecutionEnd {
    Done,
    Failed,
    TimedOut,
    /// The run was cancelled on request, or for a later tick.
    Cancelled,
    /// The run's term or claim ended, or the handler marked the run as interrupted. If the job is
    /// at-least-once, the run is executed again.
    Interrupted,
}

impl ExecutionEnd {
    /// Returns the outcome of the run. Returns `None` if it must be executed again.
    fn outcome(self) -> Option<RunOutcome> {
        match self {
            Self::Done => Some(RunOutcome::Done),
            Self::Failed => Some(RunOutcome::Failed),
            Self::TimedOut => Some(RunOutcome::TimedOut),
            Self::Cancelled => Some(RunOutcome::Cancelled),
            Self::Interrupted => None,
        }
    }
}

/// The reason in the history if an at-least-once run succeeded after it was asked to stop.
const DONE_LATE: &str = "it succeeded after it was asked to stop, so it is not repeated";

/// The reason in the history if the handler marked the run as interrupted and returned `Ok`.
const MARKED: &str = "the handler marked this run as interrupted";

/// The result of one call of the handler.
struct Attempt {
    end: ExecutionEnd,
    /// The text of the error; empty if there is none.
    error: String,
    /// True if the handler's cancellation token was cancelled before the handler returned.
    asked_to_stop: bool,
}

/// The signals that decide, together with the result of an attempt, whether the run gets another attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Signals {
    /// The handler has called [`RunContext::mark_interrupted`].
    marked: bool,
    /// The term or the claim of the run has ended, or is about to end.
    must_end: bool,
    /// The run was cancelled or interrupted: see [`Cancel`].
    cancelled: bool,
    /// The run was cancelled on request or for a later tick, so no worker executes it again.
    for_good: bool,
}

impl Signals {
    /// Decides how the run ends after an attempt with the result `attempt`. Returns `None` if another attempt
    /// may follow.
    ///
    /// If the handler has marked the run as interrupted, its work is not done, even if the handler returned
    /// `Ok`. So the result of the attempt does not count.
    fn decide(self, attempt: ExecutionEnd, delivery: Delivery) -> Option<ExecutionEnd> {
        match attempt {
            // The work is done. The result counts even if the run was cancelled while the handler worked.
            ExecutionEnd::Done if !self.marked => Some(ExecutionEnd::Done),
            // A step-down and a cancellation cancel the same token, so the handler cannot distinguish them.
            // Here `must_end` and `for_good` distinguish them.
            _ if self.must_end || self.marked && !self.for_good => Some(interrupted(delivery)),
            _ if self.cancelled || self.for_good => Some(ExecutionEnd::Cancelled),
            _ => None,
        }
    }
}

impl Signals {
    /// Returns whether a run that was asked to stop, and ended as `end`, would have been repeated if its handler had said
    /// that work was left. A handler that stops its loop at the cancellation and returns `Ok` loses that work.
    fn may_hide_lost_work(self, end: ExecutionEnd, delivery: Delivery) -> bool {
        end == ExecutionEnd::Done && delivery == Delivery::AtLeastOnce && !self.for_good
    }
}

/// Returns how an interrupted run ends. If the job is at-most-once, the run ends as cancelled, because it is
/// not executed again.
fn interrupted(delivery: Delivery) -> ExecutionEnd {
    match delivery {
        Delivery::AtLeastOnce => ExecutionEnd::Interrupted,
        Delivery::AtMostOnce => ExecutionEnd::Cancelled,
    }
}

impl Execution {
    /// Runs the attempts of a run that `worker` begins at `began`, one after another. Dropping the future drops the handler.
    pub(in crate::scheduler) async fn run(self, worker: &Arc<str>, began: WallTime) -> WorkResult {
        let env = self.guard.env().clone();
        let since = env.now();
        let mut attempts = 0;
        let mut last_error = None;
        let (end, reason) = loop {
            if self.cancel.is_for_good() {
                break (ExecutionEnd::Cancelled, String::new());
            }
            attempts += 1;
            let Attempt { end: attempt, error, asked_to_stop } = self.attempt(attempts).await;
            if attempt != ExecutionEnd::Done {
                last_error = Some(error.as_str().into());
            }
            let signals = self.signals();
            if let Some(end) = signals.decide(attempt, self.job.rules.delivery) {
                if asked_to_stop && signals.may_hide_lost_work(end, self.job.rules.delivery) {
                    tracing::warn!(
                        job = &*self.job.name,
                        "{DONE_LATE}. If work was left undone, a handler must return `RunContext::interrupted()` or an \
                         error, and a command must exit with another code"
                    );
                    break (end, DONE_LATE.to_owned());
                }
                let error =
                    if attempt == ExecutionEnd::Done && signals.marked { MARKED.to_owned() } else { error };
                break (end, error);
            }
            let Some(pause) = self.job.rules.retries.pause(attempts, env.random()) else {
                break (attempt, error);
            };
            tracing::debug!(
                job = &*self.job.name,
                attempts,
                ?pause,
                "an attempt failed, another follows: {error}"
            );
            tokio::select! { biased;
                () = self.guard.step_down_token().cancelled() => break (interrupted(self.job.rules.delivery), error),
                () = self.cancel.cancelled() => break (ExecutionEnd::Cancelled, error),
                () = env.sleep(pause) => {}
            }
            // The handler may have spawned a task that still runs during this pause. That task may have marked
            // the run as interrupted through a clone of the context.
            if let Some(end) = self.signals().decide(attempt, self.job.rules.delivery) {
                break (end, error);
            }
        };
        let reason: Arc<str> = match end {
            ExecutionEnd::Cancelled => self.cancel.why().unwrap_or_else(|| reason.into()),
            ExecutionEnd::Done => match self.output.take_note() {
                Some(note) if reason.is_empty() => note,
                Some(note) => format!("{reason}; {note}").into(),
                None => reason.into(),
            },
            _ => reason.into(),
        };
        let error = last_error.filter(|_| !matches!(end, ExecutionEnd::Failed | ExecutionEnd::TimedOut));
        let (state, output) = self.output.take();
        let state = state.filter(|_| end == ExecutionEnd::Done);
        WorkResult {
            worker: Arc::clone(worker),
            end: end.outcome(),
            reason,
            began,
            took: Some(env.now().since(since)),
            attempts,
            error,
            state,
            output,
        }
    }

    fn signals(&self) -> Signals {
        Signals {
            marked: self.output.is_interrupted(),
            must_end: self.guard.must_end(),
            cancelled: self.cancel.is_cancelled(),
            for_good: self.cancel.is_for_good(),
        }
    }

    /// Calls the handler once. The attempt ends as *done*, *failed* or *timed out*.
    async fn attempt(&self, attempt: u32) -> Attempt {
        let env = self.guard.env();
        let stop = self.guard.step_down_token().child_token();
        let timeout_at = self.job.rules.timeout.map(|timeout| env.now() + timeout);
        let context = RunContext {
            job: Arc::clone(&self.job.name),
            at: self.tick,
            cause: self.cause,
            payload: self.payload.clone(),
            attempt,
            guard: self.guard.clone(),
            stop: stop.clone(),
            timeout_at,
            output: self.output.clone(),
        };
        let Some(handler) = self.job.handler().cloned() else {
            let error = "this worker does not have its handler".to_owned();
            return Attempt { end: ExecutionEnd::Failed, error, asked_to_stop: false };
        };
        let mut work = pin!(AssertUnwindSafe(async move { handler(context).await }).catch_unwind());
        let dropped = async {
            self.cancel.cancelled().await;
            stop.cancel();
            env.sleep(self.grace).await;
        };
        let (end, error) = tokio::select! { biased;
            done = &mut work => match done {
                Ok(Ok(())) => (ExecutionEnd::Done, String::new()),
                Ok(Err(error)) => (ExecutionEnd::Failed, error),
                Err(caught) => (ExecutionEnd::Failed, format!("panicked: {}", panic::message(&*caught))),
            },
            () = dropped => (ExecutionEnd::Failed, "did not stop, and was dropped".to_owned()),
            () = env.sleep_until(timeout_at.unwrap_or(BootTime::from_nanos(u64::MAX))) => {
                stop.cancel();
                // After a timeout, the handler has the grace period to clean up, as at a step-down. The result
                // that the handler returns is ignored.
                let _ = env.before(env.now() + self.grace, work).await;
                (ExecutionEnd::TimedOut, format!("timed out after {:.1?}", self.job.rules.timeout.unwrap_or_default()))
            }
        };
        Attempt { end, error, asked_to_stop: stop.is_cancelled() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handler_s_mark_has_precedence_over_its_result() {
        use ExecutionEnd::{Cancelled, Done, Failed, Interrupted, TimedOut};
        let none = Signals::default();
        let marked = Signals { marked: true, ..none };
        let ending = Signals { must_end: true, ..none };
        let cancelled = Signals { cancelled: true, ..none };
        let for_good = Signals { cancelled: true, for_good: true, ..none };
        let (least, most) = (Delivery::AtLeastOnce, Delivery::AtMostOnce);
        for result in [Done, Failed, TimedOut] {
            assert_eq!(marked.decide(result, least), Some(Interrupted), "{result:?}");
            assert_eq!(marked.decide(result, most), Some(Cancelled), "{result:?}");
            for also in [ending, cancelled] {
                let marked = Signals { marked: true, ..also };
                assert_eq!(marked.decide(result, least), Some(Interrupted), "{result:?} {also:?}");
                assert_eq!(marked.decide(result, most), Some(Cancelled), "{result:?} {also:?}");
            }
            let marked = Signals { marked: true, ..for_good };
            assert_eq!(marked.decide(result, least), Some(Cancelled), "{result:?}");
            assert_eq!(marked.decide(result, most), Some(Cancelled), "{result:?}");
        }
        for signals in [none, ending, cancelled, for_good] {
            assert_eq!(signals.decide(Done, least), Some(Done), "{signals:?}: the handler succeeded");
        }
        for signals in [none, ending, cancelled] {
            assert!(signals.may_hide_lost_work(Done, least), "{signals:?}");
            assert!(!signals.may_hide_lost_work(Done, most), "it is not repeated in any case");
            assert!(!signals.may_hide_lost_work(Interrupted, least));
        }
        assert!(!for_good.may_hide_lost_work(Done, least), "it was cancelled for good");
        for result in [Failed, TimedOut] {
            assert_eq!(none.decide(result, least), None);
            assert_eq!(
                (ending.decide(result, least), ending.decide(result, most)),
                (Some(Interrupted), Some(Cancelled))
            );
            assert_eq!(cancelled.decide(result, least), Some(Cancelled));
            assert_eq!(for_good.decide(result, least), Some(Cancelled));
        }
    }
}
