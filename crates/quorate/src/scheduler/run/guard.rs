use crate::{
    election::Term,
    env::{BootTime, Env},
    lease::{Lease, LeaseLost},
    node::FencingToken,
};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Under what a tick runs: what it may run for as long as it is held.
#[derive(Clone, Debug)]
pub(in crate::scheduler) enum RunGuard {
    /// The leader's term.
    Term(Term),
    /// The claim of the run's slot.
    Claim(Arc<Lease>, Env),
}

impl RunGuard {
    /// The fencing token, if it is held at this moment.
    pub(in crate::scheduler) fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        match self {
            Self::Term(term) => term.fencing_token(),
            Self::Claim(claim, _) => claim.fencing_token(),
        }
    }

    /// The fencing token, whether or not it is still held.
    pub(in crate::scheduler) fn token(&self) -> FencingToken {
        match self {
            Self::Term(term) => term.token(),
            Self::Claim(claim, _) => claim.token(),
        }
    }

    /// Fires when the work should end.
    pub(in crate::scheduler) fn step_down_token(&self) -> &CancellationToken {
        match self {
            Self::Term(term) => term.step_down_token(),
            Self::Claim(claim, _) => claim.step_down_token(),
        }
    }

    /// Whether the work is to end, or has lost what it runs under. The clock is looked at as well: after a pause
    /// the signal may be behind it.
    pub(in crate::scheduler) fn is_over(&self) -> bool {
        self.step_down_token().is_cancelled() || self.fencing_token().is_err()
    }

    /// Until when it is held if no extension succeeds, or until when the work has time once it is told to end.
    pub(in crate::scheduler) fn work_until(&self) -> Option<BootTime> {
        match self {
            Self::Term(term) => term.work_until(),
            Self::Claim(claim, env) => {
                let remaining = claim.remaining();
                (!remaining.is_zero()).then(|| env.now() + remaining)
            }
        }
    }

    pub(in crate::scheduler) fn env(&self) -> &Env {
        match self {
            Self::Term(term) => term.env(),
            Self::Claim(_, env) => env,
        }
    }
}
