//! A job that the leader has: which of its ticks run, wait or are skipped, and its row in the ledger. All decisions depend
//! only on the adopted ledger, the events of the term, and the time.

use crate::{
    env::WallTime,
    node::FencingToken,
    scheduler::{
        alert::JobAlert,
        job::{Job, RequestId},
        plan::active_run::{ActiveRun, SkippedTick},
        policy::{Jitter, Placement},
        run::pending_run::PendingRun,
        store::{HistoryEntry, JobRow, Paused, RunRecord},
    },
};
use std::{
    cmp::Reverse,
    collections::{BTreeSet, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};

mod follow;
mod pause;
mod start;
mod takeover;
mod ticks;

pub(super) use pause::{EndedPause, is_before};
#[cfg(test)]
pub(super) use takeover::unfinished;
pub(super) use takeover::{FoundJob, RemovedJob, find};
pub(super) use ticks::DueDecisions;

/// The number of interruptions in one term after which a run still starts again at once. After each further
/// interruption, the run waits for a pause first.
const INTERRUPTED_MAX: u32 = 3;
/// The first and the longest pause of a run that was interrupted too often. Each further interruption doubles
/// the pause.
const POSTPONE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(600));

/// A job that the leader has.
#[derive(Debug)]
pub(in crate::scheduler) struct LedJob {
    job: Arc<Job>,
    row: JobRow,
    /// The freeze of the group, until this job has ended it.
    frozen: Option<Paused>,
    /// The deadline for a success that has passed, if the leader has noted that.
    overdue: Option<WallTime>,
    jitter: Jitter,
    /// All ticks up to this time have been planned.
    planned: WallTime,
    waiting: VecDeque<PendingRun>,
    /// The requested runs that wait to be started. Only one of them is active at a time. If ticks wait too,
    /// requested runs and ticks start alternately.
    requested: VecDeque<PendingRun>,
    /// The runs that were interrupted too often and wait for the end of a pause, each with the time of that
    /// end.
    postponed: Vec<(WallTime, PendingRun)>,
    /// This leader leaves some runs to the next leader, which decides on them. The records of these runs stay
    /// *started*, and the ledger must not prune them. This is the earliest time of these records.
    left_to_next: Option<WallTime>,
    /// True if the last started run was the run of a tick. The next run is then a requested run, if one waits.
    requested_next: bool,
    active: Vec<ActiveRun>,
    /// The time at which the run of the next tick is due: the tick plus its jitter.
    next: Option<WallTime>,
    /// The next tick, if the schedule counts from the ends of runs. `None` until the previous run has ended.
    after_end: Option<WallTime>,
    /// The leader opens a run to workers this long before the run's tick.
    ahead: Duration,
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

impl LedJob {
    /// Creates a job with the row that the ledger has. The ticks after `from` are not planned yet.
    /// `unfinished` are runs of earlier terms that must still be executed.
    fn new(job: Arc<Job>, row: JobRow, from: WallTime, mut unfinished: Vec<PendingRun>) -> Self {
        unfinished.sort_by_key(open_first);
        let (since, ended, jitter) = (row.since, row.ended, job.jitters());
        let mut led = Self {
            job,
            row,
            frozen: None,
            overdue: None,
            jitter,
            planned: from,
            waiting: unfinished.into(),
            requested: VecDeque::new(),
            postponed: Vec::new(),
            left_to_next: None,
            requested_next: false,
            active: Vec::new(),
            next: None,
            after_end: None,
            ahead: Duration::ZERO,
        };
        if !led.job.schedule.is_after_end() {
            led.next = led.next_due(led.job.schedule.next_after(from));
        }
        led.begin_after_end(since, ended);
        led
    }

    /// Sets how long before the run's tick the leader opens a run to workers.
    pub(in crate::scheduler) fn open_ahead_by(&mut self, ahead: Duration) {
        self.ahead = ahead;
    }

    pub(in crate::scheduler) fn job(&self) -> &Arc<Job> {
        &self.job
    }

    pub(in crate::scheduler) fn row(&self) -> &JobRow {
        &self.row
    }

    /// Returns the time when the run of the next tick is due.
    pub(in crate::scheduler) fn next(&self) -> Option<WallTime> {
        self.next
    }

