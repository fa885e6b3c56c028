use crate::{
    lease::{AcquireError, LeaseLost},
    node::{DoneRecord, Owner},
    round::Report,
};

/// Why a claim could not be completed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompleteError {
    /// The result is too long to keep.
    #[error("the result has {length} bytes, at most {most} are kept; keep it elsewhere, and its name here")]
    TooLong {
        /// How long it is.
        length: usize,
        /// How long it may be.
        most: usize,
    },
    /// Someone else holds the message by now: the claim was lost before it was completed.
    #[error("the message is now held by {}", .holder.worker())]
    TakenOver {
        /// Who.
        holder: Owner,
    },
    /// A later claim was made, and has ended: abandoned or expired.
    #[error("a later claim was made on the message meanwhile; it may be handled again")]
    Superseded,
    /// A later claim has completed it.
    #[error("a later claim, token {}, has completed the message", .0.token)]
    AlreadyDone(DoneRecord),
    /// Too few nodes recorded it. It may be handled again once the claim has expired.
    #[error("the done record did not reach a majority: {0}")]
    NoMajority(Report),
}

/// Why a message was not processed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError<E> {
    /// There was no claim to be had: too few nodes, or a name that cannot be used.
    #[error(transparent)]
    Claim(#[from] AcquireError),
    /// The handler failed. The message has been abandoned, and may be claimed again at once.
    #[error("the handler failed: {0}")]
    Handler(E),
    /// The claim was lost while the handler ran, which has been dropped.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// The handler succeeded, but that could not be recorded.
    #[error("handled, but not recorded as done: {0}")]
    Complete(#[from] CompleteError),
}
