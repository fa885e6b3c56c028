use crate::{
    config::SettingError,
    node::Resource,
    vote::{NoMajority, NodeOutcome},
};

/// The reason why a lock was not acquired. For a call that waits, such as `acquire`, a lock that another
/// client holds is an error if the lock is still held when the time limit of the call has passed. For
/// `try_acquire`, it is not an error, but an outcome:
/// [`TryAcquire::Contended`](super::TryAcquire::Contended).
///
/// ```
/// use quorate::{AcquireError, Quorum, node::MemoryNode};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// let _lease = quorum.lock("invoice-42").acquire().await?;
/// match quorum.lock("invoice-42").wait(Duration::from_millis(50)).acquire().await {
///     Err(AcquireError::Contended { report, .. }) => println!("{report}"),
///     Err(error) if error.is_permanent() => return Err(error.into()), // an operator has to fix it
///     Err(error) => println!("try again: {error}"),
///     Ok(_) => unreachable!("it is held"),
/// }
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// A setting, or the name, cannot be used.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// Another client held the lock, or competed for it, as long as the call waited.
    #[error("timed out waiting for {resource}: {report}")]
    Contended {
        /// The lock.
        resource: Resource,
        /// The outcome of each node in the last round.
        report: NoMajority,
    },
    /// Too few nodes answered.
    #[error("no quorum for {resource}: {report}")]
    Unreachable {
        /// The lock.
        resource: Resource,
        /// The outcome of each node in the last round.
        report: NoMajority,
    },
    /// Too few of the nodes that answered may vote.
    #[error("no trusted quorum for {resource}: {report}")]
    Untrusted {
        /// The lock.
        resource: Resource,
        /// The outcome of each node in the last round.
        report: NoMajority,
    },
    /// The quorum has been closed.
    #[error("the quorum is closed")]
    Closed,
}

impl AcquireError {
    /// Returns the error of a lost round. Its kind depends on what prevented a majority: another holder
    /// (`contended` is true), nodes that may not vote, or nodes that did not answer.
    pub(crate) fn lost(resource: Resource, contended: bool, report: NoMajority) -> Self {
        let untrusted = report.count(|outcome| matches!(outcome, NodeOutcome::Untrusted(_)));
        let silent = report.count(|o| matches!(o, NodeOutcome::Unreachable(_) | NodeOutcome::Pending));
        match (contended, untrusted > 0 && untrusted >= silent) {
            (true, _) => Self::Contended { resource, report },
            (false, true) => Self::Untrusted { resource, report },
            (false, false) => Self::Unreachable { resource, report },
        }
    }

    /// Returns whether another client held the lock, or competed for it, as long as the call waited.
    pub fn is_contended(&self) -> bool {
        matches!(self, Self::Contended { .. })
    }

    /// Returns whether too few nodes answered.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Returns whether too few of the nodes that answered may vote.
    pub fn is_untrusted(&self) -> bool {
        matches!(self, Self::Untrusted { .. })
    }

    /// Returns whether another try is useless, because an operator must act, the code must change, or the
    /// quorum is closed.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Setting(_) | Self::Closed => true,
            Self::Contended { .. } => false,
            Self::Unreachable { report, .. } | Self::Untrusted { report, .. } => report.is_permanent(),
        }
    }

    /// Returns the kind of the error. `LogLimit` uses the kind to limit repeated log lines.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Setting(_) => "setting",
            Self::Contended { .. } => "contended",
            Self::Unreachable { .. } => "unreachable",
            Self::Untrusted { .. } => "untrusted",
            Self::Closed => "closed",
        }
    }

    /// Returns the outcome of each node. Returns `None` for an invalid setting or a closed quorum.
    pub fn report(&self) -> Option<&NoMajority> {
        match self {
            Self::Contended { report, .. }
            | Self::Unreachable { report, .. }
            | Self::Untrusted { report, .. } => Some(report),
            _ => None,
        }
    }
}

/// The error of an operation that needs a valid lease, once the lease has ended. The work under the lease
/// must write nothing more.
///
/// ```
/// use quorate::{Lease, LeaseLost, FencingToken};
///
/// fn write(lease: &Lease) -> Result<FencingToken, LeaseLost> {
///     let token = lease.fencing_token()?; // fails once the lease has ended
///     // … send the write with the token …
///     Ok(token)
/// }
/// assert_eq!(LeaseLost.to_string(), "the lease is no longer held");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is no longer held")]
pub struct LeaseLost;

/// The reason why a held lease was not extended, downgraded or transferred. Each error of a lock converts to it, so it
/// serves a function that acquires, uses and releases a lock:
///
/// ```
/// use quorate::{Quorum, lease::LeaseError, node::MemoryNode};
///
/// async fn write(quorum: &Quorum) -> Result<(), LeaseError> {
///     let lease = quorum.lock("invoice-42").acquire().await?;
///     println!("write under token {}", lease.fencing_token()?);
///     lease.release().await?;
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// # write(&quorum).await?;
/// # quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The lock was not acquired.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The lease had ended before the call.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// The name of the successor is not a valid worker name.
    #[error(transparent)]
    Successor(#[from] SettingError),
    /// Too few nodes extended the lease, turned it into a reader's lease, reserved the resource for the successor, or
    /// confirmed the release.
    #[error(transparent)]
    NoMajority(#[from] NoMajority),
    /// The quorum has been closed.
    #[error("the quorum is closed")]
    Closed,
}
