use crate::{
    config::SettingError,
    node::{NameError, Resource},
    vote::{NodeOutcome, Report},
};
use std::sync::Arc;

/// Why there is no lease. Contention within a wait is an outcome of `try_acquire`, and an error only where
/// `acquire` was told how long to wait.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The name cannot be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A setting cannot be used.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// Someone else held it for as long as we waited.
    #[error("{resource} was not free in time: {report}")]
    Contended {
        /// What was asked for.
        resource: Resource,
        /// The last round.
        report: Report,
    },
    /// Too few nodes answered.
    #[error("no quorum for {resource}: {report}")]
    Unreachable {
        /// What was asked for.
        resource: Resource,
        /// The last round.
        report: Report,
    },
    /// Too few of the nodes that answered may vote.
    #[error("no trusted quorum for {resource}: {report}")]
    Untrusted {
        /// What was asked for.
        resource: Resource,
        /// The last round.
        report: Report,
    },
    /// The quorum has been closed.
    #[error("the quorum is closed")]
    Closed,
}

impl AcquireError {
    /// Files a lost round under what kept it from being won.
    pub(crate) fn lost(resource: Resource, contended: bool, report: Report) -> Self {
        let untrusted = report.count(|outcome| matches!(outcome, NodeOutcome::Untrusted(_)));
        let silent = report.count(|o| matches!(o, NodeOutcome::Unreachable(_) | NodeOutcome::Pending));
        match (contended, untrusted > 0 && untrusted >= silent) {
            (true, _) => Self::Contended { resource, report },
            (false, true) => Self::Untrusted { resource, report },
            (false, false) => Self::Unreachable { resource, report },
        }
    }

    /// Someone else held it for as long as we waited.
    pub fn is_contended(&self) -> bool {
        matches!(self, Self::Contended { .. })
    }

    /// Too few nodes answered.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Too few of the nodes that answered may vote.
    pub fn is_untrusted(&self) -> bool {
        matches!(self, Self::Untrusted { .. })
    }

    /// Whether only an operator, or other code, can fix it: trying again will not help.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Name(_) | Self::Setting(_) | Self::Closed => true,
            Self::Contended { .. } => false,
            Self::Unreachable { report, .. } | Self::Untrusted { report, .. } => report.is_permanent(),
        }
    }

    /// The kind of the error, for a log that reports each kind once.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Name(_) => "name",
            Self::Setting(_) => "setting",
            Self::Contended { .. } => "contended",
            Self::Unreachable { .. } => "unreachable",
            Self::Untrusted { .. } => "untrusted",
            Self::Closed => "closed",
        }
    }

    /// What each node said, where a round was run.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Contended { report, .. }
            | Self::Unreachable { report, .. }
            | Self::Untrusted { report, .. } => Some(report),
            _ => None,
        }
    }
}

/// The lease is no longer ours: do not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is no longer held")]
pub struct LeaseLost;

/// An extension that was asked for did not reach a majority. The lease stands until its deadline, and the
/// keeper goes on trying.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// It had ended before.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// Too few nodes extended; or none was asked, since the lease's `renew_while` says no.
    #[error("the extension did not reach a majority: {0}")]
    NoMajority(Report),
}

/// A writer's lease did not become a reader's. It is over all the same.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DowngradeError {
    /// It had ended before.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// Too few nodes made it a reader's.
    #[error("the lease is over, and did not become a reader's: {0}")]
    NoMajority(Report),
    /// The quorum has been closed.
    #[error("the quorum is closed")]
    Closed,
}

/// The lease is over, but fewer than a majority of nodes confirmed it in time: the next holder may have to
/// wait for the TTL.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the lease is over, but its release did not reach a majority in time: {report}")]
pub struct ReleaseError {
    /// What each node said.
    pub report: Arc<Report>,
}
