use std::fmt;

/// The workers that may run a job's ticks.
///
/// In both cases the leader plans the ticks. So the rules for misfires and overlap apply to the runs of all
/// workers, and so do pauses, cancellations and requests. If the placement of a job changes, the job's ticks
/// count from that moment: as after a change of the schedule, no earlier tick gets a catch-up run. A run that
/// is already open to workers stays open, even if the placement has changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// Only the leader runs the ticks.
    #[default]
    Leader,
    /// Any worker that [runs](crate::scheduler::Scheduler::run) a scheduler with the job may run the ticks,
    /// including the leader. The leader *opens* a run in its ledger, and one of the workers takes the run. If
    /// the overlap rule permits it, the leader opens the run two TTLs before the tick, but at most 30 s before.
    ///
    /// If a worker crashes while it tries to take the run, another worker can take the run after the TTL. If a
    /// worker crashes after it has taken the run, the run is lost, or is opened again
    /// ([`Delivery`](crate::scheduler::Delivery)). A cancellation reaches the worker within about a second.
    /// Without a leader, no further run is opened. The state of a run
    /// ([`RunContext::set_state`](crate::scheduler::RunContext::set_state)), its output and its last error
    /// together are limited to 1 KiB.
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
