use crate::env::{BootTime, Env};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A sign of life that a worker gives while it gets on: with [`Lock::renew_while_beating`] a lease is extended
/// only while the last beat, or the beginning of the lease, is younger than the longest silence. Clones are the
/// same heart.
///
/// Beat where work gets *done*, not from a timer of its own: a timer beats on while the work hangs. Leases are extended
/// on a task of their own. Without a heart, a holder whose task blocks its thread (a write to a pipe that is full, a
/// file system that hangs, a mutex) keeps its lease for as long as the runtime has another thread.
///
/// Extensions stop when the silence is longer than `max_silence`, and the lease ends by its TTL after the last one.
/// A third of the TTL, the time between two extensions, is a good silence. A shorter one sees false alarms on a busy
/// machine: each costs an extension, and the next beat makes up for it.
///
/// See [`Lock::renew_while_beating`], [`Election::renew_while_beating`] and [`Scheduler::renew_while_beating`].
///
/// [`Election::renew_while_beating`]: crate::election::Election::renew_while_beating
/// [`Scheduler::renew_while_beating`]: crate::schedule::Scheduler::renew_while_beating
/// [`Lock::renew_while_beating`]: super::Lock::renew_while_beating
#[derive(Clone, Debug)]
pub struct Heartbeat(Arc<HeartbeatState>);

#[derive(Debug)]
struct HeartbeatState {
    env: Env,
    max_silence: Duration,
    /// The last beat, in nanoseconds of the boot clock.
    last: AtomicU64,
}

impl Heartbeat {
    /// A heart that may be silent for `max_silence`. `env` is the quorum's: [`Quorum::env`](super::Quorum::env).
    pub fn new(env: &Env, max_silence: Duration) -> Self {
        let last = AtomicU64::new(env.now().as_nanos());
        Self(Arc::new(HeartbeatState { env: env.clone(), max_silence, last }))
    }

    /// The work gets on. One clock read and one store.
    pub fn beat(&self) {
        self.0.last.fetch_max(self.0.env.now().as_nanos(), Ordering::AcqRel);
    }

    /// How long it may be silent.
    pub fn max_silence(&self) -> Duration {
        self.0.max_silence
    }

    /// Whether the last beat is younger than the longest silence.
    pub fn is_beating(&self) -> bool {
        self.beats(BootTime::default(), self.0.env.now())
    }

    fn beats(&self, since: BootTime, now: BootTime) -> bool {
        let last = BootTime::from_nanos(self.0.last.load(Ordering::Acquire)).max(since);
        last.until(now) <= self.0.max_silence
    }
}

/// What an extension waits for.
#[derive(Clone)]
pub(crate) enum Health {
    Check(Arc<dyn Fn() -> bool + Send + Sync>),
    Beats(Heartbeat),
}

impl Health {
    /// Whether to extend a lease that has been held since `since`. A check that panics says no.
    pub(crate) fn is_good(&self, since: BootTime, now: BootTime) -> bool {
        match self {
            Self::Check(check) => catch_unwind(AssertUnwindSafe(|| check())).unwrap_or(false),
            Self::Beats(heart) => heart.beats(since, now),
        }
    }

    /// Whether one that holds nothing yet is fit to: a heart need not beat before there is work.
    pub(crate) fn may_begin(&self) -> bool {
        match self {
            Self::Check(check) => catch_unwind(AssertUnwindSafe(|| check())).unwrap_or(false),
            Self::Beats(_) => true,
        }
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check(_) => f.write_str("Check"),
            Self::Beats(heart) => f.debug_tuple("Beats").field(&heart.0.max_silence).finish(),
        }
    }
}
