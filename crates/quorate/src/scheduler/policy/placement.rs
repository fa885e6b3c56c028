use serde::{Deserialize, Serialize};
use std::fmt;

/// The workers that may run a job's ticks.
///
/// In both cases the leader plans the ticks. So the rules for misfires and overlap apply to the runs of all
/// workers, and so do pauses, cancellations and requests. If the placement of a job changes, the job's ticks
/// count from that moment: as after a change of the schedule, no earlier tick gets a catch-up run. A run that
/// is already open to workers stays open, even if the placement has changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Placement {
    /// Only the leader runs the ticks.
    #[default]
    Leader,
    /// Any worker that [runs](crate::scheduler::Scheduler::run) a scheduler with the job may run the ticks,
    /// including the leader. The leader *assigns* each run to the worker with the fewest runs. If the overlap rule
    /// permits it, the leader does so two TTLs before the tick, but at most 30 s before.
    ///
    /// If a worker does not start a run within a second after it is due, because the worker has crashed or is
    /// stuck, another worker gets the run. If a worker crashes after it has started a run, the run is lost, or is
    /// assigned again, once the worker's session has ended, at most one TTL later
    /// ([`Delivery`](crate::scheduler::Delivery)). A cancellation reaches the worker within about a second.
    /// Without a leader, workers still start the runs that they have, and get no others. The state of a run
    /// ([`RunContext::set_state`](crate::scheduler::RunContext::set_state)), its output and its last error
    /// together are limited to 1 KiB.
    AnyWorker,
    /// Each tick runs once on every worker that lives at that time, and has the job and its
    /// [labels](crate::scheduler::Job::on_workers_with). At the tick, the leader *hands it out*: for each of these workers
    /// there is a job `JOB@WORKER`, which follows this one. That job has the rules for runs, and an entry of its own in the
    /// history for each run; this one has the schedule. While this job is paused, no tick is handed out; runs that were handed
    /// out go on. A request to run or to cancel it applies to all workers. `JOB@WORKER` can be paused, resumed, run and
    /// cancelled by itself; its pause ends with its worker, and a back-fill is made of single workers.
    ///
    /// A worker that begins after the tick does not run it, and a worker that the leader has not noticed yet does not
    /// either: it notices a worker within about a second. Without such a worker, the tick waits, and is skipped after
    /// its misfire window. A run begins within about a second after its tick. Each worker needs a name of its own.
    EveryWorker,
}

impl Placement {
    /// Returns whether workers beside the leader execute the runs.
    pub(in crate::scheduler) fn needs_workers(self) -> bool {
        self != Self::Leader
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Leader => "leader",
            Self::AnyWorker => "any-worker",
            Self::EveryWorker => "every-worker",
        })
    }
}
