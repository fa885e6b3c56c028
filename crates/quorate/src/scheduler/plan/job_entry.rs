//! The leader's data of one job: its plan, its row in the ledger, and its saved state. Also the data that the
//! leader keeps of a job that it has removed.

use crate::scheduler::{
    plan::{
        job_plan::JobPlan,
        known_jobs::{stored_row, stored_state},
        pending_run::{RunToClose, SkippedTick},
        record_life::window,
        takeover::{due_after, unfinished},
    },
    store::saved_state::SavedState,
    store::snapshot::LedgerSnapshot,
};
use crate::{
    env::WallTime,
    scheduler::{Job, JobRow, Paused, Placement, RequestId},
};
use std::sync::Arc;

/// The leader's data of one of its jobs.
#[derive(Debug)]
pub(in crate::scheduler) struct JobEntry {
    plan: JobPlan,
    row: JobRow,
    state: SavedState,
}

/// A job that the leader has looked up in the ledger and is about to take over.
pub(in crate::scheduler) struct FoundJob {
    pub(in crate::scheduler) entry: JobEntry,
    /// The runs of earlier terms that this leader only closes, without executing them.
    pub(in crate::scheduler) closes: Vec<RunToClose>,
    /// True if the ledger has no row of the job, so that the job is new to the group.
    pub(in crate::scheduler) is_new: bool,
    /// True if the leader must write the job's row, because the row is new or differs from the stored one.
    pub(in crate::scheduler) write: bool,
}

/// The consequences of the replacement of a job by a changed one.
pub(in crate::scheduler) struct Replaced {
    pub(in crate::scheduler) before: Arc<Job>,
    /// True if the leader must write the job's row.
    pub(in crate::scheduler) write: bool,
    /// True if the schedule or the placement has changed, so that the job's earlier ticks no longer count.
    pub(in crate::scheduler) moved: bool,
    pub(in crate::scheduler) skipped: Vec<SkippedTick>,
}

/// A job that the leader removed in this term. The snapshot of the ledger still has the job's records from
/// before the removal, so the leader uses this data instead if the job is added again.
#[derive(Debug)]
pub(in crate::scheduler) struct RemovedJob {
    row: JobRow,
    /// The time up to which ticks were planned. If the job is added again, no earlier tick is planned, even if
    /// the clock has stepped back.
    planned: WallTime,
    /// The job's state, shared with a run that may still be active.
    state: SavedState,
    /// The time when the job's row was closed.
    closed: WallTime,
}

impl JobEntry {
    pub(in crate::scheduler) fn plan(&self) -> &JobPlan {
        &self.plan
    }

    pub(in crate::scheduler) fn plan_mut(&mut self) -> &mut JobPlan {
        &mut self.plan
    }

    pub(in crate::scheduler) fn job(&self) -> &Arc<Job> {
        self.plan.job()
    }

    pub(in crate::scheduler) fn row(&self) -> &JobRow {
        &self.row
    }

    pub(in crate::scheduler) fn state(&self) -> &SavedState {
        &self.state
    }

    /// Returns the data that the leader keeps in case the job is added again. The data contain the closed row
    /// that the leader writes to the ledger at the removal.
    pub(in crate::scheduler) fn remove(&self, now: WallTime) -> RemovedJob {
        let row = JobRow { rev: self.row.rev + 1, ..self.row.clone() };
        RemovedJob { row, planned: self.plan.planned(), state: self.state.clone(), closed: now }
    }

    /// Handles the end of a run. Returns true if the job's schedule counts from the ends of runs. The row must
    /// then be written, because it stores this end.
    pub(in crate::scheduler) fn on_end(&mut self, now: WallTime) -> bool {
        let counts = self.job().schedule.is_after_end();
        if counts {
            self.plan.begin_after_end(now, Some(now));
            self.row.ended = Some(now);
            self.row.rev += 1;
        }
        counts
    }

