//! The leader's data of one job: its plan, its row in the ledger, and its saved state. Also the data that the
//! leader keeps of a job that it has removed.

use crate::scheduler::{
    plan::{
        job_plan::{JobPlan, is_before},
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
use std::{sync::Arc, time::Duration};

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

/// A pause that has ended, and the first and the last tick that it left out.
pub(in crate::scheduler) type EndedPause = (Paused, Option<(WallTime, WallTime)>);

/// The changes that follow from the replacement of a job.
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

    /// Returns whether a pause of the job leaves the tick out.
    pub(in crate::scheduler) fn is_paused_at(&self, tick: WallTime) -> bool {
        let paused = self.row.paused.as_ref().filter(|_| self.plan.is_paused());
        paused.is_some_and(|paused| is_before(tick, paused.until))
    }

    /// Returns the time at which the job has work: ticks to decide on, or the end of a pause.
    pub(in crate::scheduler) fn wake(&self) -> Option<WallTime> {
        let end = self.row.paused.as_ref().and_then(|paused| paused.until);
        self.plan.wake().into_iter().chain(end).min()
    }

    /// Pauses the job on a request from `paused.at` on. Returns the skipped ticks. If the job is already
    /// paused, a new reason or a new end replaces the reason and the end of that pause. Returns `None` if the
    /// row already names this request, or nothing changes.
    pub(in crate::scheduler) fn pause(
        &mut self,
        request: RequestId,
        paused: Paused,
    ) -> Option<Vec<SkippedTick>> {
        if self.row.requests.contains(&request) {
            return None;
        }
        if let Some(before) = &mut self.row.paused {
            if paused.reason.is_none() && paused.until.is_none() {
                return None;
            }
            *before = Paused { at: before.at, ..paused };
            self.row.changed_by(request);
            return Some(Vec::new());
        }
        // The pause begins just before the first tick that is due and not planned yet. So this tick is
        // skipped together with the ticks that follow.
        let until = paused.until;
        self.row.paused = Some(Paused { at: self.plan.decided(paused.at), ..paused });
        self.row.changed_by(request);
        Some(self.plan.pause(until))
    }

    /// Ends the pause if its end has come. Ticks from that end on are due, also those that have passed since:
    /// the misfire rule decides on them. Returns `None` if no pause ends.
    pub(in crate::scheduler) fn end_pause(&mut self, now: WallTime) -> Option<EndedPause> {
        let until = self.row.paused.as_ref()?.ended(now)?;
        let paused = self.row.paused.take()?;
        let last = (until - Duration::from_micros(1)).max(paused.at);
        self.row.since = self.row.since.max(last).max(self.plan.planned());
        self.row.rev += 1;
        let span = self.plan.resume(paused.at, last);
        Some((paused, span))
    }

    /// Resumes the job on a request. Returns the pause that ended, and the span of the ticks that it left
    /// out. Returns `None` if the row already names this request, or the job is not paused.
    pub(in crate::scheduler) fn resume(&mut self, request: RequestId, now: WallTime) -> Option<EndedPause> {
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
#[path = "job_entry_tests.rs"]
mod tests;
