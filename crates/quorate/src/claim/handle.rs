use super::{
    AbandonError, CompleteError, Completed,
    abandon::abandon,
    begin::{Start, take_back},
    complete::{Ending, complete},
};
use crate::{
    lease::{Lease, LeaseLost},
    node::{DoneRecord, FencingToken},
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
    payload: Option<Arc<str>>,
    /// Whether it is held only to be handed over.
    given_up: bool,
    /// It is counted, and nobody has been given it yet: dropped now, it is taken back.
    unbegun: bool,
}

/// A look at a claim, for the code that handles the message. Clones keep nothing alive.
#[derive(Clone, Debug)]
pub struct ClaimHandle {
    lease: Arc<Lease>,
    attempt: u32,
}

impl Claim {
    pub(super) fn new(id: Arc<str>, start: Start, retention: Duration) -> Self {
        let Start { lease, attempt, payload, counted } = start;
        let handle = ClaimHandle { lease: Arc::new(lease), attempt };
        Self { handle, id, retention, payload, given_up: false, unbegun: counted }
    }

    /// The same, for whoever is to handle it from now on.
    pub(super) fn begins(mut self) -> Self {
        self.unbegun = false;
        self
    }

    /// The same, which is only to be handed over.
    pub(super) fn given_up(mut self) -> Self {
        self.given_up = true;
        self
    }

    pub(super) fn shares_a_quorum_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.handle.lease.inner(), other.handle.lease.inner())
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// The message's id.
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Which attempt on the message this is, from one, as far as attempts are counted: always one where neither
    /// [`max_attempts`](super::Claims::max_attempts) nor a payload was given. After nodes forgot it may begin anew.
    pub fn attempt(&self) -> u32 {
        self.handle.attempt()
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
    pub fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        self.handle.fencing_token()
    }

    /// Records that the message is done, with a small result, on every node, and lets go of it. Retried until
    /// a majority has it, for the claim's TTL at most. Where the claim has run out it looks first, and writes nothing if the
    /// message is somebody else's by then.
    ///
    /// # Errors
    /// [`CompleteError`]. Short of a majority the message may be handled again.
    ///
    /// # Cancel safety
    /// Dropping it leaves the message recorded on some nodes or on none; where on none, it is claimed until
    /// its TTL ends, and then free.
    pub async fn complete(self, result: &str) -> Result<Completed, CompleteError> {
        let mut verdict = complete(vec![self.ending(result)]).await;
        // One went in, so one comes out.
        verdict.pop().unwrap_or(Err(CompleteError::Superseded))
    }

    pub(super) fn ending(&self, result: &str) -> Ending<'_> {
        let poisoned = self.given_up.then_some(self.handle.attempt);
        let payload = self.payload.clone();
        let record = DoneRecord { result: result.into(), payload, poisoned, ..DoneRecord::default() };
        Ending { lease: &self.handle.lease, record, retention: self.retention }
    }

    /// Lets go of the message, so that another may claim it at once. The attempt stays counted.
    ///
    /// # Errors
    /// [`AbandonError`] where someone else holds it by now, or has completed it, which this has not changed; and where
    /// too few nodes answered: it is let go of all the same, and free once its TTL has ended.
    ///
    /// # Cancel safety
    /// The claim ends at the first poll, or at the drop of the future.
    pub async fn abandon(self) -> Result<(), AbandonError> {
        abandon(&self.handle.lease).await
    }

    /// As [`Claim::abandon`], of a message whose handler never began (the worker is being shut down, say): the attempt
    /// counts no more. A node that is away may still count it.
    ///
    /// # Errors
    /// As of [`Claim::abandon`].
    ///
    /// # Cancel safety
    /// As of [`Claim::abandon`].
    pub async fn give_back(self) -> Result<(), AbandonError> {
        let lease = &self.handle.lease;
        if lease.is_valid() {
            take_back(lease, self.handle.attempt, self.retention, |_| true);
        }
        self.abandon().await
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.unbegun {
            take_back(&self.handle.lease, self.handle.attempt, self.retention, |_| true);
        }
        // After a completion or an abandonment the keeper knows it no more, and this is nothing.
        self.handle.lease.let_go(None);
    }
}

impl ClaimHandle {
    /// Which attempt on the message this is: see [`Claim::attempt`].
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The fencing token, whether or not the claim is still ours.
    pub fn token(&self) -> FencingToken {
        self.lease.token()
    }

    /// The fencing token, if the claim is ours at this moment: pass it to the write that follows.
    ///
    /// # Errors
    /// [`LeaseLost`] once it is not.
    pub fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        self.lease.fencing_token()
    }

    /// How long the claim is ours from now on if no extension succeeds.
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// Fires when the handler should finish: extensions have failed.
    pub fn step_down_token(&self) -> &CancellationToken {
        self.lease.step_down_token()
    }

    /// Fires when the claim is lost, completed or abandoned.
    pub fn lost_token(&self) -> &CancellationToken {
        self.lease.lost_token()
    }
}
