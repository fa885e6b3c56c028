use super::{
    ClaimError, Done,
    abandon::abandon,
    begin::{Start, withdraw_count},
    complete::{Ending, complete},
};
use crate::{
    lease::{Lease, LeaseLost},
    node::{DoneRecord, FencingToken},
};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// A claim: the right of this worker to handle one message. The claim is extended until it is completed or
/// abandoned. Dropping a claim abandons it.
///
/// ```
/// use quorate::{Claims, Quorum, claim::ClaimOutcome, node::MemoryNode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// let claims = Claims::new(&quorum, "orders");
/// if let ClaimOutcome::Claimed(claim) = claims.claim("order-1").await? {
///     let token = claim.fencing_token()?; // pass it to the write
///     claim.complete(&format!("shipped under {token}")).await?;
/// }
/// assert!(matches!(claims.claim("order-1").await?, ClaimOutcome::Done(_)));
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a claim abandons it"]
pub struct Claim {
    handle: ClaimHandle,
    id: Arc<str>,
    retention: Duration,
    payload: Option<Arc<str>>,
    /// True if this worker holds the claim only to hand the message to the dead-letter hook.
    given_up: bool,
    /// True if the attempt is counted and its handler has not started. If the claim is dropped in this state,
    /// the count is withdrawn.
    not_started: bool,
}

/// A view of a claim, for the code that handles the message. The view does not keep the claim alive: the
/// claim ends when the [`Claim`] is dropped.
#[derive(Clone)]
pub struct ClaimHandle {
    lease: Arc<Lease>,
    attempt: u32,
    /// True once the caller has asked for the fencing token and learned that the claim has ended.
    refused: Arc<AtomicBool>,
}

impl Claim {
    pub(super) fn new(id: Arc<str>, start: Start, retention: Duration) -> Self {
        let Start { lease, attempt, payload, counted } = start;
        let handle = ClaimHandle { lease: Arc::new(lease), attempt, refused: Arc::default() };
        Self { handle, id, retention, payload, given_up: false, not_started: counted }
    }

    /// Marks the attempt as started. From now on, dropping the claim does not withdraw the attempt's count.
    pub(super) fn started(mut self) -> Self {
        self.not_started = false;
        self
    }

    /// Marks this claim as one that is held only to hand the message to the dead-letter hook.
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

    /// Returns the message's id.
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Returns the number of this attempt on the message, counted from one. Attempts are counted only if
    /// [`max_attempts`](super::Claims::max_attempts) or a payload is given. If no worker gives one of these,
    /// the number is always one. The count may start from one again after nodes lost their data.
    pub fn attempt(&self) -> u32 {
        self.handle.attempt()
    }

    /// Returns a view of this claim.
    pub fn handle(&self) -> ClaimHandle {
        self.handle.clone()
    }

    /// Returns the fencing token, even if this worker no longer holds the claim.
    pub fn unchecked_token(&self) -> FencingToken {
        self.handle.token()
    }

    /// Returns the fencing token, if this worker holds the claim at this moment.
    ///
    /// # Errors
    /// [`LeaseLost`] once the claim has ended. The claim can then no longer be completed.
    pub fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        self.handle.fencing_token()
    }

    /// Records on every node that the message is done, with a small result, and ends the claim. The call
    /// tries until a majority has stored the record, for the claim's TTL at most. If the claim has expired,
    /// the call logs a warning, first checks the current owner, and writes nothing if another worker holds the
    /// message. Returns the number of nodes that have stored the record: at least a majority.
    ///
    /// # Errors
    /// [`ClaimError`]. Without a majority the message may be handled again. [`ClaimError::Lost`] if
    /// `fencing_token` has failed on this claim or a handle of it: the caller knows that the claim had ended before
    /// the work was done, so nothing is recorded.
    ///
    /// # Cancel safety
    /// If the future is dropped, some nodes or none may have stored the record. If none has, the message
    /// stays claimed until the TTL ends, and is then free.
    pub async fn complete(self, result: &str) -> Result<usize, ClaimError> {
        self.record(result).await.map(|(_, nodes)| nodes)
    }

    /// Completes the claim like [`Claim::complete`], and also returns the record.
    pub(super) async fn record(self, result: &str) -> Result<(Done, usize), ClaimError> {
        let mut verdict = complete(vec![self.ending(result)]).await;
        // `complete` returns exactly one result for each claim, so the default is never used.
        verdict.pop().unwrap_or(Err(ClaimError::Superseded))
    }

    pub(super) fn ending(&self, result: &str) -> Ending<'_> {
        let dead_lettered = self.given_up.then_some(self.handle.attempt);
        let payload = self.payload.clone();
        let record = DoneRecord { result: result.into(), payload, dead_lettered, ..DoneRecord::default() };
        let refused = self.handle.refused.load(Ordering::Acquire);
        Ending { lease: &self.handle.lease, record, retention: self.retention, refused }
    }

    /// Frees the message, so that another worker may claim it at once. The attempt stays counted.
    ///
    /// # Errors
    /// [`ClaimError`] if another worker holds the message by now, or has completed it; this call does not
    /// change that. [`ClaimError::NoMajority`] if too few nodes answered: the claim has ended even then, and
    /// the message is free once the TTL is over.
    ///
    /// # Cancel safety
    /// The claim ends at the first poll, or when the future is dropped.
    pub async fn abandon(self) -> Result<(), ClaimError> {
        abandon(&self.handle.lease).await
    }

    /// Frees the message as [`Claim::abandon`] does, for a message whose handler never started, for instance
    /// because of a shutdown. The attempt is not counted, with two exceptions. A node that cannot be reached
    /// keeps the count. If the claim had ended before this call, all nodes keep the count.
    ///
    /// # Errors
    /// The same as for [`Claim::abandon`].
    ///
    /// # Cancel safety
    /// The same as for [`Claim::abandon`].
    pub async fn cancel_before_start(self) -> Result<(), ClaimError> {
        let lease = &self.handle.lease;
        if lease.is_valid() {
            withdraw_count(lease, self.handle.attempt, self.retention, |_| true);
        }
        self.abandon().await
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("id", &self.id).field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl fmt::Debug for ClaimHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimHandle").field("lease", &self.lease).field("attempt", &self.attempt).finish()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.not_started {
            withdraw_count(&self.handle.lease, self.handle.attempt, self.retention, |_| true);
        }
        // If the claim was completed or abandoned, the renewer no longer has the lease. Then this call has no
        // effect.
        self.handle.lease.post_release(None);
    }
}

impl ClaimHandle {
    /// Returns the number of this attempt on the message: see [`Claim::attempt`].
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the fencing token, even if this worker no longer holds the claim.
    pub fn unchecked_token(&self) -> FencingToken {
        self.lease.token()
    }

    /// Returns the fencing token if this worker holds the claim at this moment. Pass it to the write that
    /// follows.
    ///
    /// # Errors
    /// [`LeaseLost`] once the claim has ended. The claim can then no longer be completed.
    pub fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        self.lease.fencing_token().inspect_err(|_| self.refused.store(true, Ordering::Release))
    }

    /// Returns how long the claim remains valid if no extension succeeds.
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// Returns the token that is cancelled when the handler should finish: `step_down_grace` before validity
    /// ends.
    pub fn step_down_token(&self) -> &CancellationToken {
        self.lease.step_down_token()
    }

    /// Returns the token that is cancelled when the claim is lost, completed or abandoned.
    pub fn lost_token(&self) -> &CancellationToken {
        self.lease.lost_token()
    }
}
