use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, Payload, RequestId, RunCause},
        policy::Placement,
        store::RunRecord,
    },
};
use std::sync::Arc;

/// A run that waits to be started or opened. If an earlier leader started or opened the run, `seen` is the
/// run's record.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scheduler) struct PendingRun {
    pub(in crate::scheduler) tick: WallTime,
    pub(in crate::scheduler) cause: RunCause,
    /// The key of the run's record in the ledger.
    pub(in crate::scheduler) key: Arc<str>,
    /// The earliest time at which a record of the run may exist.
    pub(in crate::scheduler) at: WallTime,
    /// The time before which no worker starts the run: its tick, delayed by the jitter.
    pub(in crate::scheduler) not_before: WallTime,
    /// The record of the run that an earlier leader wrote, or this one before an interruption. `None` if there is no
    /// record.
    pub(in crate::scheduler) seen: Option<RunRecord>,
    /// True if the run has no record, but may have been started before the ledger was founded.
    pub(in crate::scheduler) unknown: bool,
    /// The number of times that the run was interrupted in this term.
    pub(in crate::scheduler) interruptions: u32,
    /// The payload of the request, in place of the job's.
    pub(in crate::scheduler) payload: Option<Payload>,
}

impl PendingRun {
    /// Creates the run of a tick from the record that the ledger has, which has no end.
    pub(in crate::scheduler) fn recorded(key: Arc<str>, tick: WallTime, record: RunRecord) -> Self {
        let (cause, not_before) = match &record {
            RunRecord::Open(open) => (open.cause, open.not_before),
            _ => (RunCause::CatchUp, tick),
        };
        let at = record.at();
        Self {
            tick,
            cause,
            key,
            at,
            not_before,
            seen: Some(record),
            unknown: false,
            interruptions: 0,
            payload: None,
        }
    }

    /// Returns whether the run was or may have been started before. The leader does not replace such a run by a
    /// later tick.
    pub(in crate::scheduler) fn is_unfinished(&self) -> bool {
        self.seen.is_some() || self.unknown
    }

    /// Returns the concurrency key that the run has until it ends. A run that an earlier leader has opened keeps its key.
    pub(in crate::scheduler) fn uses(&self, job: &Job) -> Option<Arc<str>> {
        if let Some(RunRecord::Open(open)) = &self.seen {
            return open.uses.clone();
        }
        let payload = self.payload.as_ref().or(job.payload.as_ref()).map(Payload::bytes);
        job.rules.concurrency.as_ref().map(|of| of.key_of(payload))
    }

    pub(in crate::scheduler) fn request(&self) -> Option<RequestId> {
        self.cause.request()
    }

    /// Returns whether an earlier leader has opened the run. A worker may have started such a run, so the run can
    /// be ended only through the nodes (rule R7 of `docs/design/scheduler.md`).
    pub(in crate::scheduler) fn is_open(&self) -> bool {
        matches!(self.seen, Some(RunRecord::Open(_)))
    }

    /// Returns whether the run is executed by a worker that takes it: the run is already open, or the job is
    /// placed on any worker.
    pub(in crate::scheduler) fn is_for_workers(&self, job: &Job) -> bool {
        job.rules.placement == Placement::AnyWorker || self.is_open()
    }
}
