//! The leader's data of one job: the job's plan, its row in the ledger, and its saved state. Also the data that
//! the leader keeps after it has removed a job.

use crate::{
    env::WallTime,
    scheduler::{
        alert::JobAlert,
        job::{Job, RequestId, RunOutcome},
        plan::{
            active_run::SkippedTick,
            job_plan::{JobPlan, is_before},
            known_jobs::{stored_row, stored_state},
            reporter::{FROZEN, PAUSED},
            takeover::{due_after, unfinished},
        },
        policy::Placement,
        run::pending_run::PendingRun,
        store::{
            HistoryEntry, JobRow, Paused, RecordError, record_life, recorded_ends::recorded_entries,
            saved_state::SavedState, snapshot::LedgerSnapshot,
        },
    },
};
use std::{sync::Arc, time::Duration};

/// The leader's data of one of its jobs.
#[derive(Debug)]
pub(in crate::scheduler) struct JobEntry {
    plan: JobPlan,
    row: JobRow,
    /// The freeze of the group, until this job has ended it.
    frozen: Option<Paused>,
    state: SavedState,
    /// The deadline for a success that has passed, if the leader has noted that.
    overdue: Option<WallTime>,
}

/// A job that the leader has looked up in the ledger and is about to take over.
pub(in crate::scheduler) struct FoundJob {
    pub(in crate::scheduler) entry: JobEntry,
    /// The runs of earlier terms that this leader only closes, without executing them.
    pub(in crate::scheduler) lost: Vec<PendingRun>,
    /// True if the ledger has no row of the job. The job is then new to the group.
    pub(in crate::scheduler) is_new: bool,
    /// True if the leader must write the job's row, because the ledger has no such row, or has a different one.
    pub(in crate::scheduler) write: bool,
    pub(in crate::scheduler) stored: StoredInfo,
}

/// The facts about a job's stored row that concern the whole ledger.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct StoredInfo {
    /// The record window that the row names. Zero without a row.
    pub(in crate::scheduler) window: Duration,
    /// The reason why the row cannot be read.
    pub(in crate::scheduler) unreadable: Option<RecordError>,
}

/// A pause that has ended.
#[derive(Debug, PartialEq)]
pub(in crate::scheduler) struct EndedPause {
    pub(in crate::scheduler) paused: Paused,
    /// True if the pause was a freeze of the group.
    pub(in crate::scheduler) is_freeze: bool,
    /// The first and the last tick that the pause left out.
    pub(in crate::scheduler) span: Option<(WallTime, WallTime)>,
}

/// The changes that follow from the replacement of a job.
pub(in crate::scheduler) struct Replaced {
    pub(in crate::scheduler) before: Arc<Job>,
    /// True if the leader must write the job's row.
    pub(in crate::scheduler) write: bool,
    /// True if the schedule or the placement has changed. The job's earlier ticks then do not run any more.
    pub(in crate::scheduler) moved: bool,
    pub(in crate::scheduler) skipped: Vec<SkippedTick>,
}

/// A job that the leader removed in this term. The snapshot of the ledger still has the records from before the
/// removal. So if the job is added again, the leader uses this data instead of the snapshot.
#[derive(Debug)]
pub(in crate::scheduler) struct RemovedJob {
    /// The value of the job's row, without what the job itself gives when it is added again. A reload may remove many jobs,
    /// and the leader keeps this data for the retention of the ledger. The text takes a tenth of the row's memory.
    row: Arc<str>,
    /// The time up to which ticks were planned. If the job is added again, no earlier tick is planned, even if
    /// the clock has stepped back.
    planned: WallTime,
    /// The job's state, shared with a run that may still be active.
    state: SavedState,
    /// The time when the job's row was removed.
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

    /// Returns the data that the leader keeps in case the job is added again. The data include the row that the
    /// leader writes to the ledger as closed.
    pub(in crate::scheduler) fn remove(&self, now: WallTime) -> RemovedJob {
        RemovedJob::new(self.row.clone(), self.plan.planned(), self.state.clone(), now)
    }

    /// Handles the end of a run. If the job's schedule counts from the ends of runs, stores this end in the
    /// row, and returns true. The leader must then write the row.
    pub(in crate::scheduler) fn on_end(&mut self, now: WallTime) -> bool {
        let counts = self.job().schedule.is_after_end();
        if counts {
            self.plan.begin_after_end(now, Some(now));
            self.row.ended = Some(now);
        }
        counts
    }

