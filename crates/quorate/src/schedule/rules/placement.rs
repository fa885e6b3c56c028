use std::fmt;

/// Where a job's ticks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// On the leader.
    #[default]
    Leader,
    /// On whichever worker that [runs](super::super::Scheduler::run) a scheduler with the job claims the tick first, whether
    /// it leads or not. A worker runs one tick of the job at a time, unless its overlap rule is to allow more; others
    /// take those that come due meanwhile, so that two may run side by side. A pause takes a second or so to be noticed
    /// everywhere; such a run can be neither triggered nor cancelled from outside, but ends with its worker or its
    /// timeout; and what a run leaves with [`Tick::set_state`](super::super::Tick::set_state) is not kept.
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
