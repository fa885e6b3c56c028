//! What stands of a message, and what an operator may do about it.

use super::{ClaimError, Claims, DeadLettered, Done, Fingerprint, ResetError};
use crate::{
    lease::{AcquireError, InspectError},
    node::{Owner, Reply, Request, Resource},
    vote::{Answer, NodeOutcome},
};
use std::time::Duration;

/// What stands of a message, by the word of a majority at one moment. By the time it is read it may be past.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimState {
    /// Nobody holds it: new, abandoned, or its worker is gone.
    Free {
        /// How many attempts have begun, where they are counted. At the limit the next claim hands it over.
        attempts: u32,
        /// The fingerprint of its payload, where it was given one.
        payload: Option<Fingerprint>,
    },
    /// Someone is handling it, or about to.
    Claimed {
        /// Who, where a majority names the same one.
        by: Option<Owner>,
        /// For how long yet, if it is not extended.
        remaining: Option<Duration>,
        /// How many attempts have begun, this one among them, where they are counted.
        attempts: u32,
        /// The fingerprint of its payload, where it was given one.
        payload: Option<Fingerprint>,
    },
    /// It has been handled.
    Done(Done),
    /// It has been given up.
    DeadLettered(DeadLettered),
}

impl Claims {
    /// What stands of the message `id`.
    ///
    /// # Errors
    /// [`ClaimError`] for an id that cannot be used, and where too few nodes answered.
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn inspect(&self, id: &str) -> Result<ClaimState, ClaimError> {
        let resource = Resource::claim(&self.set, id).map_err(AcquireError::from)?;
        let look = crate::lease::inspect(self.quorum.inner(), &resource).await;
        let look =
            look.map_err(|InspectError { resource, report }| AcquireError::lost(resource, false, report))?;
        if let Some(done) = &look.done {
            return Ok(DeadLettered::of(done)
                .map_or_else(|| ClaimState::Done(Done::of(done)), ClaimState::DeadLettered));
        }
        let begun = look.begun.unwrap_or_default();
        let (attempts, payload) = (begun.attempts, begun.payload.as_ref().map(Fingerprint::from_node));
        if look.holder.is_none() && !look.contended {
            return Ok(ClaimState::Free { attempts, payload });
        }
        let remaining = look.holder.as_ref().and_then(|holder| holder.remaining);
        Ok(ClaimState::Claimed { by: look.holder.map(|holder| holder.owner), remaining, attempts, payload })
    }

    /// Lifts that a message was given up, and forgets how many attempts have begun on it and the fingerprint of its
    /// payload: it is as new. Refused while somebody holds it, and where it is done.
    ///
    /// # Errors
    /// [`ResetError`]. Every node must have forgotten: one that has not would still say that it is given up, so where one is
    /// away this is [`ResetError::Partly`], and to be repeated.
    ///
    /// # Cancel safety
    /// Dropping it leaves it forgiven on some nodes, all, or none; repeating it goes on from there.
    pub async fn reset(&self, id: &str) -> Result<(), ResetError> {
        let resource = Resource::claim(&self.set, id).map_err(ClaimError::from)?;
        let keep = self.params()?.keep;
        let pool = self.quorum.pool();
        let mut votes = pool.ask_all(|_| Request::Forgive { resource: resource.clone(), keep });
        let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
        let (mut forgiven, mut ended) = (0, None);
        while let Some(vote) = votes.recv().await {
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
            match vote.answer {
                Answer::Reply(Reply::Forgiven) => forgiven += 1,
                Answer::Reply(Reply::Done(done)) => ended = Some(done),
                _ => {}
            }
        }
        if let Some(done) = ended {
            return Err(ResetError::AlreadyDone(done));
        }
        if forgiven == pool.len() {
            return Ok(());
        }
        let report = pool.report(outcomes);
        match report.holder() {
            Some(holder) => Err(ResetError::InProgress { holder: holder.clone() }),
            None => Err(ResetError::Partly { forgiven, report }),
        }
    }
}
