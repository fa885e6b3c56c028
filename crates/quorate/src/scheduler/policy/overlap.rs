use serde::{Deserialize, Serialize};
use std::fmt;

/// The rule for a tick that is due while an earlier run of the same job is active.
///
/// The rule never skips two kinds of runs: requested runs, and runs that may have been started before and have
/// no recorded end. Such runs wait, except under [`Overlap::Allow`]. Under every rule, only one requested run of
/// a job is active at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Overlap {
    /// The tick does not run. Catch-up runs are the exception: they wait for one another, and do not make a tick be
    /// skipped. A tick that is due while a catch-up run is active waits for that run, and runs before the remaining
    /// catch-up runs. If several ticks wait in this way, only the latest of them runs.
    Skip,
    /// The tick waits for the end of the earlier run. If several ticks wait, only the latest of them runs. If
    /// the misfire rule is run-all, each of them runs.
    #[default]
    Queue,
    /// The earlier run is cancelled, then the tick runs. A run that does not stop within the step-down grace
    /// is dropped.
    CancelOld,
    /// The tick runs at the same time as the earlier run.
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
