use crate::{claim::ClaimHandle, lease::LeaseLost, node::FencingToken};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A message that is ours to handle, as its handler gets it.
#[derive(Debug)]
pub struct Delivery<M> {
    message: Arc<M>,
    claim: ClaimHandle,
    stop: CancellationToken,
}

impl<M> Delivery<M> {
    pub(super) fn new(message: Arc<M>, claim: ClaimHandle, stop: CancellationToken) -> Self {
        Self { message, claim, stop }
    }

    /// The message.
    pub fn message(&self) -> &Arc<M> {
        &self.message
    }

    /// A look at the claim.
    pub fn claim(&self) -> &ClaimHandle {
        &self.claim
    }

    /// The fencing token, whether or not the claim is still ours.
    pub fn token(&self) -> FencingToken {
        self.claim.token()
    }

    /// The fencing token, if the claim is ours at this moment: pass it to the write that follows.
    ///
    /// # Errors
    /// [`LeaseLost`] once it is not.
    pub fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        self.claim.fencing_token()
    }

    /// Fires when the handler should come to its end: the consumer shuts down (and drops it after the grace), or
    /// the claim cannot be extended.
    pub fn cancellation_token(&self) -> &CancellationToken {
        &self.stop
    }
}

impl<M> Clone for Delivery<M> {
    fn clone(&self) -> Self {
        Self { message: Arc::clone(&self.message), claim: self.claim.clone(), stop: self.stop.clone() }
    }
}
