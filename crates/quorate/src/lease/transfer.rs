//! A lease that its holder hands to a worker by name.

use crate::{
    config::{QuorumConfig, SettingError},
    lease::{Lease, LeaseLost, command::RenewerCommand},
    node::{Owner, Reply},
    vote::{Answer, NodeOutcome, ReplyTo, Report, vote_channel},
};
use std::{sync::Arc, time::Duration};

/// How long a lease waits for its heir, at most.
const RESERVED_FOR: Duration = Duration::from_secs(1);

/// Why a lease was not handed to the worker that was named. It is over all the same: whoever comes first gets it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// No worker can be called so.
    #[error(transparent)]
    Heir(#[from] SettingError),
    /// It had ended before.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// Fewer than a majority of nodes reserved it; the others were freed.
    #[error("the lease is over, but too few nodes keep it for its heir: {0}")]
    NotReserved(Arc<Report>),
}

impl Lease {
    /// Ends the lease, and keeps what it was on for `worker`, who should be waiting for it: for the duration that is
    /// returned, one second or the TTL at most, only an attempt by a worker of that name
    /// ([`QuorumConfig::worker`](crate::config::QuorumConfig::worker)) gets it; every other client finds it held. Then it is free
    /// for all. The heir's token is larger, as any later one.
    ///
    /// The name is all that the heir shows: any process that calls itself so may come, and of two the first gets
    /// it. One that waits in an acquire is woken as by a release, and goes before those who wait in line.
    /// It comes to write, or for the plain lock: its readers find the lease held, as everybody does.
    ///
    /// # Errors
    /// [`TransferError`]: the lease is over in each case, and released where it was not reserved.
    ///
    /// # Cancel safety
    /// The lease ends and the requests leave at the first poll, or the lease is released at the drop of the future.
    pub async fn transfer_to(self, worker: &str) -> Result<Duration, TransferError> {
        self.hand_over(worker).await
    }

    /// As [`Lease::transfer_to`], for a lease that others look at: they see it ended.
    pub(crate) async fn hand_over(&self, worker: &str) -> Result<Duration, TransferError> {
        QuorumConfig::validate_worker("the heir", worker)?;
        let pool = Arc::clone(self.inner().pool());
        let env = pool.env();
        if !self.is_valid() {
            return Err(LeaseLost.into());
        }
        let heir = Owner::reserve(worker, env.random(), env.random());
        let lasts = self.ttl().min(RESERVED_FOR);
        let (sender, mut votes) = vote_channel();
        self.give_away(|id| RenewerCommand::Transfer {
            id,
            successor: heir,
            lasts,
            reply: ReplyTo { sender, ticket: 0 },
        });
        let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
        let mut reserved = 0;
        let deadline = env.now() + pool.config().node_timeout;
        while reserved < pool.majority() {
            let Some(Some(vote)) = env.before(deadline, votes.recv()).await else { break };
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
            reserved += usize::from(matches!(vote.answer, Answer::Reply(Reply::Reserved)));
        }
        if reserved >= pool.majority() {
            return Ok(lasts);
        }
        Err(TransferError::NotReserved(Arc::new(pool.report(outcomes))))
    }
}
