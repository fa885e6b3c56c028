//! The transfer of a lease from its holder to a named worker.

use crate::{
    config::QuorumConfig,
    lease::{Lease, LeaseError, LeaseLost, command::RenewerCommand},
    node::{Owner, Reply},
    vote::{Answer, NodeOutcome, ReplyTo, vote_channel},
};
use std::{sync::Arc, time::Duration};

/// The longest time for which a lease is reserved for its successor.
const RESERVED_FOR: Duration = Duration::from_secs(1);

impl Lease {
    /// Ends the lease, and reserves the resource for `worker`, which should already be waiting to acquire it.
    /// Returns the duration of the reservation: one second, or the TTL if that is shorter.
    ///
    /// During this time, only a worker with that name
    /// ([`QuorumConfig::worker`](crate::config::QuorumConfig::worker)) can acquire the resource. Every other
    /// client finds the resource held. Afterwards any client may acquire it. The successor's token is larger,
    /// as the token of any later lease is.
    ///
    /// Only the name identifies the successor. If several processes use the name, the first of them to try
    /// acquires the resource. A successor that waits in an acquire is woken as by a release, and is granted
    /// the resource before the waiters in the queue. The reservation is for a writer or a plain lock. If the
    /// successor attempts to acquire the resource for reading, it finds the resource held, as every other
    /// client does.
    ///
    /// # Errors
    /// [`LeaseError`]. The lease has ended even then, and it is released on the nodes that did not reserve
    /// the resource.
    ///
    /// # Cancel safety
    /// The lease ends and the requests are sent at the first poll. If the future is dropped before that, the lease is
    /// released.
    pub async fn transfer_to(self, worker: &str) -> Result<Duration, LeaseError> {
        self.hand_over(worker).await
    }

    /// Transfers the lease like [`Lease::transfer_to`], but does not consume the handle. Other users of the
    /// handle see that the lease has ended.
    pub(crate) async fn hand_over(&self, worker: &str) -> Result<Duration, LeaseError> {
        QuorumConfig::validate_worker("the successor", worker)?;
        let pool = Arc::clone(self.inner().pool());
        let env = pool.env();
        if !self.is_valid() {
            return Err(LeaseLost.into());
        }
        let successor = Owner::reserve(worker, env.random(), env.random());
        let lasts = self.ttl().min(RESERVED_FOR);
        let (sender, mut votes) = vote_channel();
        self.give_away(|id| RenewerCommand::Transfer {
            id,
            successor,
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
        let reason = "the lease is over, but too few nodes keep it for its successor";
        Err(pool.report(outcomes).of(reason).into())
    }
}
