use crate::scheduler::registry::JobRegistry;
use crate::{election::Term, ledger::Ledger};
use std::time::Duration;

/// The settings with which the leader works during one term.
pub(in crate::scheduler) struct Leading {
    pub(in crate::scheduler) registry: JobRegistry,
    pub(in crate::scheduler) ledger: Ledger,
    pub(in crate::scheduler) term: Term,
    /// The TTL of the lease, and so the time for which a crashed leader blocks the other workers. The leader
    /// opens a run to workers two TTLs ahead of its tick, but at most 30 s.
    pub(in crate::scheduler) ttl: Duration,
    /// The largest number of runs that the leader executes at once.
    pub(in crate::scheduler) max_running: usize,
    /// The time within which a cancelled run must end.
    pub(in crate::scheduler) grace: Duration,
}