    /// Replaces the job by `job`. Returns `None` if `job` is the same object as the present job, because then
    /// nothing changes.
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
            self.row = described(&self.row, &job, now);
        }
        let skipped = self.plan.replace(job, now);
        Some(Replaced { before, write, moved, skipped })
    }

    /// Returns whether the job is paused, or its group is frozen.
    pub(in crate::scheduler) fn is_paused(&self) -> bool {
        self.row.paused.is_some() || self.frozen.is_some()
    }

    /// Returns the outcome and its reason if a pause of the job or a freeze of the group leaves the tick out.
    pub(in crate::scheduler) fn left_out_at(&self, tick: WallTime) -> Option<(RunOutcome, &'static str)> {
        let covers = |paused: &Option<Paused>| {
            let paused = paused.as_ref().filter(|_| self.plan.is_paused());
            paused.is_some_and(|paused| is_before(tick, paused.until))
        };
        let own = covers(&self.row.paused).then_some((RunOutcome::SkippedPaused, PAUSED));
        own.or_else(|| covers(&self.frozen).then_some((RunOutcome::SkippedFrozen, FROZEN)))
    }

    /// Returns the time at which the planner next has to handle the job: ticks are due, a pause ends, or the
    /// time for a success has passed.
    pub(in crate::scheduler) fn wake(&self) -> Option<WallTime> {
        let ends = [&self.row.paused, &self.frozen].into_iter().flatten().filter_map(|paused| paused.until);
        let deadline = self.row.deadline().filter(|_| self.frozen.is_none() && !self.is_overdue());
        self.plan.wake().into_iter().chain(ends).chain(deadline).min()
    }

    /// Returns whether the leader has noted that the job is overdue, and it still is. A frozen job is not.
    pub(in crate::scheduler) fn is_overdue(&self) -> bool {
        self.frozen.is_none() && self.overdue.is_some() && self.overdue == self.row.deadline()
    }

    /// Returns whether the job is overdue at `now`, and the leader has not noted that.
    pub(in crate::scheduler) fn becomes_overdue(&self, now: WallTime) -> bool {
        self.frozen.is_none() && !self.is_overdue() && self.row.overdue_since(now).is_some()
    }

    /// Notes that the job is overdue, if it is. Returns true if the row has changed, because there is an alert.
    pub(in crate::scheduler) fn note_overdue(&mut self, now: WallTime) -> bool {
        let Some(since) = self.row.overdue_since(now).filter(|_| self.frozen.is_none()) else { return false };
        let job = Arc::clone(self.job());
        if self.overdue.replace(since) != Some(since) {
            tracing::warn!(
                job = &*job.name,
                since = job.schedule.format(since),
                "overdue: it has not succeeded in time"
            );
        }
        job.on_alert.is_some() && self.row.note_overdue(&job.name, now)
    }

    /// Notes the end of a tick, `at`. Returns whether the row has changed.
    pub(in crate::scheduler) fn note_end(&mut self, end: &HistoryEntry, at: WallTime) -> bool {
        let alerts = self.job().on_alert.is_some();
        self.row.note_end(end, at, alerts)
    }

    /// Removes an alert that was reported. Returns whether the row has changed.
    pub(in crate::scheduler) fn alert_reported(&mut self, alert: &JobAlert) -> bool {
        self.row.alert_reported(alert)
    }

    /// Returns the alerts that are not reported yet.
    pub(in crate::scheduler) fn alerts(&self) -> &[JobAlert] {
        self.row.health.as_ref().map_or(&[], |health| &health.alerts)
    }

    /// Pauses the job on a request, from `paused.at` on, and returns the skipped ticks. If the job is already
    /// paused, the pause continues, and a new reason or a new end replaces the present reason and end. Returns
    /// `None` if nothing changes, or if the row shows that this request was carried out before.
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
        // If a tick is due and not planned yet, the pause begins just before the first such tick. So this tick
        // is skipped, like the ticks that follow.
        let until = paused.until;
        self.row.paused = Some(Paused { at: self.pause_begins(paused.at), ..paused });
        self.row.changed_by(request);
        Some(self.plan.pause(until))
    }

    /// Returns the time from which a pause that is requested at `now` leaves ticks out. During a freeze, or during a
    /// pause of the job, the other one leaves out the earlier ticks.
    fn pause_begins(&self, now: WallTime) -> WallTime {
        if self.is_paused() { now } else { self.plan.decided(now) }
    }

    /// Freezes the job with its group. Returns the skipped ticks. If the job is frozen, the new reason and the new end
    /// replace the old ones.
    pub(in crate::scheduler) fn freeze(&mut self, freeze: Paused) -> Vec<SkippedTick> {
        let until = freeze.until;
        let at = self.frozen.as_ref().map_or_else(|| self.pause_begins(freeze.at), |before| before.at);
        self.frozen = Some(Paused { at, ..freeze });
        let skipped = self.plan.pause(until).into_iter();
        let frozen = |skipped| match skipped {
            SkippedTick::Paused(run) => SkippedTick::Frozen(run),
            other => other,
        };
        skipped.map(frozen).collect()
    }

    /// Freezes a job that is being taken over, if the freeze of the group has not ended or no leader has ended it for
    /// this job. Earlier leaders have decided on the ticks up to `decided`, if that is known.
    pub(in crate::scheduler) fn take_freeze(&mut self, freeze: &Paused, decided: Option<WallTime>) {
        let last = freeze.until.map(|until| until - Duration::from_micros(1));
        if last.is_some_and(|last| last <= self.row.since) {
            return;
        }
        // The freeze also leaves out the ticks before it on which no leader has decided.
        let first = decided.filter(|_| !self.is_paused()).and_then(|decided| {
            let schedule = &self.job().schedule;
            schedule.next_after(decided.max(self.plan.planned())).filter(|tick| *tick <= freeze.at)
        });
        let at = first.map_or(freeze.at, |first| first - Duration::from_micros(1));
        self.frozen = Some(Paused { at, ..freeze.clone() });
        self.plan.hold();
    }

    /// Replaces the end of the freeze, if the job is frozen.
    pub(in crate::scheduler) fn change_freeze(&mut self, freeze: &Paused) {
        self.frozen.iter_mut().for_each(|frozen| frozen.until = freeze.until);
    }

    /// Ends a pause or a freeze if its end has come. Ticks from that end on are due, also those that have passed since:
    /// the misfire rule decides on them. Returns `None` if neither ends. If both end, the call ends the one that ended
    /// first, and the next call the other one.
    pub(in crate::scheduler) fn end_pause(&mut self, now: WallTime) -> Option<EndedPause> {
        let ended = |paused: &Option<Paused>| paused.as_ref().and_then(|paused| paused.ended(now));
        let (own, freeze) = (ended(&self.row.paused), ended(&self.frozen));
        let is_freeze = freeze.is_some_and(|freeze| own.is_none_or(|own| freeze <= own));
        let until = if is_freeze { freeze } else { own }?;
        let paused = if is_freeze { self.frozen.take() } else { self.row.paused.take() }?;
        let last = (until - Duration::from_micros(1)).max(paused.at);
        let span = self.leave(paused.at, last);
        Some(EndedPause { paused, is_freeze, span })
    }

    /// Leaves a pause, whose ticks were those from `began` to `last`. Returns the span of the ticks that it left out.
    /// If the other pause began earlier, it leaves out these ticks too, and the span is returned when it ends.
    fn leave(&mut self, began: WallTime, last: WallTime) -> Option<(WallTime, WallTime)> {
        let other = self.row.paused.as_ref().or(self.frozen.as_ref());
        if other.is_some_and(|other| other.at <= began) {
            return None;
        }
        let is_paused = other.is_some();
        // Because of the new `since` in the row, later leaders run no catch-ups for the ticks of the pause.
        self.row.since = self.row.since.max(last).max(self.plan.planned());
        if is_paused { self.plan.resume_into(began, last) } else { self.plan.resume(began, last) }
    }

    /// Resumes the job on a request. Returns the pause that ended, and the span of the ticks that were skipped
    /// because of it. Returns `None` if the job is not paused, or if the row shows that this request was
    /// carried out before.
    pub(in crate::scheduler) fn resume(&mut self, request: RequestId, now: WallTime) -> Option<EndedPause> {
        if self.row.requests.contains(&request) {
            return None;
        }
        let paused = self.row.paused.take()?;
        let span = self.leave(paused.at, now);
        self.row.changed_by(request);
        Some(EndedPause { paused, is_freeze: false, span })
    }
}

