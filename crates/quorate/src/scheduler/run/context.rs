use crate::scheduler::run::RunGuard;
use crate::{
    election::Term,
    env::{BootTime, WallTime},
    lease::LeaseLost,
    node::FencingToken,
    scheduler::{RunCause, store::tail},
};
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
/// The longest that a run on a worker leaves, as JSON.
const SLOT_STATE_MAX: usize = 512;

/// What a job's handler is given.
#[derive(Clone, Debug)]
pub struct RunContext {
    pub(in crate::scheduler) job: Arc<str>,
    pub(in crate::scheduler) at: WallTime,
    pub(in crate::scheduler) cause: RunCause,
    pub(in crate::scheduler) attempt: u32,
    pub(in crate::scheduler) hold: RunGuard,
    pub(in crate::scheduler) stop: CancellationToken,
    pub(in crate::scheduler) timeout_at: Option<BootTime>,
    pub(in crate::scheduler) said: RunOutput,
}

/// What the handler says beside its result: over all attempts of one run.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct RunOutput(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    interrupted: AtomicBool,
    unreleased: AtomicBool,
    keep_output: usize,
    words: Mutex<Words>,
}

#[derive(Debug, Default)]
struct Words {
    before: Option<Arc<str>>,
    state: Option<Arc<str>>,
    output: Option<Arc<str>>,
}

impl RunContext {
    /// The job's name.
    pub fn job(&self) -> &Arc<str> {
        &self.job
    }

    /// When the run was due; of a triggered run, when it was asked for.
    pub fn at(&self) -> WallTime {
        self.at
    }

    /// Why it runs.
    pub fn cause(&self) -> RunCause {
        self.cause
    }

    /// Whether the run makes up for a tick that was missed or interrupted.
    pub fn is_catch_up(&self) -> bool {
        self.cause == RunCause::CatchUp
    }

    /// Which attempt of this run it is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The term under which it runs; `None` for a run of a job that is placed on any worker, which runs under a claim.
    pub fn term(&self) -> Option<&Term> {
        match &self.hold {
            RunGuard::Term(term) => Some(term),
            RunGuard::Claim(..) => None,
        }
    }