    pub(in crate::scheduler) fn active(&self) -> &[ActiveRun] {
        &self.active
    }

    pub(in crate::scheduler) fn active_requests(&self) -> BTreeSet<RequestId> {
        self.active.iter().filter_map(ActiveRun::request).collect()
    }

    fn is_busy(&self) -> bool {
        !self.active.is_empty()
    }

    /// Returns the time at which the planner next has to handle the job: ticks are due, a pause ends, or the
    /// time for a success has passed. A stored single run that is over is handled at once: it is removed.
    pub(in crate::scheduler) fn wake(&self) -> Option<WallTime> {
        let ahead = if self.next_ahead().is_some() { self.ahead } else { Duration::ZERO };
        let next = self.next.map(|next| next - ahead);
        let postponed = self.postponed.iter().map(|(at, _)| *at);
        let ends = [&self.row.paused, &self.frozen].into_iter().flatten().filter_map(|paused| paused.until);
        let deadline = self.row.deadline().filter(|_| self.frozen.is_none() && !self.is_overdue());
        // One that runs on every worker is removed when its parts are over.
        let is_single = self.job.is_single_run() && self.job.rules.placement != Placement::EveryWorker;
        let over = (is_single && self.is_over()).then_some(self.row.since);
        next.into_iter().chain(postponed).chain(ends).chain(deadline).chain(over).min()
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
        let job = &self.job;
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
        let counted = self.job.rules.pause_after_failures.is_some() && self.row.count_end(end);
        self.row.note_end(end, at, self.job.on_alert.is_some()) || counted
    }

    /// Removes an alert that was reported. Returns whether the row has changed.
    pub(in crate::scheduler) fn alert_reported(&mut self, alert: &JobAlert) -> bool {
        self.row.alert_reported(alert)
    }

    /// Returns the alerts that are not reported yet.
    pub(in crate::scheduler) fn alerts(&self) -> &[JobAlert] {
        self.row.health.as_ref().map_or(&[], |health| &health.alerts)
    }

    /// Handles the end of a run. If the job's schedule counts from the ends of runs, stores this end in the
    /// row, and returns true. The leader must then write the row.
    pub(in crate::scheduler) fn on_end(&mut self, now: WallTime) -> bool {
        let counts = self.job.schedule.is_after_end();
        if counts {
            self.begin_after_end(now, Some(now));
            self.row.ended = Some(now);
        }
        counts
    }

    /// Replaces the job by a changed one. If the schedule or the placement has changed, only ticks after `now`
    /// run, and the waiting ticks are skipped. Unfinished runs are kept. Returns `None` if `job` is the same object as
    /// the present job, because then nothing changes.
    pub(in crate::scheduler) fn replace(&mut self, job: Arc<Job>, now: WallTime) -> Option<Replaced> {
        if Arc::ptr_eq(&self.job, &job) {
            return None;
        }
        let before = mem::replace(&mut self.job, job);
        let moved =
            before.schedule != self.job.schedule || before.rules.placement != self.job.rules.placement;
        let write = !before.is_like(&self.job);
        self.jitter = self.job.jitters();
        let mut skipped = Vec::new();
        if moved {
            // If the clock has stepped back, ticks after `now` may have run already. The plan continues after
            // the last planned tick, so that these ticks do not run again.
            self.planned = self.planned.max(self.job.begins(now));
            (self.row.since, self.row.ended) = (self.planned, None);
            let (unfinished, dropped): (_, VecDeque<_>) =
                mem::take(&mut self.waiting).into_iter().partition(PendingRun::is_unfinished);
            self.waiting = unfinished;
            skipped.extend(dropped.into_iter().map(|run| SkippedTick::Changed(run.tick)));
            (self.after_end, self.next) = (None, None);
        }
        if write {
            self.row = self.row.described_by(&self.job, now);
        }
        if !self.job.schedule.is_after_end() {
            self.next = self.next_due(self.job.schedule.next_after(self.planned));
        } else if self.after_end.is_some() {
            self.next = self.next_due(self.after_end);
        } else if moved {
            self.begin_after_end(self.planned, None);
        }
        Some(Replaced { before, write, moved, skipped })
    }

