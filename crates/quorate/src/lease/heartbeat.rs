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

/// A sign that a worker's work makes progress. With [`Lock::renew_while_beating`], a lease is extended only
/// while there was a beat within the last `max_silence`. The beginning of the lease counts as a beat. Clones
/// share one heartbeat.
///
/// Call [`Heartbeat::beat`] where work gets *done*, not from a timer: a timer continues to beat while the
/// work hangs.
///
/// A separate task extends the leases. So a holder whose own task blocks its thread keeps its lease, for as
/// long as the runtime has another thread. The holder may block in a write to a full pipe, on a file system
/// that hangs, or on a mutex. A heartbeat ends the lease of such a holder.
///
/// Extensions stop when there has been no beat for longer than `max_silence`. The lease then ends when the
/// validity of its last extension is over.
///
/// A good value for `max_silence` is a third of the TTL, which is the time between two extensions. A shorter
/// value leads to false alarms on a busy machine. Each false alarm delays an extension until after the next
/// beat.
///
/// See [`Lock::renew_while_beating`], [`Election::renew_while_beating`] and [`Scheduler::renew_while_beating`].
///
/// [`Election::renew_while_beating`]: crate::election::Election::renew_while_beating
/// [`Scheduler::renew_while_beating`]: crate::scheduler::Scheduler::renew_while_beating
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
    /// Returns a heartbeat whose longest silence is `max_silence`: see
    /// [`Quorum::heartbeat`](crate::Quorum::heartbeat).
    #[doc(hidden)]
    pub fn new(env: &Env, max_silence: Duration) -> Self {
        let last = AtomicU64::new(env.now().as_nanos());
        Self(Arc::new(HeartbeatState { env: env.clone(), max_silence, last }))
    }

    /// Reports that the work makes progress. A call costs one clock read and one atomic operation.
    pub fn beat(&self) {
        self.0.last.fetch_max(self.0.env.now().as_nanos(), Ordering::AcqRel);
    }

    /// Returns the longest silence: the time that may pass between two beats.
    pub fn max_silence(&self) -> Duration {
        self.0.max_silence
    }

    /// Returns whether the last beat is no older than the longest silence.
    pub fn is_beating(&self) -> bool {
        self.beats(BootTime::default(), self.0.env.now())
    }

    fn beats(&self, since: BootTime, now: BootTime) -> bool {
        let last = BootTime::from_nanos(self.0.last.load(Ordering::Acquire)).max(since);
        last.until(now) <= self.0.max_silence
    }
}

/// A health check that must succeed before each extension.
#[derive(Clone)]
pub(crate) enum Health {
    Check(Arc<dyn Fn() -> bool + Send + Sync>),
    Beats(Heartbeat),
}

impl Health {
    /// Returns whether a lease may be extended now. `since` is the time from which the check applies to the
    /// lease. A check that panics counts as failed.
    pub(crate) fn is_good(&self, since: BootTime, now: BootTime) -> bool {
        match self {
            Self::Check(check) => catch_unwind(AssertUnwindSafe(|| check())).unwrap_or(false),
            Self::Beats(heart) => heart.beats(since, now),
        }
    }

    /// Returns whether a worker that holds no lease may acquire one. A heartbeat always allows it, because a
    /// worker without a lease has no work that could beat.
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
