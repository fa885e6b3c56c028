use crate::scheduler::job::request_id::RequestId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The cause of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RunCause {
    /// The tick was due, and the leader planned it in time.
    Scheduled,
    /// The run is the catch-up run of a tick that was missed or interrupted before.
    CatchUp,
    /// An operator or a program requested one run now.
    Triggered {
        /// The request.
        id: RequestId,
    },
    /// An operator or a program requested the runs of a span of time.
    Backfilled {
        /// The request.
        id: RequestId,
    },
}

impl RunCause {
    /// Returns the request that caused the run. Returns `None` if the run is that of a tick.
    pub const fn request(self) -> Option<RequestId> {
        match self {
            Self::Scheduled | Self::CatchUp => None,
            Self::Triggered { id } | Self::Backfilled { id } => Some(id),
        }
    }
}

impl fmt::Display for RunCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Scheduled => "scheduled",
            Self::CatchUp => "catch-up",
            Self::Triggered { .. } => "triggered",
            Self::Backfilled { .. } => "backfilled",
        })
    }
}
