use std::fmt;

/// The workers that may run a job's ticks.
///
/// The leader plans the ticks in both cases. So the rules for misfires and overlap, and all pauses,
/// cancellations and requests, apply to the runs of all workers. If the placement of a job changes, its ticks
/// count from that moment, as with another schedule: no earlier tick gets a catch-up run. A run that is already
/// open to workers stays open to them, even if the placement has changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// Only the leader.
    #[default]
    Leader,
    /// Any worker that [runs](crate::scheduler::Scheduler::run) a scheduler with the job, including the
    /// leader. The leader *opens* a run in its ledger, two TTLs before the tick (at most 30 s) if the overlap
    /// rule permits it. One of the workers takes the run. If a worker crashes while it tries to take the run,
    /// another worker can take the run after the TTL. If a worker crashes after it has taken the run, the run
    /// is lost, or is opened again ([`Delivery`](crate::scheduler::Delivery)). A cancellation reaches the
    /// worker within about a second. Without a leader, no further run is opened. The state of a run
    /// ([`RunContext::set_state`](crate::scheduler::RunContext::set_state)), its output and its last error
    /// are limited to 1 KiB together.
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
