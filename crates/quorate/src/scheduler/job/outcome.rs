use serde::{Deserialize, Serialize};
use std::fmt;

/// The outcome of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RunOutcome {
    /// The run succeeded.
    Done,
    /// The last attempt failed.
    Failed,
    /// The last attempt took longer than the job's timeout.
    TimedOut,
    /// The run was cancelled: at a step-down, because of a later tick, on request, or because its job was
    /// removed before the run started. The entry's reason says which of these applies.
    Cancelled,
    /// The tick was skipped, because an earlier run of the job was still active, or because a later tick
    /// replaced this tick.
    SkippedOverlap,
    /// The tick was skipped, because no worker ran it in time, or because the job's schedule or placement
    /// changed while the tick waited.
    SkippedMisfire,
    /// The tick was skipped, because the job was paused.
    SkippedPaused,
    /// The tick was skipped, because the group was frozen.
    SkippedFrozen,
    /// The run was or may have been started, and its end is unknown.
    Lost,
}

impl RunOutcome {
    /// All outcomes, in the order in which they are declared.
    pub const ALL: [Self; 9] = [
        Self::Done,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
        Self::SkippedOverlap,
        Self::SkippedMisfire,
        Self::SkippedPaused,
        Self::SkippedFrozen,
        Self::Lost,
    ];

    /// Returns whether the tick was left out without a run.
    pub const fn is_skipped(self) -> bool {
        matches!(
            self,
            Self::SkippedOverlap | Self::SkippedMisfire | Self::SkippedPaused | Self::SkippedFrozen
        )
    }

    /// Returns the name of the outcome in JSON, in log events and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::TimedOut => "timed-out",
            Self::Cancelled => "cancelled",
            Self::SkippedOverlap => "skipped-overlap",
            Self::SkippedMisfire => "skipped-misfire",
            Self::SkippedPaused => "skipped-paused",
            Self::SkippedFrozen => "skipped-frozen",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
