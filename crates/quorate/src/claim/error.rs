use super::{Fingerprint, abandon::named};
use crate::{
    lease::{AcquireError, LeaseLost},
    node::{DoneRecord, NameError, Owner},
    vote::Report,
};
use std::{sync::Arc, time::Duration};

/// The reason why a message was not claimed. A message that another worker holds, or has handled, is not an error.
///
/// ```
/// use quorate::{ClaimError, Claims, Quorum, claim::MessageId, node::MemoryNode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// let claims = Claims::new(&quorum, "orders");
/// let _claim = claims.claim(MessageId::new("order-1").payload(b"tea")).await?;
/// let other = claims.claim(MessageId::new("order-1").payload(b"milk")).await;
/// assert!(matches!(other, Err(ClaimError::OtherPayload { .. })));
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The id or the settings cannot be used; too few nodes answered, or may vote.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The id was used with another payload before: two messages share an id, or one was changed on its way.
    #[error(
        "the message id {id:?} was claimed with the payload {stored} before, and is now given with {given}: one id is \
         for one payload. Give the other message an id of its own, or, if the first was a mistake, forgive this one"
    )]
    OtherPayload {
        /// The message's id.
        id: Arc<str>,
        /// The fingerprint that was given now.
        given: Fingerprint,
        /// The fingerprint that is kept.
        stored: Fingerprint,
    },
    /// The message was claimed, but the attempt was not counted on a majority, or too few nodes reported its payload; so the
    /// attempt did not begin. The claim has been released.
    #[error("the attempt on {id:?} was not counted on a majority of nodes, and did not begin: {report}")]
    Uncounted {
        /// The message's id.
        id: Arc<str>,
        /// The outcome of each node.
        report: Report,
    },
}

impl ClaimError {
    /// Returns whether retrying will not help: an operator must act, or the code must change.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Acquire(error) => error.is_permanent(),
            Self::OtherPayload { .. } => true,
            Self::Uncounted { report, .. } => report.is_permanent(),
        }
    }

    /// Returns whether too few of the nodes that answered may vote.
    pub fn is_untrusted(&self) -> bool {
        matches!(self, Self::Acquire(error) if error.is_untrusted())
    }

    /// Returns the outcome of each node, where a round was run.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Acquire(error) => error.report(),
            Self::Uncounted { report, .. } => Some(report),
            Self::OtherPayload { .. } => None,
        }
    }
}

impl From<NameError> for ClaimError {
    fn from(error: NameError) -> Self {
        Self::Acquire(error.into())
    }
}

/// The reason why a claim could not be abandoned. The claim of another worker was not changed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AbandonError {
    /// Another worker holds the message by now: the claim was lost before it was abandoned.
    #[error("the message is now held by {}", named(.holder))]
    TakenOver {
        /// The other worker.
        holder: Owner,
    },
    /// A later claim has completed it.
    #[error("a later claim, token {}, has completed the message", .0.token)]
    AlreadyDone(DoneRecord),
    /// Too few nodes answered. The claim has ended all the same, and the message is free once the TTL is over.
    #[error("too few nodes confirmed that the message is free: {0}")]
    NoMajority(Report),
}

/// The reason why a message was not reset.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResetError {
    /// The id or the settings cannot be used.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// A worker holds the message: try again once that claim has ended.
    #[error("the message is held by {}; try again once that has ended", named(.holder))]
    InProgress {
        /// The other worker.
        holder: Owner,
    },
    /// The message is done, not given up.
    #[error("the message is done, under token {}; there is nothing to forgive", .0.token)]
    AlreadyDone(DoneRecord),
    /// Some nodes have not been reset, and would still report the message as given up.
    #[error(
        "forgiven on {forgiven} nodes; the others may still say that it is given up, so try again: {report}"
    )]
    Partly {
        /// The number of nodes that have been reset.
        forgiven: usize,
        /// The outcome of each node.
        report: Report,
    },
}

/// The reason why a claim could not be completed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompleteError {
    /// The result is too long to keep.
    #[error("the result has {length} bytes, at most {most} are kept; keep it elsewhere, and its name here")]
    TooLong {
        /// The length of the result, in bytes.
        length: usize,
        /// The maximum length, in bytes.
        most: usize,
    },
    /// Another worker holds the message by now: the claim was lost before it was completed.
    #[error("the message is now held by {}", named(.holder))]
    TakenOver {
        /// The other worker.
        holder: Owner,
    },
    /// A later claim was made, and has ended: it was abandoned or expired.
    #[error("a later claim was made on the message meanwhile; it may be handled again")]
    Superseded,
    /// A later claim has completed it.
    #[error("a later claim, token {}, has completed the message", .0.token)]
    AlreadyDone(DoneRecord),
    /// Too few nodes recorded it. The message may be handled again once the claim has expired. If the claim
    /// had expired before, and too few nodes reported the current owner, no node was asked to record it.
    #[error("the done record did not reach a majority: {0}")]
    NoMajority(Report),
}

/// The reason why a message was not processed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError<E> {
    /// The message could not be claimed: too few nodes answered, or its name cannot be used.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Another worker was still handling the message when the wait was over
    /// ([`Claims::once`](super::Claims::once)).
    #[error("the message {id:?} is still being handled after {waited:?}, by {}", .holder.as_ref().map_or("another worker".to_owned(), named))]
    StillInProgress {
        /// The message's id.
        id: Arc<str>,
        /// The time that the caller was willing to wait.
        waited: Duration,
        /// The worker that holds it, if a majority names the same one.
        holder: Option<Owner>,
    },
    /// The message has been given up ([`Claims::once`](super::Claims::once)).
    #[error("the message {id:?} was given up after {attempts} attempts")]
    DeadLettered {
        /// The message's id.
        id: Arc<str>,
        /// The number of attempts that had begun.
        attempts: u32,
    },
    /// The handler failed. The message has been abandoned, and may be claimed again at once.
    #[error("the handler failed: {0}")]
    Handler(E),
    /// The claim was lost while the handler ran. The handler has been dropped.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// The handler succeeded, but the message could not be recorded as done.
    #[error("handled, but not recorded as done: {0}")]
    Complete(#[from] CompleteError),
}
