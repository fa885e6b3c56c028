//! The takeover of one job by a new leader: what the leader finds of the job in the ledger, and what it keeps of a job
//! that it has removed in its term.

use super::LedJob;
use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, RunOutcome},
        policy::Delivery,
        run::pending_run::PendingRun,
        store::{
            HistoryEntry, JobRow, RecordError, RunKey,
            record_life::LATE_AFTER,
            recorded_ends::{RecordedEnd, recorded_ends},
            snapshot::LedgerSnapshot,
        },
    },
};
use std::{sync::Arc, time::Duration};

/// A job that the leader has looked up in the ledger and is about to take over.
pub(in crate::scheduler) struct FoundJob {
    pub(in crate::scheduler) led: LedJob,
    /// The runs of earlier terms that this leader only closes, without executing them.
    pub(in crate::scheduler) lost: Vec<PendingRun>,
    /// True if the ledger has neither a row nor a definition of the job. The job is then new to the group.
    pub(in crate::scheduler) is_new: bool,
    /// True if the leader must write the job's row, because the ledger has no such row, or has a different one.
    pub(in crate::scheduler) write: bool,
    /// The record window that the row names. Zero for a new job.
    pub(in crate::scheduler) window: Duration,
    /// The reason why the stored row cannot be read.
    pub(in crate::scheduler) unreadable: Option<RecordError>,
}

/// A job that the leader removed in this term. The snapshot of the ledger still has its row and the records of its runs from before
/// the removal. So if the job is added again, the leader uses this data instead of the row.
#[derive(Debug)]
pub(in crate::scheduler) struct RemovedJob {
    /// The value of the job's row, without what the job itself gives when it is added again. A reload may remove many jobs,
    /// and the leader keeps this data for the retention of the ledger. The text takes a tenth of the row's memory.
    row: Arc<str>,
    /// The time up to which ticks were planned. If the job is added again, no earlier tick is planned, even if
    /// the clock has stepped back.
    planned: WallTime,
    /// The time when the job's row was removed.
    closed: WallTime,
    /// The state that its runs have saved, once its row was removed too.
    state: Option<Arc<str>>,
}

impl LedJob {
    /// Returns the data that the leader keeps in case the job is added again.
    pub(in crate::scheduler) fn remove(&self, now: WallTime) -> RemovedJob {
        RemovedJob::new(self.row.clone(), self.planned, now)
    }
}

impl RemovedJob {
    fn new(row: JobRow, planned: WallTime, closed: WallTime) -> Self {
        let row = JobRow { rules: "".into(), spec: None, ..row }.to_value();
        Self { row, planned, closed, state: None }
    }

    /// Returns the data of a job that has ended, from the ledger's records of the job. A job has ended when its
    /// data was not refreshed by any worker during the ledger's retention.
    pub(in crate::scheduler) fn of_ended(sealed: &LedgerSnapshot, job: &str, now: WallTime) -> Self {
        let row = sealed.job_row(job).ok().flatten().unwrap_or_default();
        Self::new(row, now, now)
    }

    /// Keeps the state of the job, whose row in the ledger is removed.
    pub(in crate::scheduler) fn keep_state(&mut self, text: Arc<str>) {
        self.state = Some(text);
    }

    /// Takes the state of the job, if its row was removed. The ledger then needs the row again.
    pub(in crate::scheduler) fn take_state(&mut self) -> Option<Arc<str>> {
        self.state.take()
    }

    /// Returns whether all records of the removed job are gone once the nodes have pruned the records before
    /// `mark`. The leader can then drop this data.
    pub(in crate::scheduler) fn is_forgotten(&self, mark: WallTime) -> bool {
        self.closed.max(self.planned) < mark
    }
}

