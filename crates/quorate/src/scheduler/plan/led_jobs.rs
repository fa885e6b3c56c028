//! The leader's decisions on the jobs that it has. The events are: a job is taken over, replaced, removed, due
//! or paused, and a run of a job starts or ends.

mod freeze;
mod pause;
mod run_end;

use crate::{
    env::WallTime,
    measure::JobsMeasures,
    scheduler::{
        alert::JobAlert,
        job::{Job, RequestId, RunOutcome},
        plan::{
            active_run::{ActiveRun, SkippedTick},
            effect::{Effect, RunOwner, RunStart},
            group_freeze::GroupFreeze,
            job_entry::{FoundJob, JobEntry, RemovedJob, StoredInfo, find},
            job_table::JobTable,
            known_jobs::row_keys,
            reporter::{CHANGED, NotRun, REMOVED, Reporter},
        },
        run::pending_run::PendingRun,
        store::{JobRow, history_writer::RunReport, snapshot::LedgerSnapshot},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The largest number of jobs that one call of [`LedJobs::note_overdue`] notes. The next call notes the others.
const OVERDUE_AT_ONCE: usize = 100;

/// The jobs that the leader has, the jobs that it removed in this term, and the sealed ledger. The leader
/// decides from this data.
#[derive(Debug)]
pub(in crate::scheduler) struct LedJobs {
    sealed: LedgerSnapshot,
    table: JobTable,
    freeze: GroupFreeze,
    removed: BTreeMap<Arc<str>, RemovedJob>,
    reporter: Reporter,
    /// The time up to which the previous leader made decisions on all ticks.
    marked: Option<WallTime>,
    /// The leader opens a run to workers this long before the run's tick.
    ahead: Duration,
}

/// The consequence of the end of the leader's task for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scheduler) enum AfterRun {
    /// The run has ended, or is treated as ended. The next run of the same job or request may start.
    Finished,
    /// The run has not ended: a worker still executes it, this leader starts it again, or the next leader
    /// decides on it.
    Unfinished,
}

impl LedJobs {
    pub(in crate::scheduler) fn new(
        sealed: LedgerSnapshot,
        reporter: Reporter,
        marked: Option<WallTime>,
        ahead: Duration,
        max_executing: usize,
        measures: JobsMeasures,
    ) -> Self {
        let (freeze, _) = GroupFreeze::find(&sealed);
        Self {
            sealed,
            freeze,
            table: JobTable::new(max_executing, measures),
            removed: BTreeMap::new(),
            reporter,
            marked,
            ahead,
        }
    }

    pub(in crate::scheduler) fn sealed(&self) -> &LedgerSnapshot {
        &self.sealed
    }

    /// Notes in the snapshot that this leader has closed the run under `key`, so that the leader makes no
    /// further decision on the run.
    pub(in crate::scheduler) fn settle(&mut self, key: &str, end: RunOutcome) {
        self.sealed.settle(key, end);
    }

    pub(in crate::scheduler) fn table(&self) -> &JobTable {
        &self.table
    }

    pub(in crate::scheduler) fn reporter(&self) -> &Reporter {
        &self.reporter
    }

    /// Returns whether the leader has the job, or has removed it in this term.
    pub(in crate::scheduler) fn knows(&self, job: &str) -> bool {
        self.table.place(job).is_some() || self.removed.contains_key(job)
    }

    /// Takes a job over from the ledger. If the leader already has a job of this name, replaces that job. Returns
    /// what the stored row of the job says about the ledger.
    pub(in crate::scheduler) fn take_over(
        &mut self,
        job: Arc<Job>,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) -> StoredInfo {
        match self.table.place(&job.name) {
            Some(place) => {
                self.replace(place, job, now, out);
                StoredInfo::default()
            }
            None => self.register(job, now, out),
        }
    }

    /// Looks the job up in the ledger and plans its ticks. Emits the effects that write the job's row, and that
    /// close runs of earlier terms.
    fn register(&mut self, job: Arc<Job>, now: WallTime, out: &mut Vec<Effect>) -> StoredInfo {
        let removed = self.removed.remove(&job.name);
        let again = removed.is_some();
        let found = find(Arc::clone(&job), &self.sealed, self.marked, removed, now);
        let FoundJob { mut entry, lost, is_new, write, stored } = found;
        entry.plan_mut().open_ahead_by(self.ahead);
        self.take_freeze(&mut entry);
        let next = entry.plan().next();
        tracing::debug!(
            job = &*job.name,
            next = next.map(|at| tracing::field::display(job.schedule.format(at))),
            since = ?entry.row().since,
            "found"
        );
        let (key, value) = (JobRow::key(&job.name), entry.row().to_value());
        let state = again.then(|| entry.state().clone());
        let place = self.table.add(entry, write && is_new);
        match (write, is_new) {
            (true, true) => {
                let (job, due) = (Arc::clone(&job.name), next.unwrap_or_default());
                out.push(Effect::Register { place, job, key, value, due });
            }
            (true, false) => out.push(Effect::PutRow { key, value }),
            _ => {}
        }
        out.extend(state.map(Effect::KeepState));
        let waiting = self.table.get(place).map_or(0, |entry| entry.alerts().len());
        if waiting > 0 {
            self.put_alerts(place, waiting, out);
        }
        let any = !lost.is_empty();
        for run in lost {
            self.lose(&job, run, now, out);
        }
        if any {
            self.on_end(place, now, out);
        }
        stored
    }

    fn replace(&mut self, place: usize, job: Arc<Job>, now: WallTime, out: &mut Vec<Effect>) {
        let Some(Some(replaced)) = self.table.change(place, |entry| entry.replace(job, now)) else { return };
        if replaced.write {
            self.put_row(place, out);
        }
        if replaced.moved {
            self.withdraw(place, |_| true, RunOutcome::SkippedMisfire, CHANGED, out);
        }
        self.skip(&replaced.before, replaced.skipped, now, out);
    }

    /// Removes a job, so that none of its runs starts from now on. Closes the job's row, so that pruning
    /// removes it later. If a job of this name is added later, it starts as a new job. Returns the requests
    /// that have an active run of the removed job.
    pub(in crate::scheduler) fn remove(
        &mut self,
        place: usize,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) -> BTreeSet<RequestId> {
        let requests = self.active_requests(place);
        self.table.change(place, |entry| entry.plan_mut().drop_requested());
        self.withdraw(place, |_| true, RunOutcome::Cancelled, REMOVED, out);
        let Some(entry) = self.table.get(place) else { return requests };
        let (name, removed) = (Arc::clone(&entry.job().name), entry.remove(now));
        out.push(Effect::RemoveRow { key: JobRow::key(&name) });
        self.removed.insert(name, removed);
        self.table.remove(place);
        requests
    }

    /// Closes the ledger's records of a job that the leader does not have and that has ended. A job has ended
    /// when its data was not refreshed by any worker during the ledger's retention.
    pub(in crate::scheduler) fn end_unknown(&mut self, job: &Arc<str>, now: WallTime, out: &mut Vec<Effect>) {
        let removed = RemovedJob::of_ended(&self.sealed, job, now);
        out.push(Effect::RemoveRow { key: JobRow::key(job) });
        out.push(Effect::RemoveState(removed.state().clone()));
        self.removed.insert(Arc::clone(job), removed);
    }

    /// Handles the pruning of the records before `mark`. Drops the data of each removed job that has no records
    /// left and no active run. Returns the names of these jobs.
    pub(in crate::scheduler) fn forget_removed(&mut self, mark: WallTime) -> Vec<Arc<str>> {
        let running = |job: &Arc<str>| self.table.entries().any(|entry| entry.job().name == *job);
        let forgotten: Vec<Arc<str>> = self
            .removed
            .iter()
            .filter(|(job, removed)| removed.is_forgotten(mark) && !running(job))
            .map(|(job, _)| Arc::clone(job))
            .collect();
        for job in &forgotten {
            let rows = row_keys(&self.sealed, job);
            self.sealed.forget(job, &rows);
            self.removed.remove(job);
        }
        forgotten
    }

    /// Handles the end of the write of a new job's row. `place` is the place of the job.
    pub(in crate::scheduler) fn registered(&mut self, place: usize) {
        self.table.registered(place);
    }

    /// Closes the state and the history of each removed job whose last run has ended. If a job of the same name
    /// was added again, its state and history stay open.
    pub(in crate::scheduler) fn close_ended(&mut self, out: &mut Vec<Effect>) {
        for entry in self.table.take_ended() {
            let name = &entry.job().name;
            if self.table.place(name).is_none() {
                out.push(Effect::RemoveState(entry.state().clone()));
                out.push(Effect::CloseHistory(Arc::clone(name)));
            }
        }
    }

    /// Decides on the due ticks of the job that is due first. Returns false if no job is due.
    pub(in crate::scheduler) fn plan_next(&mut self, now: WallTime, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.table.pop_due(now) else { return false };
        self.end_pauses(place, now, out);
        if self.table.change(place, |entry| entry.note_overdue(now)) == Some(true) {
            self.put_alerts(place, 1, out);
        }
        let sealed = &self.sealed;
        let decide = |entry: &mut JobEntry| (Arc::clone(entry.job()), entry.plan_mut().plan_due(sealed, now));
        let Some((job, decisions)) = self.table.change(place, decide) else { return true };
        if let Some(tick) = decisions.cancel_for {
            let why: Arc<str> = format!("for the tick {}", job.schedule.format(tick)).into();
            self.cancel(place, |_| true, &why, out);
        }
        let skipped = !decisions.skipped.is_empty();
        self.skip(&job, decisions.skipped, now, out);
        if skipped {
            self.on_end(place, now, out);
        }
        true
    }

    /// Notes the jobs that are overdue at `now`, and emits their alerts.
    pub(in crate::scheduler) fn note_overdue(&mut self, now: WallTime, out: &mut Vec<Effect>) {
        let is_overdue = |place: &usize| {
            let entry = self.table.get(*place);
            entry.is_some_and(|entry| entry.becomes_overdue(now))
        };
        let overdue: Vec<usize> =
            self.table.names().map(|(_, place)| place).filter(is_overdue).take(OVERDUE_AT_ONCE).collect();
        for place in overdue {
            if self.table.change(place, |entry| entry.note_overdue(now)) == Some(true) {
                self.put_alerts(place, 1, out);
            }
        }
    }

    /// Starts the first waiting run. Returns false if no run waits, or the limit of concurrent runs is reached.
    pub(in crate::scheduler) fn start_next(&mut self, now: WallTime, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.table.pop_ready() else { return false };
        let start = |entry: &mut JobEntry| {
            (Arc::clone(entry.job()), entry.state().clone(), entry.plan_mut().start(now))
        };
        let Some((job, state, (run, too_late))) = self.table.change(place, start) else { return true };
        if let Some(run) = run {
            let active = ActiveRun::new(&run, &job);
            let (here, key) = (active.here, Arc::clone(&active.key));
            // The job is paused, and the run is still open. The earlier leader that accepted the pause may have
            // ended before it withdrew the run. So this leader withdraws it.
            let scheduled = run.is_open() && run.request().is_none();
            let tick = run.tick;
            let left_out =
                self.table.get(place).filter(|_| scheduled).and_then(|entry| entry.left_out_at(tick));
            self.table.begin(place, active);
            let end_needed_at = self.table.get(place).and_then(|entry| entry.plan().end_needed_at(&run));
            let (owner, job) = (RunOwner::Job(place), Arc::clone(&job));
            let start = RunStart { owner, job, state, run, end_needed_at };
            out.push(if here { Effect::Execute(start) } else { Effect::Open(start) });
            if let Some((end, why)) = left_out {
                out.push(Effect::Withdraw { key, end, why: why.into() });
            }
        }
        self.skip(&job, too_late, now, out);
        true
    }

    /// Emits the effect that enters the end of a run in the history, and notes the end in the job's row.
    fn report(&mut self, report: RunReport, now: WallTime, out: &mut Vec<Effect>) {
        if let Some(place) = self.table.place(&report.job.name) {
            let before = self.table.get(place).map_or(0, |entry| entry.alerts().len());
            if self.table.change(place, |entry| entry.note_end(&report.entry, now)) == Some(true) {
                let after = self.table.get(place).map_or(0, |entry| entry.alerts().len());
                self.put_alerts(place, after.saturating_sub(before), out);
            }
        }
        out.push(Effect::Report(Box::new(report)));
    }

    /// Emits the effect that writes the row of a job and then reports its newest `count` alerts.
    fn put_alerts(&self, place: usize, count: usize, out: &mut Vec<Effect>) {
        let Some(entry) = self.table.get(place) else { return };
        let newest = entry.alerts().len().saturating_sub(count);
        let alerts = entry.alerts()[newest..].to_vec();
        let (key, value) = (JobRow::key(&entry.job().name), entry.row().to_value());
        out.push(match alerts.is_empty() {
            true => Effect::PutRow { key, value },
            false => Effect::Alert { job: Arc::clone(entry.job()), key, value, alerts },
        });
    }

    /// Handles the event that an alert was reported: removes it from the job's row.
    pub(in crate::scheduler) fn alert_reported(&mut self, alert: &JobAlert, out: &mut Vec<Effect>) {
        let Some(place) = self.table.place(&alert.job) else { return };
        if self.table.change(place, |entry| entry.alert_reported(alert)) == Some(true) {
            self.put_row(place, out);
        }
    }

    /// Notes the end of a run or of skipped ticks. If the job's schedule counts from the ends of runs, this end
    /// gives the next tick.
    pub(in crate::scheduler) fn on_end(&mut self, place: usize, now: WallTime, out: &mut Vec<Effect>) {
        let Some(entry) = self.table.get(place) else { return };
        // If the job was removed, its row is closed and must not be written again.
        if self.table.place(&entry.job().name) != Some(place) {
            return;
        }
        if self.table.change(place, |entry| entry.on_end(now)) == Some(true) {
            self.put_row(place, out);
        }
    }

    /// Cancels those active runs of a job for which `selects` returns true. Returns their number.
    pub(in crate::scheduler) fn cancel(
        &self,
        place: usize,
        selects: impl Fn(&ActiveRun) -> bool,
        why: &Arc<str>,
        out: &mut Vec<Effect>,
    ) -> usize {
        let Some(entry) = self.table.get(place) else { return 0 };
        let before = out.len();
        let runs = entry.plan().active().iter().filter(|run| selects(run));
        out.extend(runs.map(|run| Effect::Cancel { key: Arc::clone(&run.key), why: Arc::clone(why) }));
        out.len() - before
    }

    /// Adds a requested run to the waiting runs of the job at `place`.
    pub(in crate::scheduler) fn add_requested(&mut self, place: usize, run: PendingRun) {
        self.table.change(place, |entry| entry.plan_mut().add_requested(run));
    }

    /// Drops the waiting requested runs of a job.
    pub(in crate::scheduler) fn drop_requested(&mut self, place: usize) {
        self.table.change(place, |entry| entry.plan_mut().drop_requested());
    }

    /// Returns the requests that have an active run of the job.
    pub(in crate::scheduler) fn active_requests(&self, place: usize) -> BTreeSet<RequestId> {
        let active = self.table.get(place).into_iter().flat_map(|entry| entry.plan().active());
        active.filter_map(|run| run.request).collect()
    }

    /// Emits the effect that closes a run of an earlier leader as lost, and reports that.
    pub(in crate::scheduler) fn lose(
        &mut self,
        job: &Arc<Job>,
        run: PendingRun,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) {
        let report = self.reporter.lost(job, run);
        self.report(report, now, out);
    }

    /// Emits the effect that writes a history entry for ticks that did not run.
    pub(in crate::scheduler) fn report_not_run(&self, job: &Arc<Job>, ticks: NotRun, out: &mut Vec<Effect>) {
        out.push(Effect::Report(Box::new(self.reporter.not_run(job, ticks))));
    }

    fn skip(&self, job: &Arc<Job>, skipped: Vec<SkippedTick>, now: WallTime, out: &mut Vec<Effect>) {
        let report = |tick| self.reporter.skipped(job, tick, now);
        let reports = skipped.into_iter().filter_map(report);
        out.extend(reports.map(|report| Effect::Report(Box::new(report))));
    }

    /// Emits the effects that end those open runs of a job for which `selects` returns true. A run that a
    /// worker has started does not end.
    fn withdraw(
        &self,
        place: usize,
        selects: impl Fn(&ActiveRun) -> bool,
        end: RunOutcome,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.table.get(place) else { return };
        let open = entry.plan().active().iter().filter(|run| !run.here && selects(run));
        out.extend(open.map(|run| Effect::Withdraw { key: Arc::clone(&run.key), end, why: why.into() }));
    }

    fn put_row(&self, place: usize, out: &mut Vec<Effect>) {
        let Some(entry) = self.table.get(place) else { return };
        out.push(Effect::PutRow { key: JobRow::key(&entry.job().name), value: entry.row().to_value() });
    }
}