    /// Replaces the job by `job`. Returns `None` if `job` is the very object that this entry already has, so
    /// that nothing changes.
    pub(in crate::scheduler) fn replace(&mut self, job: Arc<Job>, now: WallTime) -> Option<Replaced> {
        let before = Arc::clone(self.job());
        if Arc::ptr_eq(&before, &job) {
            return None;
        }
        let moved = before.schedule != job.schedule || before.placement != job.placement;
        let write = !before.is_like(&job);
        if write {
            if moved {
                self.row.since = now.max(self.plan.planned());
                self.row.ended = None;
            }
            self.row = described(&self.row, &job);
        }
        let skipped = self.plan.replace(job, now);
        Some(Replaced { before, write, moved, skipped })
    }

    /// Pauses the job on a request, and returns the ticks that are skipped because they waited. Returns `None`
    /// if the job is already paused, or if its row names this request as carried out.
    pub(in crate::scheduler) fn pause(
        &mut self,
        request: RequestId,
        by: &Arc<str>,
        now: WallTime,
    ) -> Option<Vec<SkippedTick>> {
        if self.row.requests.contains(&request) || self.row.paused.is_some() {
            return None;
        }
        // The pause begins just before the first due tick that is not planned yet. So the history entry of the
        // pause includes this tick.
        self.row.paused = Some(Paused { by: Arc::clone(by), at: self.plan.decided(now) });
        self.row.changed_by(request);
        Some(self.plan.pause())
    }

    /// Resumes the job on a request. Returns the pause that ended, and the span of the ticks that were due
    /// during the pause. Returns `None` if the job is not paused, or if its row names this request as carried
    /// out.
    pub(in crate::scheduler) fn resume(
        &mut self,
        request: RequestId,
        now: WallTime,
    ) -> Option<(Paused, Option<(WallTime, WallTime)>)> {
        if self.row.requests.contains(&request) {
            return None;
        }
        let paused = self.row.paused.take()?;
        // The new `since` in the row prevents later leaders from running catch-ups for the ticks of the pause.
        self.row.since = self.row.since.max(now).max(self.plan.planned());
        self.row.changed_by(request);
        let span = self.plan.resume(paused.at, now);
        Some((paused, span))
    }
}

impl RemovedJob {
    /// Returns the data of a job that the ledger has and that has ended: no worker has had the job for the
    /// ledger's retention.
    pub(in crate::scheduler) fn of_ended(sealed: &LedgerSnapshot, job: &str, now: WallTime) -> Self {
        let row = stored_row(sealed, job).map(|(row, _)| row).unwrap_or_default();
        let state = SavedState::new(job, stored_state(sealed, job));
        Self { row: JobRow { rev: row.rev + 1, ..row }, planned: now, state, closed: now }
    }

    pub(in crate::scheduler) fn row(&self) -> &JobRow {
        &self.row
    }

    pub(in crate::scheduler) fn state(&self) -> &SavedState {
        &self.state
    }

    /// Returns whether the nodes have pruned all records of the removed job, when they have pruned the records
    /// before `mark`. Then the leader can drop this data.
    pub(in crate::scheduler) fn is_forgotten(&self, mark: WallTime) -> bool {
        self.closed.max(self.planned) < mark
    }
}

