use crate::{
    config::SettingError,
    election::Term,
    env::{BootTime, WallTime},
    lease::LeaseLost,
    node::FencingToken,
    scheduler::job::{Payload, RequestId, RunCause, RunGuard},
};
use serde::de::DeserializeOwned;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// The longest state that a job keeps between its runs, in bytes.
const STATE_MAX: usize = 1024;
/// The largest number of bytes of JSON of a state, if the job is placed on any worker. This limit is lower than
/// `STATE_MAX`, because a worker reports the state together with the result.
const WORKER_STATE_MAX: usize = 512;

/// The argument of a job's handler: one attempt of one run.
#[derive(Clone, Debug)]
pub struct RunContext {
    pub(in crate::scheduler) job: Arc<str>,
    pub(in crate::scheduler) at: WallTime,
    pub(in crate::scheduler) cause: RunCause,
    pub(in crate::scheduler) payload: Option<Payload>,
    pub(in crate::scheduler) attempt: u32,
    pub(in crate::scheduler) guard: RunGuard,
    pub(in crate::scheduler) stop: CancellationToken,
    pub(in crate::scheduler) timeout_at: Option<BootTime>,
    pub(in crate::scheduler) output: RunOutput,
}

/// The output and the state that the handler sets in all attempts of one run. Clones of this value share them.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct RunOutput(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    interrupted: AtomicBool,
    unreleased: AtomicBool,
    keep_output: usize,
    texts: Mutex<Texts>,
}

#[derive(Debug, Default)]
struct Texts {
    /// The state that an earlier run of the job saved.
    earlier: Option<Arc<str>>,
    state: Option<Arc<str>>,
    output: Option<Arc<str>>,
    note: Option<Arc<str>>,
}

impl RunContext {
    /// Returns the job's name.
    pub fn job(&self) -> &Arc<str> {
        &self.job
    }

    /// Returns the tick: the time at which the job was due, or the time of the request if the run was
    /// triggered.
    pub fn scheduled_at(&self) -> WallTime {
        self.at
    }

    /// Returns the cause of the run: a tick that was planned in time, a catch-up, or a request.
    pub fn cause(&self) -> RunCause {
        self.cause
    }

    /// Returns the id of the request that caused the run, if a request did. Runs of two requests have different ids.
    pub fn request(&self) -> Option<RequestId> {
        self.cause.request()
    }

    /// Returns the payload: that of the request, if it has one, and otherwise that of the job. It is empty without a payload.
    pub fn payload(&self) -> &[u8] {
        self.payload.as_ref().map_or(&[], Payload::bytes)
    }

    /// Reads the payload as JSON.
    ///
    /// # Errors
    /// If it is not JSON of this type. A handler that returns the error fails, with the
    /// reason in the history.
    ///
    /// ```
    /// # use quorate::{Quorum, Scheduler, SettingError, scheduler::RunContext};
    /// #[derive(serde::Deserialize)]
    /// struct Mail {
    ///     to: String,
    /// }
    ///
    /// # fn example(scheduler: Scheduler) -> Scheduler {
    /// scheduler.handler("send-mail", |run: RunContext| async move {
    ///     let mail: Mail = run.payload_as()?;
    ///     println!("to {}", mail.to);
    ///     Ok::<(), SettingError>(())
    /// })
    /// # }
    /// ```
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T, SettingError> {
        Payload::read(self.payload(), &self.job)
    }

    /// Returns whether this is the catch-up run of a tick that was missed or interrupted.
    pub fn is_catch_up(&self) -> bool {
        self.cause == RunCause::CatchUp
    }

    /// Returns the number of this attempt of the run, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the term of the leader that executes the run. Returns `None` if the run was assigned to
    /// a worker: it is then executed under the session of the worker, not under a term.
    pub fn term(&self) -> Option<&Term> {
        match &self.guard {
            RunGuard::Term(term) => Some(term),
            RunGuard::Session { .. } => None,
        }
    }

