use std::fmt;

/// Where a job's ticks run.
///
/// A job that changes its placement counts anew from that moment, as with another schedule: nothing from before is made
/// up, but for what stands as started under the leader, which is owed. The two keep their ticks in two ledgers, and know
/// nothing of each other's: **while workers of both placements run, a tick may run once under each**, also at most once.
/// Where that must not be, stop the old workers before the new ones come, or give the job another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// On the leader.
    #[default]
    Leader,
    /// On whichever worker that [runs](super::super::Scheduler::run) a scheduler with the job claims the tick first, whether
    /// it leads or not. A worker runs one tick of the job at a time, unless its overlap rule is to allow more; others
    /// take those that come due meanwhile, so that two may run side by side. A pause or a cancellation takes a second or so
    /// to be noticed everywhere; what somebody asks for (a trigger, a back-fill) the leader runs; and a run leaves nothing
    /// to the next ([`Tick::set_state`](super::super::Tick::set_state) is an error).
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
