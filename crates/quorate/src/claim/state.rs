//! Inspecting the stored state of a message, and resetting it.

use super::{ClaimError, Claims, DeadLettered, Done, Fingerprint};
use crate::{
    lease::AcquireError,
    node::{Owner, Reply, Request, Resource},
    vote::{Answer, NodeOutcome},
};
use std::time::Duration;

/// The state of a message, as a majority of the nodes reported it. The state may have changed by the time the
/// caller reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimState {
    /// No worker holds the message: it is new, was abandoned, or its worker ended without completing it.
    Free {
        /// The number of attempts that have begun, if they are counted. At the limit, the next claim hands the message
        /// to the dead-letter hook.
        attempts: u32,
        /// The fingerprint of the message's payload, if a claim gave one.
        payload: Option<Fingerprint>,
    },
    /// A worker is handling the message, or is about to.
    Claimed {
        /// The worker, if a majority names the same one.
        by: Option<Owner>,
        /// The remaining time of the claim if it is not extended.
        remaining: Option<Duration>,
        /// The number of attempts that have begun, including this one, if they are counted.
        attempts: u32,
        /// The fingerprint of the message's payload, if a claim gave one.
        payload: Option<Fingerprint>,
    },
    /// The message has been handled.
    Done(Done),
    /// The message has been given up.
    DeadLettered(DeadLettered),
}

impl Claims {
    /// Returns the state of the message `id`.
    ///
    /// # Errors
    /// [`ClaimError`] if the id cannot be used, or if too few nodes answered.
    ///
    /// # Cancel safety
    /// Safe: the call changes nothing.
    pub async fn inspect(&self, id: &str) -> Result<ClaimState, ClaimError> {
        let resource = Resource::claim(&self.set, id).map_err(AcquireError::from)?;
        let look = crate::lease::inspect(self.quorum.inner(), &resource).await;
        let look = look.map_err(|report| AcquireError::lost(resource, false, report))?;
        if let Some(done) = &look.done {
            return Ok(DeadLettered::of(done)
                .map_or_else(|| ClaimState::Done(Done::of(done)), ClaimState::DeadLettered));
        }
        let begun = look.begun.unwrap_or_default();
        let (attempts, payload) = (begun.attempts, begun.payload.as_ref().map(Fingerprint::from_node));
        if look.holder.is_none() && !look.contended {
            return Ok(ClaimState::Free { attempts, payload });
        }
        Ok(ClaimState::Claimed { by: look.holder, remaining: look.remaining, attempts, payload })
    }

    /// Makes a message count as new: removes its dead-letter record, the count of its attempts, and the
    /// fingerprint of its payload. The nodes refuse the reset while a worker holds the message, and if the
    /// message is done.
    ///
    /// # What is not guaranteed
    /// If a worker claims the message before every node has carried the reset out, its attempt may continue the old count,
    /// so the message can be given up earlier than a new one, or at once.
    ///
    /// # Errors
    /// [`ClaimError`]. Every node must confirm the reset, since any other node would still report the message
    /// as given up. If a node is unreachable, the result is [`ClaimError::NoMajority`]: call `reset` again.
    ///
    /// # Cancel safety
    /// If the future is dropped, the message is reset on all nodes, on some, or on none. Another call resets
    /// the remaining nodes.
    pub async fn reset(&self, id: &str) -> Result<(), ClaimError> {
        let resource = Resource::claim(&self.set, id).map_err(ClaimError::from)?;
        let keep = self.params()?.keep;
        let pool = self.quorum.pool();
        let mut votes = pool.ask_all(Request::ResetAttempts { resource: resource.clone(), keep });
        let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
        let (mut reset, mut ended) = (0, None);
        while let Some(vote) = votes.recv().await {
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
            match vote.answer {
                Answer::Reply(Reply::AttemptsReset) => reset += 1,
                Answer::Reply(Reply::Done(done)) => ended = Some(done),
                _ => {}
            }
        }
        if let Some(done) = ended {
            return Err(ClaimError::ended(&done));
        }
        if reset == pool.len() {
            return Ok(());
        }
        let report = pool.report(outcomes);
        match report.holder() {
            Some(holder) => Err(ClaimError::InProgress { holder: holder.clone() }),
            None => {
                let nodes = pool.len();
                let reason = format!(
                    "the message was reset on {reset} of {nodes} nodes; the others may still report that it is given up, \
                     so try again"
                );
                Err(report.of(reason).into())
            }
        }
    }
}