    /// Returns the fencing token of the run, if this worker still holds the term or the session under which it executes the
    /// run. Pass the token with the next write.
    ///
    /// If the job is placed on the leader, the tokens are those of terms, and order all runs of the job. If the
    /// job is placed on any worker, the leader chooses the token of each assignment, and the tokens order the
    /// executions of one run. To refuse writes of older runs, the store must then compare the ticks too.
    ///
    /// # Errors
    /// [`LeaseLost`] if the term or the session has ended, so that this worker must not write any more.
    pub fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        self.guard.fencing_token()
    }

    /// Returns the fencing token of the term or the session, even if the term or the session has ended.
    pub fn unchecked_token(&self) -> FencingToken {
        self.guard.token()
    }

    /// Returns the token that is cancelled when the run should end. This happens at a step-down, at a shutdown,
    /// at the timeout of the attempt, or when the run is cancelled. A handler that still runs when the validity
    /// of the term or the session ends is dropped. A handler that returns with work left to do should return an error, or
    /// [`RunContext::interrupted`]: `Ok` means that the work is done.
    pub fn cancellation_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// Returns the time by which the handler should return, on this worker's boot clock. It is the timeout of
    /// the attempt or [`RunContext::held_until`], whichever is earlier. Each extension of the term or the session
    /// moves `held_until`. Returns `None` once the term or the session has ended.
    pub fn deadline(&self) -> Option<BootTime> {
        let until = self.guard.work_until()?;
        Some(self.timeout_at.map_or(until, |timeout| timeout.min(until)))
    }

    /// Returns the time at which the term or the session ends unless it is extended, on this worker's boot clock.
    /// Other processes that work for the run must have ended by then. If the leader was asked to resign, and
    /// the grace period ends earlier, returns the end of the grace period. Returns `None` once the term or the
    /// session has ended.
    pub fn held_until(&self) -> Option<BootTime> {
        self.guard.work_until()
    }

    /// Returns the time left until [`RunContext::deadline`], or zero if the deadline has passed.
    pub fn remaining(&self) -> Duration {
        self.deadline().map_or(Duration::ZERO, |at| self.guard.env().now().until(at))
    }

    /// Returns the job's state: the text that this run or an earlier run set with [`RunContext::set_state`].
    pub fn state(&self) -> Option<Arc<str>> {
        let texts = self.output.texts();
        texts.state.clone().or_else(|| texts.earlier.clone())
    }

    /// Sets a small text for later runs of the job. If this run ends as done, the text is stored just before
    /// that end is recorded. So a run that is repeated may find the text that its own first execution set. If
    /// concurrent runs set a text, the text that is stored last counts.
    ///
    /// # Errors
    /// [`SettingError`] if the text is longer than 1,024 bytes. If the job is placed on any worker, the limit is
    /// 512 bytes of JSON.
    pub fn set_state(&self, text: &str) -> Result<(), SettingError> {
        let (length, most) = match self.guard {
            RunGuard::Term(_) => (text.len(), STATE_MAX),
            // A worker reports the state together with the result of the run, and all of this has at most 1 KiB.
            RunGuard::Session { .. } => {
                (serde_json::to_string(text).map_or(usize::MAX, |text| text.len()), WORKER_STATE_MAX)
            }
        };
        if length > most {
            return Err(SettingError::new(
                format!("the state of the job {:?}", self.job),
                format!("{length} bytes long"),
                format!("longer than {most} bytes"),
                "keep longer data in a store of your own",
            ));
        }
        self.output.texts().state = Some(text.into());
        Ok(())
    }

    /// Sets the run's output for the history. Only the last bytes are stored, and only if the job keeps output
    /// ([`Job::keep_output`](super::super::Job::keep_output)). A second call replaces the text of the first
    /// call.
    pub fn set_output(&self, text: &str) {
        let keep = self.output.0.keep_output;
        if keep > 0 {
            self.output.texts().output = Some(tail(text, keep).into());
        }
    }

    /// Sets a note about a run that ends as *done*: the history shows it as the reason. For other outcomes, the reason is
    /// the error of the handler. A second call replaces the text of the first call.
    pub fn set_note(&self, text: &str) {
        self.output.texts().note = Some(text.into());
    }

    /// Marks this run as interrupted, and returns `Ok`, for the end of a handler that obeys its cancellation:
    ///
    /// ```
    /// use quorate::{Job, scheduler::{RunContext, Schedule}};
    /// use std::{convert::Infallible, time::Duration};
    ///
    /// async fn sweep(run: RunContext) -> Result<(), Infallible> {
    ///     for _part in 0..100 {
    ///         if run.cancellation_token().is_cancelled() {
    ///             return run.interrupted(); // parts are left: an at-least-once run is repeated
    ///         }
    ///         // Work on the part here.
    ///     }
    ///     Ok(()) // all parts are done: the run is not repeated
    /// }
    /// # drop(Job::new("sweep", Schedule::every(Duration::from_secs(60))?, sweep));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A plain `Ok` always means that the work is done, also after the cancellation: the run is recorded as done, and
    /// not repeated. A warning is logged, and the history has the reason, because a handler that only stops its loop at
    /// the cancellation would lose work in this way. [`RunContext::mark_interrupted`] says what the mark does.
    ///
    /// # Errors
    /// None. The type of the error is that of the handler.
    pub fn interrupted<E>(&self) -> Result<(), E> {
        self.mark_interrupted();
        Ok(())
    }

    /// Marks this run as interrupted: its work was cut short, although the term or the session may continue. Call
    /// this if the work did not complete, for instance because a process that did the work was killed.
    /// [`RunContext::interrupted`] also returns a result for the handler.
    ///
    /// The mark has precedence over the result of the handler, which may return `Ok` or an error, panic, or
    /// time out. The result is not recorded, the attempt is not retried, and the [state](RunContext::set_state)
    /// is not stored. If the job is at-least-once, the tick runs again: under this leader or the next, or on
    /// any worker if the job is placed on any worker. If the job is at-most-once, the tick ends as *cancelled*.
    /// A run that was cancelled on request or for a later tick always ends as cancelled.
    pub fn mark_interrupted(&self) {
        self.output.0.interrupted.store(true, Ordering::Release);
    }

    /// Prevents the release of the term or the session at the end of the run. Another leader can then be elected,
    /// or the next run of the job can start, only one TTL later. Call this if work of the run may continue
    /// after the run and cannot be ended, such as a process of another user. The call cannot be undone.
    pub fn end_without_release(&self) {
        match &self.guard {
            RunGuard::Term(term) => term.end_without_release(),
            RunGuard::Session { .. } => self.output.0.unreleased.store(true, Ordering::Release),
        }
    }
}