    /// The fencing token of the term or the claim, if this worker still has it at this moment: pass it to the write
    /// that follows.
    ///
    /// Tokens of terms order all runs of a job that is on the leader. Those of a job that is placed on any worker come from
    /// the claim of one generation of one run, and order nothing else: a sink that is to refuse older runs must compare the
    /// ticks of such a job as well.
    ///
    /// # Errors
    /// [`LeaseLost`] once it does not.
    pub fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        self.hold.fencing_token()
    }

    /// The fencing token of the term or the claim, whether or not this worker still has it.
    pub fn token(&self) -> FencingToken {
        self.hold.token()
    }

    /// Fires when the run should end: at step-down, shutdown, timeout, or where it is cancelled. What still runs
    /// when validity ends is dropped.
    pub fn cancellation_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// When the run is dropped at the latest, on this worker's boot clock: at its timeout, or when the term or the
    /// claim ends if no extension succeeds. It moves as they are extended; `None` once they have ended.
    pub fn deadline(&self) -> Option<BootTime> {
        let until = self.hold.work_until()?;
        Some(self.timeout_at.map_or(until, |timeout| timeout.min(until)))
    }

    /// Until when the term or the claim lasts if no extension succeeds, or until when the run has time once it is told
    /// to stop, on this worker's boot clock; `None` once that has ended. What other processes do for the run must
    /// have ended by then.
    pub fn held_until(&self) -> Option<BootTime> {
        self.hold.work_until()
    }

    /// How long it is until [`RunContext::deadline`]; zero once that has passed.
    pub fn remaining(&self) -> Duration {
        self.deadline().map_or(Duration::ZERO, |at| self.hold.env().now().until(at))
    }

    /// What an earlier run of the job, or an earlier attempt of this one, has left with [`RunContext::set_state`].
    pub fn state(&self) -> Option<Arc<str>> {
        let words = self.said.words();
        words.state.clone().or_else(|| words.before.clone())
    }

    /// Leaves a small text for the runs that come. It is kept where this run ends as done, and written just before
    /// that is recorded: a run that is repeated may find what it has left itself. Of runs side by side the last
    /// word counts.
    ///
    /// # Errors
    /// [`StateError`] where it is over 1,024 bytes long, or, of a run on any worker, over 512 bytes as JSON.
    pub fn set_state(&self, text: &str) -> Result<(), StateError> {
        let (length, most) = match self.hold {
            RunGuard::Term(_) => (text.len(), STATE_MAX),
            // It travels in the slot's result, beside all else that is recorded of the run.
            RunGuard::Claim(..) => {
                (serde_json::to_string(text).map_or(usize::MAX, |text| text.len()), SLOT_STATE_MAX)
            }
        };
        if length > most {
            return Err(StateError::TooLong { job: Arc::clone(&self.job), length, most });
        }
        self.said.words().state = Some(text.into());
        Ok(())
    }

    /// What came out of the run, for the history; only its tail is kept, and only where the job asks for that
    /// ([`Job::keep_output`](super::super::Job::keep_output)). RunOutput again it replaces what was said before.
    pub fn set_output(&self, text: &str) {
        let keep = self.said.0.keep_output;
        if keep > 0 {
            self.said.words().output = Some(tail(text, keep).into());
        }
    }

    /// Marks this run as interrupted: it was cut short, though the term or the claim may go on. Use it where the work did
    /// not come to its own end, for instance because a process that did it was killed.
    ///
    /// The mark counts before the result: whether the handler returns `Ok` or an error, panics, or times out, that result
    /// is not recorded, the attempt is not retried, and the [state](RunContext::set_state) is not kept. At least once, the tick
    /// runs again, under this leader or the next, or on any worker where the job is placed so. At most once, it ends as
    /// *cancelled*. A run that was cancelled, on request or for a later tick, ends so all the same.
    pub fn mark_interrupted(&self) {
        self.said.0.interrupted.store(true, Ordering::Release);
    }

    /// Keeps the term or the claim from being released when the run ends: the next leader is elected, or the next run of
    /// the job starts, no sooner than the TTL after. For work that may still go on and cannot be ended, such as a process of
    /// another user. Cannot be taken back.
    pub fn end_without_release(&self) {
        match &self.hold {
            RunGuard::Term(term) => term.end_without_release(),
            RunGuard::Claim(..) => self.said.0.unreleased.store(true, Ordering::Release),
        }
    }
}

impl RunOutput {
    pub(in crate::scheduler) fn new(state: Option<Arc<str>>, keep_output: usize) -> Self {
        let words = Mutex::new(Words { before: state, ..Words::default() });
        let (interrupted, unreleased) = (AtomicBool::new(false), AtomicBool::new(false));
        Self(Arc::new(Inner { interrupted, unreleased, keep_output, words }))
    }

    /// Whether the claim is to be kept until its TTL is over.
    pub(in crate::scheduler) fn is_unreleased(&self) -> bool {
        self.0.unreleased.load(Ordering::Acquire)
    }

    pub(in crate::scheduler) fn is_interrupted(&self) -> bool {
        self.0.interrupted.load(Ordering::Acquire)
    }

    /// What it leaves: the state that it has set, and its output.
    pub(in crate::scheduler) fn take(&self) -> (Option<Arc<str>>, Option<Arc<str>>) {
        let mut words = self.words();
        (words.state.take(), words.output.take())
    }

    fn words(&self) -> MutexGuard<'_, Words> {
        self.0.words.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A state that is not kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// It is too long.
    #[error(
        "the state of the job {job:?} is {length} bytes long; keep it to {most}, and put more into a store of its own"
    )]
    TooLong {
        /// Whose.
        job: Arc<str>,
        /// Its length, in bytes; of a run on any worker as JSON.
        length: usize,
        /// The longest that is kept.
        most: usize,
    },
}