/// Looks a job up in the ledger, to take it over or to create it. `marked` is the time up to which the previous
/// leader decided on all ticks. If this leader removed the job earlier in its term, `removed` has the job's
/// data from then.
pub(in crate::scheduler) fn find(
    job: Arc<Job>,
    sealed: &LedgerSnapshot,
    marked: Option<WallTime>,
    removed: Option<RemovedJob>,
    now: WallTime,
) -> FoundJob {
    let again = removed.is_some();
    let (row, mut write, now, state) = match removed {
        Some(RemovedJob { row, planned, state, .. }) => {
            let now = now.max(planned);
            // Both rows have the term of this leader. The new row has the higher revision, so it counts, and
            // not the closed row.
            (Some(JobRow { since: now, ended: None, rev: row.rev + 1, ..row }), true, now, state)
        }
        None => {
            let state = SavedState::new(&job.name, stored_state(sealed, &job.name));
            let (row, everywhere) = stored_row(sealed, &job.name).unzip();
            (row, !everywhere.unwrap_or_default(), now, state)
        }
    };
    let is_new = row.is_none();
    let mut moved = false;
    let mut row = row.unwrap_or_else(|| JobRow { since: sealed.begins(now), ..JobRow::default() });
    let changed = described(&row, &job);
    if changed != (JobRow { rev: changed.rev, ..row.clone() }) {
        // Older versions of this library wrote rows without a schedule. Such a row does not show a change, so
        // the schedule counts as unchanged.
        let other_times = !row.schedule.is_empty() && row.schedule != changed.schedule;
        // A change of the placement is handled like a change of the schedule. The records of the old placement
        // do not show which ticks have run under the new one.
        let other_placement = !is_new && row.any_worker != changed.any_worker;
        moved = other_times || other_placement;
        row = changed;
        if moved {
            // An earlier leader may have opened runs ahead of their ticks. The job's ticks count from after the
            // last such tick, so that no tick runs twice.
            let last = sealed.last_before(&job.name, WallTime::from_micros(u64::MAX));
            row.since = now.max(last.unwrap_or_default());
            row.ended = None;
        }
        write = true;
    }
    let (runs, closes) = if again { (Vec::new(), Vec::new()) } else { unfinished(&job, sealed) };
    let after = if moved {
        row.since
    } else if again {
        now
    } else {
        due_after(&job, sealed, row.since, marked, now)
    };
    let plan = JobPlan::new(job, after, runs, row.paused.is_some()).due_since(row.since, row.ended);
    FoundJob { entry: JobEntry { plan, row, state }, closes, is_new, write }
}