    /// Adds a requested run.
    pub(in crate::scheduler) fn add_requested(&mut self, run: PendingRun) {
        if run.is_open() {
            self.requested.push_front(run);
        } else {
            self.requested.push_back(run);
        }
    }

    /// Drops all waiting requested runs.
    pub(in crate::scheduler) fn drop_requested(&mut self) {
        self.postponed.retain(|(_, run)| run.request().is_none());
        self.requested.clear();
    }

    /// Adds a started run to the active runs.
    pub(in crate::scheduler) fn begin(&mut self, run: ActiveRun) {
        self.active.push(run);
    }

    /// Removes and returns the active run under `key`.
    pub(in crate::scheduler) fn end(&mut self, key: &str) -> Option<ActiveRun> {
        let at = self.active.iter().position(|run| *run.key == *key)?;
        Some(self.active.remove(at))
    }

    /// Puts a run that was interrupted in this term back at the head of the waiting runs. If the run was
    /// interrupted more than `INTERRUPTED_MAX` times, it must wait for a pause first, and this function returns
    /// the end of the pause.
    pub(in crate::scheduler) fn again(&mut self, run: PendingRun, now: WallTime) -> Option<WallTime> {
        let more = run.interruptions.saturating_sub(INTERRUPTED_MAX);
        if more == 0 {
            self.push_front(run);
            return None;
        }
        let (first, most) = POSTPONE;
        let at = now + first.saturating_mul(1 << (more - 1).min(16)).min(most);
        self.postponed.push((at, run));
        Some(at)
    }

    fn push_front(&mut self, run: PendingRun) {
        match run.request() {
            None => self.waiting.push_front(run),
            Some(_) => self.requested.push_front(run),
        }
    }

    /// Moves the postponed runs whose pause has ended back to the waiting runs.
    fn resume_postponed(&mut self, now: WallTime) {
        let (due, later): (Vec<_>, _) =
            mem::take(&mut self.postponed).into_iter().partition(|(at, _)| *at <= now);
        self.postponed = later;
        due.into_iter().for_each(|(_, run)| self.push_front(run));
    }

    /// Leaves a run to the next leader. The run's record has the time `at` and stays *started*, so the ledger
    /// must keep it.
    pub(in crate::scheduler) fn leave_to_next(&mut self, at: WallTime) {
        self.left_to_next = Some(self.left_to_next.map_or(at, |left| left.min(at)));
    }

    /// Returns whether no run of the job is left: none is active or waits, and no tick follows. A tick may follow the end of
    /// a pause.
    pub(in crate::scheduler) fn is_over(&self) -> bool {
        !self.is_paused()
            && self.next.is_none()
            && self.waiting.is_empty()
            && self.requested.is_empty()
            && self.postponed.is_empty()
            && self.active.is_empty()
            && self.left_to_next.is_none()
    }

    /// Returns the earliest time of the records that this leader still needs. The ledger must not prune these
    /// records.
    pub(in crate::scheduler) fn oldest(&self) -> Option<WallTime> {
        let postponed = self.postponed.iter().map(|(_, run)| run);
        let waiting = self.waiting.iter().chain(&self.requested).chain(postponed).map(|run| run.at);
        waiting.chain(self.active.iter().map(|run| run.at)).chain(self.left_to_next).min()
    }

    /// Returns the first tick whose run waits and has no record yet. The next leader must look at this tick again.
    pub(in crate::scheduler) fn first_waiting(&self) -> Option<WallTime> {
        self.waiting.iter().filter(|run| run.seen.is_none()).map(|run| run.tick).min()
    }
}

/// Returns the sort key of the unfinished runs of a job. Open runs come first. Of these, the run whose record
/// has the highest term comes first.
///
/// If a leader finds two open runs of a job without overlap, a worker can have started only the run of the higher
/// term. The leader that opened this run had found no other open run of the job. So the record of the other run
/// never had a majority, and no worker has started that run.
fn open_first(run: &PendingRun) -> (bool, Reverse<Option<FencingToken>>) {
    let term = run.seen.as_ref().filter(|_| run.is_open()).map(RunRecord::term);
    (!run.is_open(), Reverse(term))
}

#[cfg(test)]
mod plan_tests;