impl RemovedJob {
    fn new(row: JobRow, planned: WallTime, state: SavedState, closed: WallTime) -> Self {
        let row = JobRow { rules: "".into(), spec: None, ..row }.to_value();
        Self { row, planned, state, closed }
    }

    /// Returns the data of a job that has ended, from the ledger's records of the job. A job has ended when its
    /// data was not refreshed by any worker during the ledger's retention.
    pub(in crate::scheduler) fn of_ended(sealed: &LedgerSnapshot, job: &str, now: WallTime) -> Self {
        let row = stored_row(sealed, job).row.unwrap_or_default();
        let state = SavedState::new(job, stored_state(sealed, job));
        Self::new(row, now, state, now)
    }

    pub(in crate::scheduler) fn state(&self) -> &SavedState {
        &self.state
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
    let (row, mut write, now, state) = match removed {
        Some(RemovedJob { row, planned, state, .. }) => {
            let now = now.max(planned);
            let row = JobRow::parse(&row).ok();
            (row.map(|row| JobRow { ended: None, since: now, ..row }), true, now, state)
        }
        None => {
            let state = SavedState::new(&job.name, stored_state(sealed, &job.name));
            let stored = stored_row(sealed, &job.name);
            unreadable = stored.unreadable;
            (stored.row, false, now, state)
        }
    };
    let is_new = row.is_none();
    let window = row.as_ref().and_then(|row| row.window).unwrap_or_default();
    let mut moved = false;
    let mut row = row.unwrap_or_else(|| JobRow { since: sealed.begins(now), ..JobRow::default() });
    let changed = described(&row, &job, now);
    if changed != row {
        let other_times = !is_new && row.schedule != changed.schedule;
        // A change of the placement is handled like a change of the schedule. The records of the old placement
        // do not show which ticks have run under the new one.
        let other_placement = !is_new && row.any_worker != changed.any_worker;
        moved = other_times || other_placement;
        row = changed;
        if moved {
            // An earlier leader may have opened runs before their ticks were due. Only ticks after the last of
            // these ticks count, so that no tick runs twice.
            let last = sealed.last_before(&job.name, WallTime::from_micros(u64::MAX));
            row.since = now.max(last.unwrap_or_default());
            row.ended = None;
        }
        write = true;
    }
    if !again {
        write |= note_recorded(&mut row, &job, sealed);
    }
    let (runs, lost) = if again { (Vec::new(), Vec::new()) } else { unfinished(&job, sealed) };
    let after = if moved {
        row.since
    } else if again {
        now
    } else {
        due_after(&job, sealed, row.since, marked, now)
    };
    let plan = JobPlan::new(job, after, runs, row.paused.is_some()).due_since(row.since, row.ended);
    let entry = JobEntry { plan, row, frozen: None, state, overdue: None };
    FoundJob { entry, lost, is_new, write, stored: StoredInfo { window, unreadable } }
}

/// Returns `row` with the schedule and the rules of `job`.
fn described(row: &JobRow, job: &Job, now: WallTime) -> JobRow {
    let expected = job.expect_within.is_some();
    JobRow {
        schedule: job.schedule.to_string().into(),
        rules: job.rules().into(),
        spec: job.schedule.spec(),
        any_worker: job.placement == Placement::AnyWorker,
        window: Some(record_life::window(job)),
        expect_within: job.expect_within,
        expected_from: expected.then(|| row.expected_from.unwrap_or(now)),
        succeeded: row.succeeded.filter(|_| expected),
        ..row.clone()
    }
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
    if !alerts && job.expect_within.is_none() && row.health.is_none() {
        return changed;
    }
    let ends = recorded_entries(&job.name, sealed);
    // A row without a condition does not say which ends it includes. Then only the last end counts for alerts,
    // so that nothing that is over is reported.
    let judges = |end: &HistoryEntry| {
        matches!(end.end, RunOutcome::Done | RunOutcome::Failed | RunOutcome::TimedOut | RunOutcome::Lost)
    };
    let last = ends.iter().rev().map(|(end, _)| end).find(|end| judges(end)).map(|end| end.tick);
    let after = row.health.as_ref().map(|health| health.changed);
    for (end, at) in &ends {
        let is_new = after.map_or(last == Some(end.tick), |after| end.tick > after);
        if is_new {
            changed |= row.note_end(end, *at, alerts);
        } else if end.end == RunOutcome::Done {
            changed |= row.note_time_of_success(*at);
        }
    }
    changed
}

#[cfg(test)]
#[path = "job_entry_tests.rs"]
mod tests;