/// Looks a job up in the ledger. The leader then takes the job over, or creates it if the ledger does not have
/// it. `marked` is the time up to which the previous leader made decisions on all ticks. If this leader removed
/// the job earlier in its term, `removed` has the job's data from that time.
pub(in crate::scheduler) fn find(
    job: Arc<Job>,
    sealed: &LedgerSnapshot,
    marked: Option<WallTime>,
    removed: Option<RemovedJob>,
    now: WallTime,
) -> FoundJob {
    let again = removed.is_some();
    let mut unreadable = None;
    let (row, mut write, now) = match removed {
        Some(RemovedJob { row, planned, .. }) => {
            let now = job.begins(now).max(planned);
            let row = JobRow::parse(&row).ok();
            (row.map(|row| JobRow { ended: None, since: now, ..row }), true, now)
        }
        None => {
            let row = sealed.job_row(&job.name).unwrap_or_else(|why| {
                unreadable = Some(why);
                None
            });
            let row = row.or_else(|| job.defined_at().map(|since| JobRow::of_stored(&job, since)));
            // A row that cannot be read is written again.
            (row, unreadable.is_some(), now)
        }
    };
    let is_new = row.is_none();
    let window = row.as_ref().and_then(|row| row.window).unwrap_or_default();
    let mut moved = false;
    let mut row =
        row.unwrap_or_else(|| JobRow { since: sealed.begins(job.begins(now)), ..JobRow::default() });
    let changed = row.described_by(&job, now);
    if changed != row {
        let other_times = !is_new && (row.schedule != changed.schedule || row.spec != changed.spec);
        // A change of the placement is handled like a change of the schedule. The records of the old placement
        // do not show which ticks have run under the new one.
        let other_placement = !is_new && row.placement != changed.placement;
        moved = other_times || other_placement;
        row = changed;
        if moved {
            // An earlier leader may have opened runs before their ticks were due. Only ticks after the last of
            // these ticks count, so that no tick runs twice.
            let last = sealed.last_before(&job.name, WallTime::from_micros(u64::MAX));
            row.since = job.begins(now).max(last.unwrap_or_default());
            row.ended = None;
        }
        write = true;
    }
    if !again {
        write |= note_recorded(&mut row, &job, sealed);
        write |= count_recorded(&mut row, &job, sealed);
    }
    let (runs, lost) = if again { (Vec::new(), Vec::new()) } else { unfinished(&job, sealed) };
    let after = if moved {
        row.since
    } else if again {
        now
    } else {
        due_after(&job, sealed, row.since, marked, now)
    };
    FoundJob { led: LedJob::new(job, row, after, runs), lost, is_new, write, window, unreadable }
}

/// Notes the ends that the ledger has and the row may not show, because the previous leader ended before it
/// wrote the row. Returns whether the row has changed.
fn note_recorded(row: &mut JobRow, job: &Job, sealed: &LedgerSnapshot) -> bool {
    let alerts = job.on_alert.is_some();
    let mut changed = false;
    if let Some(health) = row.health.as_mut().filter(|_| !alerts) {
        changed = !health.alerts.is_empty();
        health.alerts.clear();
    }
    if !alerts && job.rules.expect_within.is_none() && row.health.is_none() {
        return changed;
    }
    let ends: Vec<RecordedEnd> = recorded_ends(&job.name, sealed).collect();
    // A row without a condition does not say which ends it includes. Then only the last end counts for alerts,
    // so that nothing that is over is reported.
    let judges = |end: &HistoryEntry| {
        matches!(end.end, RunOutcome::Done | RunOutcome::Failed | RunOutcome::TimedOut | RunOutcome::Lost)
    };
    let last = ends.iter().map(|end| &end.entry).find(|end| judges(end)).map(|end| end.tick);
    let after = row.health.as_ref().map(|health| health.changed);
    for RecordedEnd { entry: end, at } in ends.iter().rev() {
        let is_new = after.map_or(last == Some(end.tick), |after| end.tick > after);
        if is_new {
            changed |= row.note_end(end, *at, alerts);
        } else if end.end == RunOutcome::Done {
            changed |= row.note_time_of_success(*at);
        }
    }
    changed
}

/// Counts the failed runs that the ledger has and the row may not include. Returns whether the row has changed.
fn count_recorded(row: &mut JobRow, job: &Job, sealed: &LedgerSnapshot) -> bool {
    if job.rules.pause_after_failures.is_none() {
        return false;
    }
    let ends: Vec<RecordedEnd> = recorded_ends(&job.name, sealed).collect();
    // Each end counts, so the loop must not stop at the first change.
    ends.iter().rev().filter(|end| row.count_recorded(&end.entry)).count() > 0
}

/// Finds the recorded runs of a job that have no recorded end. Returns the runs to start or continue, and the runs that are
/// lost.
pub(in crate::scheduler) fn unfinished(
    job: &Job,
    sealed: &LedgerSnapshot,
) -> (Vec<PendingRun>, Vec<PendingRun>) {
    let recorded = |(tick, record)| PendingRun::recorded(RunKey::new(&job.name, tick).key(), tick, record);
    let runs = sealed.unfinished(&job.name).map(recorded);
    runs.partition(|run| run.is_open() || job.rules.delivery == Delivery::AtLeastOnce)
}

