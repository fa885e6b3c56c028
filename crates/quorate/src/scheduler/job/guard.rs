use crate::{
    election::Term,
    env::{BootTime, Env},
    lease::{Lease, LeaseLost},
    node::FencingToken,
};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The lease under which a run is executed. The run may continue while this worker holds the lease.
#[derive(Clone, Debug)]
pub(in crate::scheduler) enum RunGuard {
    /// The leader's term.
    Term(Term),
    /// The session of a worker.
    Session {
        /// The lease of the session.
        lease: Arc<Lease>,
        /// The fencing token of the run.
        token: FencingToken,
        /// The clock that shows whether the lease is still valid.
        env: Env,
    },
}

impl RunGuard {
    /// Returns the fencing token, if this worker holds the lease now.
    pub(in crate::scheduler) fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        match self {
            Self::Term(term) => term.fencing_token(),
            Self::Session { lease, token, .. } => lease.fencing_token().map(|_| *token),
        }
    }

    /// Returns the fencing token, even if this worker no longer holds the lease.
    pub(in crate::scheduler) fn token(&self) -> FencingToken {
        match self {
            Self::Term(term) => term.unchecked_token(),
            Self::Session { token, .. } => *token,
        }
    }

    /// Returns the token that is cancelled when the run should end.
    pub(in crate::scheduler) fn step_down_token(&self) -> &CancellationToken {
        match self {
            Self::Term(term) => term.step_down_token(),
            Self::Session { lease, .. } => lease.step_down_token(),
        }
    }

    /// Returns whether the run should end, because its token is cancelled or its lease has ended. This function
    /// checks the clock too, because after a pause of the process the token may not be cancelled yet.
    pub(in crate::scheduler) fn must_end(&self) -> bool {
        self.step_down_token().is_cancelled() || self.fencing_token().is_err()
    }

    /// Returns the time at which the lease ends unless it is extended. If the leader was asked to resign its
    /// term, and the grace period ends earlier, returns the end of the grace period. Returns `None` once the
    /// lease has ended.
    pub(in crate::scheduler) fn work_until(&self) -> Option<BootTime> {
        match self {
            Self::Term(term) => term.work_until(),
            Self::Session { lease, env, .. } => {
                let remaining = lease.remaining();
                (!remaining.is_zero()).then(|| env.now() + remaining)
            }
        }
    }

    pub(in crate::scheduler) fn env(&self) -> &Env {
        match self {
            Self::Term(term) => term.env(),
            Self::Session { env, .. } => env,
        }
    }
}
