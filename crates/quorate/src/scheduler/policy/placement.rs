use std::fmt;

/// Where a job's ticks run.
///
/// The leader plans the ticks of both: misfires, overlap, pauses, cancellations and requests hold across all workers. A job that
/// changes its placement counts anew from that moment, as with another schedule: nothing from before is made up. A run that
/// is open to workers ends as such, whatever the placement is by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// On the leader.
    #[default]
    Leader,
    /// On any worker that [runs](super::super::Scheduler::run) a scheduler with the job, whether it leads or not. The leader
    /// *opens* a run in its ledger, where the overlap rule permits two TTLs before the tick, and a worker takes it. A worker
    /// that crashes keeps its run until the TTL is over. A cancellation reaches the worker within about a second. Without a leader no further
    /// run is opened. What a run leaves ([`RunContext::set_state`](super::super::RunContext::set_state), its output and its last error)
    /// is limited to 1 KiB together.
    AnyWorker,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Leader => "leader",
            Self::AnyWorker => "any-worker",
        })
    }
}
