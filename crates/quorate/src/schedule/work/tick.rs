use super::Hold;
use crate::{
    election::Term,
    env::{BootTime, WallTime},
    lease::LeaseLost,
    node::FencingToken,
    schedule::TickCause,
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

/// What a job's handler is given.
#[derive(Clone, Debug)]
pub struct Tick {
    pub(super) job: Arc<str>,
    pub(super) at: WallTime,
    pub(super) cause: TickCause,
    pub(super) attempt: u32,
    /// Whether the job's ticks are spread over the workers.
    pub(super) spread: bool,
    pub(super) hold: Hold,
    pub(super) stop: CancellationToken,
    pub(super) timeout_at: Option<BootTime>,
    pub(super) said: Said,
}

/// What the handler says beside its result: over all attempts of one run.
#[derive(Clone, Debug)]
pub(super) struct Said(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    interrupted: AtomicBool,
    keep_output: usize,
    words: Mutex<Words>,
}

#[derive(Debug, Default)]
struct Words {
    before: Option<Arc<str>>,
    state: Option<Arc<str>>,
    output: Option<Arc<str>>,
}

impl Tick {
    /// The job's name.
    pub fn job(&self) -> &Arc<str> {
        &self.job
    }

    /// When the run was due; of a triggered run, when it was asked for.
    pub fn at(&self) -> WallTime {
        self.at
    }

    /// Why it runs.
    pub fn cause(&self) -> TickCause {
        self.cause
    }

    /// Whether the run makes up for a tick that was missed or interrupted.
    pub fn is_made_up(&self) -> bool {
        self.cause == TickCause::MadeUp
    }

    /// Which attempt of this run it is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The term under which it runs; `None` for a tick that is spread over workers, which runs under a claim (what somebody
    /// asked for runs under the leader's term also then).
    pub fn term(&self) -> Option<&Term> {
        match &self.hold {
            Hold::Term(term) => Some(term),
            Hold::Claim(..) => None,
        }
    }

    /// The fencing token of the term or the claim, if this worker still has it at this moment: pass it to the write
    /// that follows.
    ///
    /// Tokens of terms order all runs of a job that is on the leader. Those of a job that is spread come from the claim on
    /// their *tick*, and of a run that somebody asked for from the leader's term: they order the runs of one tick, and
    /// nothing else. A sink that is to refuse older runs must keep a token for each tick of such a job.
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

    /// How long it is until [`Tick::deadline`]; zero once that has passed.
    pub fn remaining(&self) -> Duration {
        self.deadline().map_or(Duration::ZERO, |at| self.hold.env().now().until(at))
    }

    /// What an earlier run of the job, or an earlier attempt of this one, has left with [`Tick::set_state`].
    pub fn state(&self) -> Option<Arc<str>> {
        let words = self.said.words();
        words.state.clone().or_else(|| words.before.clone())
    }

    /// Leaves a small text for the runs that come. It is kept where this run ends as done, and written just before
    /// that is recorded: a run that is repeated may find what it has left itself. Of runs side by side the last
    /// word counts.
    ///
    /// # Errors
    /// [`StateError`] where it is over 1,024 bytes long, and where the job is spread over the workers: its runs may go on side
    /// by side, and none comes before another.
    pub fn set_state(&self, text: &str) -> Result<(), StateError> {
        if self.spread {
            return Err(StateError::Spread { job: Arc::clone(&self.job) });
        }
        if text.len() > STATE_MAX {
            return Err(StateError::TooLong { job: Arc::clone(&self.job), length: text.len() });
        }
        self.said.words().state = Some(text.into());
        Ok(())
    }

    /// What came out of the run, for the history; only its tail is kept, and only where the job asks for that
    /// ([`Job::keep_output`](super::super::Job::keep_output)). Said again it replaces what was said before.
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
    /// is not recorded, the attempt is not retried, and the [state](Tick::set_state) is not kept. At least once, the tick
    /// runs again, under this leader or the next, or on any worker where the job is placed so. At most once, it ends as
    /// *cancelled*. A run that was cancelled, on request or for a later tick, ends so all the same.
    pub fn mark_interrupted(&self) {
        self.said.0.interrupted.store(true, Ordering::Release);
    }
}

impl Said {
    pub(super) fn new(state: Option<Arc<str>>, keep_output: usize) -> Self {
        let words = Mutex::new(Words { before: state, ..Words::default() });
        Self(Arc::new(Inner { interrupted: AtomicBool::new(false), keep_output, words }))
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.0.interrupted.load(Ordering::Acquire)
    }

    /// What it leaves: the state that it has set, and its output.
    pub(super) fn take(&self) -> (Option<Arc<str>>, Option<Arc<str>>) {
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
        "the state of the job {job:?} is {length} bytes long; keep it to {STATE_MAX}, and put more into a store of its own"
    )]
    TooLong {
        /// Whose.
        job: Arc<str>,
        /// Its length, in bytes.
        length: usize,
    },
    /// The job's ticks are spread over the workers.
    #[error(
        "the job {job:?} is spread over the workers, and its runs, which may go on side by side, leave no state to each \
         other; place it on the leader, or keep its state in a store of its own"
    )]
    Spread {
        /// Whose.
        job: Arc<str>,
    },
}

/// The last `most` bytes of a text, from between two characters.
fn tail(text: &str, most: usize) -> &str {
    let from = text.len().saturating_sub(most);
    (from..=text.len()).find_map(|at| text.get(at..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_begins_between_two_characters() {
        assert_eq!(tail("abc", 5), "abc");
        assert_eq!(tail("abc", 2), "bc");
        assert_eq!(tail("aїїb", 4), "їb");
        assert_eq!(tail("abc", 0), "");
    }
}
