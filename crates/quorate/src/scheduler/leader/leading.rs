use crate::{
    election::Term,
    ledger::Ledger,
    scheduler::{
        control::{AuditEntry, AuditLog},
        registry::JobRegistry,
        store::{JobRequest, JobResponse},
    },
};
use std::time::Duration;

/// The settings with which the leader works during one term.
pub(in crate::scheduler) struct Leading {
    pub(in crate::scheduler) registry: JobRegistry,
    pub(in crate::scheduler) ledger: Ledger,
    pub(in crate::scheduler) term: Term,
    /// The TTL of the leader's lease. After a crash of the leader, no other worker can lead for up to this
    /// time. The leader opens a run to workers two TTLs before its tick, but at most 30 s before.
    pub(in crate::scheduler) ttl: Duration,
    /// The largest number of runs that the leader executes at once.
    pub(in crate::scheduler) max_running: usize,
    /// The time within which a run must end after it was cancelled.
    pub(in crate::scheduler) grace: Duration,
}

impl Leading {
    /// Writes an action of the leader itself, and its answer, to the audit list.
    pub(in crate::scheduler) fn audit(&self, (action, answer): (JobRequest, JobResponse)) {
        let entry = AuditEntry::new(&action, &self.term.quorum().config().worker, &answer);
        let ledger = self.ledger.clone();
        self.term.spawn(async move { AuditLog::new(&ledger).write(&entry).await });
    }
}
