use crate::{config::Config, http::tokens::Tokens, leases::Leases, recorder::Measurements};
use quorate::{
    election::Election,
    env::{BootTime, Env},
    quorum::Quorum,
    scheduler::Jobs,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The largest number of requests that may query the nodes at the same time. Further requests wait.
const ASKING_MAX: usize = 4;
/// The shortest silence of the daemon's loop after which the process does not count as live.
const SILENCE_MIN: Duration = Duration::from_secs(10);

/// The state that the server shows: a daemon and its quorum.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) quorum: Quorum,
    pub(super) election: Election,
    pub(super) config: Config,
    /// True if the daemon runs jobs.
    pub(super) has_jobs: bool,
    /// The leases of clients, if the daemon holds any.
    pub(super) leases: Option<Arc<Leases>>,
    pub(super) tokens: Tokens,
    pub(super) exporter: Measurements,
    /// The permits of the requests that query the nodes. Each of these requests needs one permit.
    pub(super) asking: Semaphore,
    /// Cancelled once the daemon has been asked to stop.
    pub(super) stopping: CancellationToken,
    /// The last beat of the daemon's loop, in nanoseconds of the boot clock.
    beat: AtomicU64,
}

impl Site {
    pub(super) fn new(
        (quorum, election): (&Quorum, &Election),
        config: &Config,
        has_jobs: bool,
        leases: Option<Arc<Leases>>,
        tokens: Tokens,
        exporter: Measurements,
    ) -> Self {
        Self {
            quorum: quorum.clone(),
            election: election.clone(),
            config: Config { group: Some(Arc::clone(election.group())), ..config.clone() },
            has_jobs,
            leases,
            tokens,
            exporter,
            asking: Semaphore::new(ASKING_MAX),
            stopping: CancellationToken::new(),
            beat: AtomicU64::new(quorum.env().now().as_nanos()),
        }
    }

    pub(super) fn env(&self) -> &Env {
        self.quorum.env()
    }

    /// Records that the daemon's loop runs.
    pub(super) fn beat(&self) {
        self.beat.store(self.env().now().as_nanos(), Ordering::Relaxed);
    }

    /// Returns for how long the daemon's loop has not run, if that is too long.
    pub(super) fn silence(&self) -> Option<Duration> {
        let beat = BootTime::from_nanos(self.beat.load(Ordering::Relaxed));
        too_long(beat.until(self.env().now()), self.config.lease.ttl)
    }

    /// Returns the jobs of the group, as a client of the server sees them.
    pub(super) fn jobs(&self) -> Result<Jobs, crate::exit::Failure> {
        let group = self.election.group();
        Jobs::new(&self.quorum, group).map_err(|error| crate::exit::Failure::new(crate::exit::FAILURE, error))
    }
}

/// Returns `silence` if it is longer than the silence of a daemon's loop on a busy machine. By then the leader
/// has lost its lease, because the lease is extended only while the loop runs.
fn too_long(silence: Duration, ttl: Duration) -> Option<Duration> {
    (silence > ttl.max(SILENCE_MIN)).then_some(silence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_live_until_it_was_silent_for_longer_than_a_lease() {
        let second = Duration::from_secs(1);
        for (silence, ttl, is_live) in
            [(0, 3, true), (10, 3, true), (11, 3, false), (29, 30, true), (31, 30, false)]
        {
            assert_eq!(too_long(silence * second, ttl * second).is_none(), is_live, "{silence} s of {ttl} s");
        }
    }
}
