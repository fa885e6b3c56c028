use std::fmt;

/// What happens where a tick comes due while an earlier run of the same job goes on.
///
/// Ticks that are made up (missed, or started and not ended) and runs that somebody asked for are never skipped
/// for it: they wait, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Overlap {
    /// It does not run.
    Skip,
    /// It waits for the end of that run. Of several that wait the latest runs, unless the misfire rule is
    /// run-all: then each does.
    #[default]
    Queue,
    /// That run is told to stop, and ends as cancelled; then the tick runs. What does not stop within the
    /// step-down grace is dropped.
    CancelOld,
    /// It runs beside it.
    Allow,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Skip => "skip",
            Self::Queue => "queue",
            Self::CancelOld => "cancel-old",
            Self::Allow => "allow",
        })
    }
}