/// Returns `row` in its next revision, with the schedule and the rules of `job`.
fn described(row: &JobRow, job: &Job) -> JobRow {
    JobRow {
        rev: row.rev + 1,
        schedule: job.schedule.to_string().into(),
        rules: job.rules().into(),
        spec: job.schedule.spec(),
        any_worker: job.placement == Placement::AnyWorker,
        window: Some(window(job)),
        ..row.clone()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        ledger::Answered,
        node::{FencingToken, Record},
        scheduler::{Delivery, Misfire, Paused, every, store::FOR_EVER, store::saved_state::StateRow},
    };
    use {
        super::*,
        crate::scheduler::store::snapshot::tests::{SECOND, at, node, tick_record},
    };

    fn job(seconds: u32) -> Arc<Job> {
        let job = Job::new("j", every(seconds * SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        Arc::new(job.misfire(Misfire::run_all(100 * SECOND)))
    }

    fn row(term: u64, row: &JobRow) -> (Arc<str>, Record) {
        let value = row.to_value();
        (
            JobRow::key("j"),
            Record { at: FOR_EVER.as_micros(), term: FencingToken::new(term), last: false, value },
        )
    }

    /// Returns the row of a new job, as a leader writes it if it first had the job at `since`.
    fn written(job: &Arc<Job>, since: u64) -> JobRow {
        let new = find(Arc::clone(job), &sealed(vec![node(at(0), vec![]); 2]), None, None, at(since));
        assert!(new.is_new && new.write);
        new.entry.row
    }

    fn sealed(answers: Vec<Answered>) -> LedgerSnapshot {
        LedgerSnapshot::new(answers, 2, SECOND)
    }

    fn nodes(rows: &[Option<(u64, JobRow)>]) -> LedgerSnapshot {
        let records = |found: &Option<(u64, JobRow)>| found.iter().map(|(term, is)| row(*term, is)).collect();
        sealed(rows.iter().map(|found| node(at(0), records(found))).collect())
    }

    #[test]
    fn an_unknown_job_begins_now_and_a_row_that_all_nodes_have_is_not_written_again() {
        let new = written(&job(1), 9);
        assert_eq!((new.since, new.rev), (at(9), 1));
        let all = nodes(&[Some((1, new.clone())), Some((4, new.clone())), Some((1, new.clone()))]);
        let found = find(job(1), &all, None, None, at(50));
        assert!(!found.is_new && !found.write, "whichever leader wrote it");
        assert_eq!(found.entry.row, new);
    }

    #[test]
    fn the_row_of_one_node_counts_and_is_written_to_the_others() {
        let found = find(job(1), &nodes(&[None, Some((1, written(&job(1), 3))), None]), None, None, at(9));
        assert!(!found.is_new && found.write);
        assert_eq!(found.entry.row.since, at(3));
    }

    #[test]
    fn of_several_rows_the_highest_term_counts_with_the_earliest_beginning() {
        let paused =
            JobRow { paused: Some(Paused { by: "me".into(), at: at(20) }), rev: 2, ..written(&job(1), 7) };
        let rows = [Some((5, written(&job(1), 7))), Some((2, written(&job(1), 3))), Some((6, paused))];
        let found = find(job(1), &nodes(&rows), None, None, at(30));
        assert_eq!(found.entry.row.since, at(3));
        assert!(found.entry.plan().is_paused() && found.write && found.entry.plan().next().is_none());
    }

    #[test]
    fn rows_of_older_versions_count_as_the_same_schedule() {
        let value: Arc<str> = at(3).as_micros().to_string().into();
        let old = Record { at: FOR_EVER.as_micros(), term: FencingToken::new(1), last: false, value };
        let all = sealed(vec![node(at(0), vec![(JobRow::key("j"), old)]); 3]);
        let found = find(job(1), &all, None, None, at(9));
        assert!(!found.is_new && found.write, "it is written as rows are now");
        assert_eq!((found.entry.row.since, &*found.entry.row.schedule), (at(3), "every 1s"));
    }

    #[test]
    fn another_schedule_counts_from_now_on_and_unfinished_runs_still_run() {
        let old = written(&job(1), 3);
        let mut records = vec![row(1, &old), tick_record(11, 1, false), tick_record(10, 1, true)];
        records.sort_by(|a, b| a.0.cmp(&b.0));
        let all = sealed(vec![node(at(0), records); 2]);
        let mut moved = find(job(7), &all, None, None, at(13));
        assert_eq!((moved.entry.row.since, moved.entry.row.rev), (at(13), 2));
        let (start, _) = moved.entry.plan_mut().start(at(13));
        assert_eq!(start.map(|start| start.tick), Some(at(11)), "at least once");
        let next = moved.entry.plan().next().unwrap();
        assert!(next > at(13) && next <= at(20), "no tick from before is caught up on");
        let once = Arc::new((*job(7)).clone().delivery(Delivery::AtMostOnce));
        let mut moved = find(once, &all, None, None, at(13));
        assert_eq!(moved.closes.iter().map(|close| close.run.tick).collect::<Vec<_>>(), [at(11)]);
        assert!(moved.entry.plan_mut().start(at(13)).0.is_none());
    }

    #[test]
    fn a_row_of_an_older_version_gets_its_window() {
        let old = JobRow { window: None, ..written(&job(1), 3) };
        let found = find(job(1), &nodes(&[Some((1, old.clone())), Some((1, old))]), None, None, at(9));
        assert!(found.write && found.entry.row.since == at(3));
        assert_eq!(found.entry.row.window, Some(100 * SECOND));
    }

    #[test]
    fn a_removed_job_starts_afresh() {
        let old = written(&job(1), 3);
        let (key, record) = row(1, &old);
        let closed = sealed(vec![node(at(0), vec![(key, Record { at: at(5).as_micros(), ..record })]); 2]);
        let found = find(job(1), &closed, None, None, at(9));
        assert!(found.is_new);
        assert_eq!(found.entry.row.since, at(9));
        let again = find(
            job(1),
            &nodes(&[Some((1, old.clone())), Some((1, old.clone()))]),
            None,
            removed(old, at(5)),
            at(9),
        );
        assert!(!again.is_new && again.write);
        assert_eq!(again.entry.row.since, at(9), "in the same term");
    }

    #[test]
    fn a_node_that_was_away_does_not_restore_a_removed_job() {
        let old = JobRow { paused: Some(Paused { by: "me".into(), at: at(4) }), ..written(&job(1), 3) };
        let closed = |term, rev| {
            let (key, record) = row(term, &JobRow { rev, ..old.clone() });
            vec![(key, Record { at: at(5).as_micros(), ..record })]
        };
        let away = || node(at(0), vec![row(1, &old)]);
        let found = find(job(1), &sealed(vec![node(at(0), closed(2, 2)), away()]), None, None, at(9));
        assert!(found.is_new && found.entry.row.paused.is_none() && found.entry.row.since == at(9));
        // The job was removed and then added again. One node still has the row from before the removal. The
        // earlier `since` of this row must not count, or ticks from before the removal would run.
        let back = JobRow { since: at(8), rev: 3, paused: None, ..old.clone() };
        let nodes = vec![node(at(0), vec![row(2, &back)]), node(at(0), closed(2, 2)), away()];
        let found = find(job(1), &sealed(nodes), None, None, at(9));
        assert!(!found.is_new && found.entry.row.since == at(8) && found.entry.row.paused.is_none());
    }

    fn removed(row: JobRow, planned: WallTime) -> Option<RemovedJob> {
        let state = SavedState::new("j", StateRow::default());
        Some(RemovedJob { row, planned, state, closed: planned })
    }

    #[test]
    fn a_job_that_comes_back_in_one_term_begins_after_the_ticks_that_were_planned() {
        let old = JobRow { ended: Some(at(4)), ..written(&job(1), 3) };
        let (rev, none) = (old.rev, nodes(&[None, None]));
        let again = find(job(1), &none, None, removed(old.clone(), at(12)), at(9));
        assert_eq!(again.entry.plan().next(), Some(at(13)), "though the clock has stepped back");
        assert!(again.entry.row.rev > rev && again.entry.row.since == at(12));
        let chain =
            Job::new("j", crate::scheduler::delay(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        let again = find(Arc::new(chain), &none, None, removed(old, at(12)), at(9));
        assert!(again.entry.plan().next() >= Some(at(12)), "{:?}", again.entry.plan().next());
    }

    #[test]
    fn another_placement_counts_from_now_on_and_unfinished_runs_still_run() {
        let any_worker = |job: Arc<Job>| Arc::new((*job).clone().placement(Placement::AnyWorker));
        let old = written(&any_worker(job(1)), 3);
        assert!(old.any_worker && old.since == at(3));
        let all = nodes(&[Some((1, old.clone())), Some((1, old.clone()))]);
        let moved = find(job(1), &all, Some(at(12)), None, at(13));
        assert_eq!(moved.entry.row.since, at(13));
        assert_eq!(
            moved.entry.plan().next(),
            Some(at(14)),
            "ticks of the other placement are not caught up on"
        );
        let same = find(any_worker(job(1)), &all, Some(at(12)), None, at(13));
        assert_eq!(same.entry.row.since, at(3));
        // An unfinished run is still executed if the placement changes and changes back, even if an earlier
        // leader has already written the new placement.
        for row_before in [written(&job(1), 3), old] {
            let records = vec![row(1, &row_before), tick_record(11, 1, false)];
            let all = sealed(vec![node(at(0), records); 2]);
            let mut moved = find(any_worker(job(1)), &all, None, None, at(13));
            assert_eq!(
                moved.entry.plan_mut().start(at(13)).0.map(|start| start.tick),
                Some(at(11)),
                "at least once"
            );
            let once = Arc::new((*any_worker(job(1))).clone().delivery(Delivery::AtMostOnce));
            assert_eq!(find(once, &all, None, None, at(13)).closes.len(), 1);
        }
    }
}
