use std::fmt;

/// Where a job's ticks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// On the leader.
    #[default]
    Leader,
    /// On whichever worker claims the tick first.
    Spread,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Leader => "leader",
            Self::Spread => "spread",
        })
    }
}