impl RunOutput {
    pub(in crate::scheduler) fn new(state: Option<Arc<str>>, keep_output: usize) -> Self {
        let texts = Mutex::new(Texts { earlier: state, ..Texts::default() });
        let (interrupted, unreleased) = (AtomicBool::new(false), AtomicBool::new(false));
        Self(Arc::new(Inner { interrupted, unreleased, keep_output, texts }))
    }

    /// Returns whether the session must expire by its TTL, instead of being released.
    pub(in crate::scheduler) fn is_unreleased(&self) -> bool {
        self.0.unreleased.load(Ordering::Acquire)
    }

    pub(in crate::scheduler) fn is_interrupted(&self) -> bool {
        self.0.interrupted.load(Ordering::Acquire)
    }

    /// Removes and returns the state and the output that the handler has set.
    pub(in crate::scheduler) fn take(&self) -> (Option<Arc<str>>, Option<Arc<str>>) {
        let mut texts = self.texts();
        (texts.state.take(), texts.output.take())
    }

    /// Removes and returns the note that the handler has set.
    pub(in crate::scheduler) fn take_note(&self) -> Option<Arc<str>> {
        self.texts().note.take()
    }

    fn texts(&self) -> MutexGuard<'_, Texts> {
        self.0.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the end of `text`, at most `most` bytes. The result may be a little shorter, so that no character is
/// split.
pub(in crate::scheduler) fn tail(text: &str, most: usize) -> &str {
    let from = text.len().saturating_sub(most);
    (from..=text.len()).find_map(|at| text.get(at..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_begins_between_two_characters() {
        assert_eq!(
            (tail("abc", 5), tail("abc", 2), tail("aїїb", 4), tail("abc", 0)),
            ("abc", "bc", "їb", "")
        );
    }
}
