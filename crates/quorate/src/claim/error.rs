use super::{DeadLettered, Done, Fingerprint};
use crate::{
    config::SettingError,
    lease::{AcquireError, LeaseLost},
    node::{DoneRecord, Owner},
    vote::NoMajority,
};
use std::{sync::Arc, time::Duration};

/// The reason why a message was not claimed, or why a claim was not completed, abandoned or reset.
///
/// For [`Claims::claim`](super::Claims::claim), a message that another worker holds, or has handled, is not an error. No call
/// changes the claim of another worker.
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
    /// The id or the settings cannot be used, or too few nodes answered or may vote.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The id was used with another payload before. Either two messages share an id, or one of them was changed
    /// in transit.
    #[error(
        "the message id {id:?} was claimed with the payload {stored} before, and is now given with {given}: one id is \
         for one payload. Give the other message an id of its own, or, if the first was a mistake, reset it (Claims::reset)"
    )]
    OtherPayload {
        /// The message's id.
        id: Arc<str>,
        /// The fingerprint that was given now.
        given: Fingerprint,
        /// The fingerprint that the nodes store.
        stored: Fingerprint,
    },
    /// The message was claimed, but its attempt did not begin. Too few nodes counted the attempt or reported
    /// its payload. The claim has been released.
    #[error("the attempt on {id:?} was not counted on a majority of nodes, and did not begin: {report}")]
    Uncounted {
        /// The message's id.
        id: Arc<str>,
        /// The outcome of each node.
        report: NoMajority,
    },
    /// The message cannot be reset while a worker holds it.
    #[error("the message is held by {}; try again once that claim has ended", named(.holder))]
    InProgress {
        /// The other worker.
        holder: Owner,
    },
    /// Another worker now holds the message: the claim was lost before it was completed or abandoned.
    #[error("the message is now held by {}", named(.holder))]
    TakenOver {
        /// The other worker.
        holder: Owner,
    },
    /// Another worker claimed the message later, and that claim has ended: it was abandoned or expired.
    #[error("a later claim was made on the message meanwhile; it may be handled again")]
    Superseded,
    /// The claim had ended when the caller asked for its fencing token. So the message is not recorded as done, and may
    /// be handled again. A function that checks the token can return this error with `?`.
    #[error("the claim had ended before the message was completed: {0}")]
    Lost(#[from] LeaseLost),
    /// The message is done already, in most cases under a later claim.
    #[error("the message is done already, under token {}", .0.token)]
    AlreadyDone(Done),
    /// A later claim reached the attempt limit, and the dead-letter hook has taken the message.
    #[error("a later claim gave the message up after {} attempts", .0.attempts)]
    DeadLettered(DeadLettered),
    /// The result is too long to store.
    #[error("the result has {length} bytes, at most {most} are kept; keep it elsewhere, and its name here")]
    TooLong {
        /// The length of the result, in bytes.
        length: usize,
        /// The maximum length, in bytes.
        most: usize,
    },
    /// Too few nodes confirmed the change that the call makes. The consequence depends on the call.
    ///
    /// - *Complete*: the message may be handled again once the claim has expired. If the claim had expired
    ///   before, and too few nodes reported the current owner, no done record was sent.
    /// - *Abandon*: the claim has ended even then, and the message is free once the TTL is over.
    /// - *Reset*: nodes that have not been reset may still report the message as given up. Try again.
    #[error(transparent)]
    NoMajority(#[from] NoMajority),
}

impl ClaimError {
    /// Returns the error for a message that already has the done record `record`.
    pub(super) fn ended(record: &DoneRecord) -> Self {
        DeadLettered::of(record).map_or_else(|| Self::AlreadyDone(Done::of(record)), Self::DeadLettered)
    }

    /// Returns whether repeating the call cannot help. An operator must act, or the code must change, or the
    /// claim is over because another worker holds the message or the message has ended.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Acquire(error) => error.is_permanent(),
            Self::OtherPayload { .. }
            | Self::TakenOver { .. }
            | Self::Superseded
            | Self::Lost(_)
            | Self::AlreadyDone(_)
            | Self::DeadLettered(_)
            | Self::TooLong { .. } => true,
            Self::InProgress { .. } => false,
            Self::Uncounted { report, .. } | Self::NoMajority(report) => report.is_permanent(),
        }
    }

    /// Returns whether too few of the nodes that answered may vote.
    pub fn is_untrusted(&self) -> bool {
        matches!(self, Self::Acquire(error) if error.is_untrusted())
    }

    /// Returns the outcome of each node, if too few nodes agreed. Returns `None` for every other error.
    pub fn report(&self) -> Option<&NoMajority> {
        match self {
            Self::Acquire(error) => error.report(),
            Self::Uncounted { report, .. } | Self::NoMajority(report) => Some(report),
            _ => None,
        }
    }
}

impl From<SettingError> for ClaimError {
    fn from(error: SettingError) -> Self {
        Self::Acquire(error.into())
    }
}

/// The reason why a message was not processed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError<E> {
    /// The message could not be claimed: too few nodes answered or may vote, its id or the settings cannot be
    /// used, or its id was used with another payload.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Another worker was still handling the message when the time limit of the call had passed
    /// ([`Claims::process_or_wait`](super::Claims::process_or_wait)).
    #[error("the message {id:?} is still being handled after {waited:?}, by {}", .holder.as_ref().map_or("another worker".to_owned(), named))]
    StillInProgress {
        /// The message's id.
        id: Arc<str>,
        /// The time that the caller was willing to wait.
        waited: Duration,
        /// The worker that holds the message, if a majority names the same one.
        holder: Option<Owner>,
    },
    /// The message has been given up. Only [`Claims::process_or_wait`](super::Claims::process_or_wait)
    /// returns this error.
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
    NotRecorded(ClaimError),
}

/// Returns the name of the worker that is the holder, for an error message.
fn named(holder: &Owner) -> String {
    crate::plain::plain(holder.worker(), 200)
}
