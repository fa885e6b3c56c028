use crate::{claim::ClaimHandle, lease::LeaseLost, node::FencingToken};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A claimed message, as its handler receives it.
#[derive(Debug)]
pub struct Received<M> {
    message: Arc<M>,
    claim: ClaimHandle,
    stop: CancellationToken,
}

impl<M> Received<M> {
    pub(super) fn new(message: Arc<M>, claim: ClaimHandle, stop: CancellationToken) -> Self {
        Self { message, claim, stop }
    }

    /// Returns the message.
    pub fn message(&self) -> &Arc<M> {
        &self.message
    }

    /// Returns a view of the claim.
    pub fn claim(&self) -> &ClaimHandle {
        &self.claim
    }

    /// Returns the fencing token, even if this worker no longer holds the claim.
    pub fn unchecked_token(&self) -> FencingToken {
        self.claim.token()
    }

    /// Returns the fencing token if this worker holds the claim at this moment. Pass it to the write that
    /// follows.
    ///
    /// # Errors
    /// [`LeaseLost`] once the claim has ended.
    pub fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        self.claim.fencing_token()
    }

    /// Returns the token that is cancelled when the handler should finish. There are two reasons. The consumer
    /// may shut down, and drops the handler after the grace period. Or the claim may reach its step-down.
    pub fn cancellation_token(&self) -> &CancellationToken {
        &self.stop
    }
}

impl<M> Clone for Received<M> {
    fn clone(&self) -> Self {
        Self { message: Arc::clone(&self.message), claim: self.claim.clone(), stop: self.stop.clone() }
    }
}
