use super::{CompleteError, Completed, complete::complete};
use crate::{
    lease::{Lease, LeaseLost, ReleaseError},
    node::FencingToken,
};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// A message that is ours to handle. Extended until it is completed or abandoned; dropping it abandons it.
#[derive(Debug)]
#[must_use = "dropping a claim abandons it"]
pub struct Claim {
    handle: ClaimHandle,
    id: Arc<str>,
    retention: Duration,
}

/// A look at a claim, for the code that handles the message. Clones keep nothing alive.
#[derive(Clone, Debug)]
pub struct ClaimHandle(Arc<Lease>);

impl Claim {
    pub(super) fn new(id: Arc<str>, lease: Lease, retention: Duration) -> Self {
        Self { handle: ClaimHandle(Arc::new(lease)), id, retention }
    }

    /// The message's id.
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// A look at this claim.
    pub fn handle(&self) -> ClaimHandle {
        self.handle.clone()
    }

    /// The fencing token, whether or not the claim is still ours.
    pub fn token(&self) -> FencingToken {
        self.handle.token()
    }

    /// The fencing token, if the claim is ours at this moment.
    ///
    /// # Errors
    /// [`LeaseLost`] once it is not.
    pub fn check(&self) -> Result<FencingToken, LeaseLost> {
        self.handle.check()
    }

    /// Records that the message is done, with a small result, on every node, and lets go of it. Retried until
    /// a majority has it, for the claim's TTL at most.
    ///
    /// # Errors
    /// [`CompleteError`]. Short of a majority the message may be handled again.
    ///
    /// # Cancel safety
    /// Dropping it leaves the message recorded on some nodes or on none; where on none, it is claimed until
    /// its TTL ends, and then free.
    pub async fn complete(self, result: &str) -> Result<Completed, CompleteError> {
        complete(&self.handle.0, result, self.retention).await
    }

    /// Lets go of the message, so that another may claim it at once.
    ///
    /// # Errors
    /// [`ReleaseError`] where too few nodes confirmed: it is let go of all the same, and free once its TTL
    /// has ended.
    ///
    /// # Cancel safety
    /// The claim ends at the first poll, or at the drop of the future.
    pub async fn abandon(self) -> Result<(), ReleaseError> {
        self.handle.0.end().await
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // After a completion or an abandonment the keeper knows it no more, and this is nothing.
        self.handle.0.let_go(None);
    }
}

impl ClaimHandle {
    /// The fencing token, whether or not the claim is still ours.
    pub fn token(&self) -> FencingToken {
        self.0.token()
    }

    /// The fencing token, if the claim is ours at this moment: pass it to the write that follows.
    ///
    /// # Errors
    /// [`LeaseLost`] once it is not.
    pub fn check(&self) -> Result<FencingToken, LeaseLost> {
        self.0.check()
    }

    /// How long the claim is ours from now on if no extension succeeds.
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Fires when the handler should finish: extensions have failed.
    pub fn step_down(&self) -> &CancellationToken {
        self.0.step_down()
    }

    /// Fires when the claim is lost, completed or abandoned.
    pub fn lost(&self) -> &CancellationToken {
        self.0.lost()
    }
}
