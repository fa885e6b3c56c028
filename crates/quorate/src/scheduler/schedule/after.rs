use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// The ends of another job's runs that a schedule follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AfterEnd {
    /// The run succeeded.
    Success,
    /// The run failed, timed out or was lost.
    Failure,
    /// The run has ended in any way, also by a cancellation. A tick that was skipped has no end.
    End,
}

/// A schedule whose ticks are the ends of another job's runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::scheduler) struct After {
    pub(in crate::scheduler) job: Arc<str>,
    pub(in crate::scheduler) on: AfterEnd,
}

impl AfterEnd {
    /// All ends.
    pub const ALL: [Self; 3] = [Self::Success, Self::Failure, Self::End];

    /// Returns the name that files and JSON use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::End => "end",
        }
    }
}

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after each {} of {:?}", self.on.as_str(), self.job)
    }
}