/// Returns the time after which ticks are due for a leader that begins at `now`.
///
/// Ticks within the misfire window are due. Some earlier ticks are due too, so that the leader can report them
/// as missed. Such a tick must be later than `marked`, the time up to which the previous leader made decisions
/// on all ticks. It must also be later than the last tick before the window that has a record. No tick before
/// `since` is due.
pub(super) fn due_after(
    job: &Job,
    sealed: &LedgerSnapshot,
    since: WallTime,
    marked: Option<WallTime>,
    now: WallTime,
) -> WallTime {
    // Under every misfire rule, a tick that is at most `LATE_AFTER` late is on time. So the window is at least
    // that long.
    let window = now - job.misfire_rule().within().max(LATE_AFTER) - job.rules.jitter;
    let before = marked.filter(|marked| *marked < window);
    let ran = before.and_then(|_| sealed.last_before(&job.name, window));
    since.max(before.unwrap_or(window)).max(ran.unwrap_or_default())
}

#[cfg(test)]
mod row_tests;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::FencingToken,
        scheduler::{
            job::{RequestId, RunCause},
            policy::{Delivery, Misfire, Placement},
            schedule::Schedule,
            store::{
                OpenRun, RunRecord,
                snapshot::tests::{SECOND, at, sealed, snapshot},
            },
        },
    };

    fn job(delivery: Delivery) -> Job {
        let job = Job::new("j", Schedule::every(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        job.delivery(delivery).misfire(Misfire::run_all(10 * SECOND))
    }

    /// Returns the snapshot of a ledger with an open record of the tick 12.
    fn opened(cause: RunCause) -> LedgerSnapshot {
        let open = OpenRun {
            generation: 2,
            at: at(11),
            not_before: at(13),
            take_by: at(22),
            delivery: Delivery::AtMostOnce,
            cause,
            term: FencingToken::new(3),
            labels: Default::default(),
            uses: None,
            state: None,
            cancel: None,
            payload: None,
            job: None,
            token: FencingToken::new(1),
            to: None,
        };
        snapshot([(RunKey::new("j", at(12)).key(), RunRecord::Open(open).to_value())])
    }

    #[test]
    fn an_open_run_is_adopted_under_every_delivery_rule_and_placement_with_its_cause_and_its_times() {
        for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
            for placement in [Placement::Leader, Placement::AnyWorker] {
                let job = job(delivery).placement(placement);
                let (runs, lost) = unfinished(&job, &opened(RunCause::Scheduled));
                let [run] = &runs[..] else { panic!("{runs:?}") };
                assert!(lost.is_empty() && run.is_for_workers(&job) && run.is_unfinished());
                assert_eq!((run.tick, run.at, run.not_before), (at(12), at(11), at(13)));
                assert_eq!((run.cause, run.unknown), (RunCause::Scheduled, false));
                assert_eq!(run.seen.as_ref().map(|seen| seen.term().get()), Some(3));
            }
        }
    }

    #[test]
    fn an_adopted_run_is_watched_however_late_the_leader_begins() {
        let job = job(Delivery::AtMostOnce).placement(Placement::AnyWorker);
        let (runs, _) = unfinished(&job, &opened(RunCause::Scheduled));
        let mut plan = LedJob::new(Arc::new(job), JobRow::default(), at(400), runs);
        let (run, skipped) = plan.start(at(500));
        assert_eq!((run.map(|run| run.tick), skipped), (Some(at(12)), vec![]), "a worker may execute it");
    }

    #[test]
    fn a_run_that_the_leader_itself_started_is_for_workers_only_under_that_placement() {
        let (runs, _) = unfinished(&job(Delivery::AtLeastOnce), &sealed(&[12], &[]));
        assert!(!runs[0].is_for_workers(&job(Delivery::AtLeastOnce)));
        assert!(runs[0].is_for_workers(&job(Delivery::AtLeastOnce).placement(Placement::AnyWorker)));
        let requested = RunCause::Triggered { id: RequestId::from_u128(7) };
        let (runs, _) = unfinished(&job(Delivery::AtMostOnce), &opened(requested));
        assert_eq!(runs[0].request(), Some(RequestId::from_u128(7)));
    }

    #[test]
    fn a_leader_goes_back_by_its_window_or_to_the_mark_of_the_last_leader() {
        let sealed = sealed(&[], &[100]);
        let once = job(Delivery::AtMostOnce);
        let from = |marked: Option<u64>| due_after(&once, &sealed, at(20), marked.map(at), at(500));
        assert_eq!(from(None), at(490));
        assert_eq!(from(Some(495)), at(490), "a tick that was decided on may not have run");
        assert_eq!(from(Some(300)), at(300), "no leader ran anything since, which the history says");
        assert_eq!(from(Some(95)), at(100), "that tick has run");
        assert_eq!(
            due_after(&once, &sealed, at(495), Some(at(300)), at(500)),
            at(495),
            "not before the job existed"
        );
    }
}
