//! The leader's decisions on the jobs that it has. The events are: a job is taken over, replaced, removed, due
//! or paused, and a run of a job starts or ends.

mod freeze;

use crate::scheduler::{
    plan::{
        effect::{Effect, RunCompletion, RunOwner, RunStart},
        group_freeze::GroupFreeze,
        job_entry::{EndedPause, FoundJob, JobEntry, RemovedJob, find},
        job_plan::is_before,
        job_table::JobTable,
        known_jobs::row_keys,
        pending_run::{ActiveRun, PendingRun, RecordedRun, RunToClose, SkippedTick},
        reporter::{CHANGED, NotRun, PAUSED, REMOVED, Reporter},
    },
    run::on_leader::{RunEnd, RunSummary},
    store::{FROZEN, history_writer::RunReport, snapshot::LedgerSnapshot},
};
use crate::{
    env::WallTime,
    ledger::LedgerError,
    measure::JobsMeasures,
    node::Record,
    scheduler::{Job, JobAlert, JobRow, Paused, RequestId, RunCause, RunOutcome, run::ExecutionResult},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

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
    /// A later term has sealed the ledger, so this leader cannot start any further run.
    Superseded,
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
    pub(in crate::scheduler) fn settle(&mut self, key: &str) {
        self.sealed.settle(key);
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

    /// Takes a job over from the ledger. If the leader already has a job of this name, replaces that job.
    pub(in crate::scheduler) fn take_over(&mut self, job: Arc<Job>, now: WallTime, out: &mut Vec<Effect>) {
        match self.table.place(&job.name) {
            Some(place) => self.replace(place, job, now, out),
            None => self.register(job, now, out),
        }
    }

    /// Looks the job up in the ledger and plans its ticks. Emits the effects that write the job's row, and that
    /// close runs of earlier terms.
    fn register(&mut self, job: Arc<Job>, now: WallTime, out: &mut Vec<Effect>) {
        let removed = self.removed.remove(&job.name);
        let again = removed.is_some();
        let found = find(Arc::clone(&job), &self.sealed, self.marked, removed, now);
        let FoundJob { mut entry, closes, is_new, write } = found;
        entry.plan_mut().open_ahead_by(self.ahead);
        self.take_freeze(&mut entry);
        let next = entry.plan().next().map(|at| job.schedule.format(at));
        tracing::debug!(job = &*job.name, next, since = ?entry.row().since, "found");
        let (key, value) = (JobRow::key(&job.name), entry.row().to_value());
        let state = again.then(|| entry.state().clone());
        let place = self.table.add(entry, write && is_new);
        match (write, is_new) {
            (true, true) => out.push(Effect::Register { place, job: Arc::clone(&job.name), key, value }),
            (true, false) => out.push(Effect::PutRow { key, value }),
            _ => {}
        }
        out.extend(state.map(Effect::KeepState));
        let waiting = self.table.get(place).map_or(0, |entry| entry.alerts().len());
        if waiting > 0 {
            self.put_alerts(place, waiting, out);
        }
        let any = !closes.is_empty();
        for close in closes {
            self.close(&job, close, now, out);
        }
        if any {
            self.on_end(place, now, out);
        }
    }

    fn replace(&mut self, place: usize, job: Arc<Job>, now: WallTime, out: &mut Vec<Effect>) {
        let Some(Some(replaced)) = self.table.change(place, |entry| entry.replace(job, now)) else { return };
        if replaced.write {
            self.put_row(place, out);
        }
        if replaced.moved {
            self.withdraw(place, |_| true, RunOutcome::SkippedMisfire, CHANGED, out);
        }
        self.skip(&replaced.before, replaced.skipped, out);
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
        let (key, value) = (JobRow::key(&name), removed.row().to_value());
        out.push(Effect::CloseRow { key, value, at: now, last: false });
        self.removed.insert(name, removed);
        self.table.remove(place);
        requests
    }

    /// Closes the ledger's records of a job that the leader does not have and that has ended. A job has ended
    /// when its data was not refreshed by any worker during the ledger's retention.
    pub(in crate::scheduler) fn end_unknown(&mut self, job: &Arc<str>, now: WallTime, out: &mut Vec<Effect>) {
        let removed = RemovedJob::of_ended(&self.sealed, job, now);
        let (key, value) = (JobRow::key(job), removed.row().to_value());
        out.push(Effect::CloseRow { key, value, at: now, last: false });
        out.push(Effect::CloseState(removed.state().clone(), now));
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
    pub(in crate::scheduler) fn close_ended(&mut self, now: WallTime, out: &mut Vec<Effect>) {
        for entry in self.table.take_ended() {
            let name = &entry.job().name;
            if self.table.place(name).is_none() {
                out.push(Effect::CloseState(entry.state().clone(), now));
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
        self.skip(&job, decisions.skipped, out);
        if skipped {
            self.on_end(place, now, out);
        }
        true
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
            let start = RunStart { owner: RunOwner::Job(place), job: Arc::clone(&job), state, run };
            out.push(if here { Effect::Execute(start) } else { Effect::Open(start) });
            if let Some(why) = left_out {
                out.push(Effect::Withdraw { key, end: RunOutcome::SkippedPaused, why: why.into() });
            }
        }
        self.skip(&job, too_late, out);
        true
    }

    /// Handles the end of a run of the job at `place`.
    pub(in crate::scheduler) fn end_run(
        &mut self,
        place: usize,
        ended: RunCompletion,
        stepping_down: bool,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) -> AfterRun {
        let Some(job) = self.table.get(place).map(|entry| Arc::clone(entry.job())) else {
            return AfterRun::Unfinished;
        };
        let RunCompletion { key, tick, cause, end, .. } = ended;
        let again = |jobs: &mut Self, run: PendingRun| {
            jobs.table.end(place, &key, |entry, _| entry.plan_mut().again(run, now)).flatten()
        };
        let shown = || job.schedule.format(tick);
        match end {
            Some(RunEnd::Interrupted(ran, run)) if !stepping_down => {
                let until = again(self, *run).map(|at| job.schedule.format(at));
                let reason = &*ran.worked.reason;
                tracing::warn!(
                    job = &*job.name,
                    until,
                    "interrupted within the term; it runs again: {reason}"
                );
                return AfterRun::Unfinished;
            }
            Some(RunEnd::Met(met, run)) => {
                let decided = self.on_met(&job, met, *run, now, out);
                return match decided {
                    Some(run) => {
                        again(self, run);
                        AfterRun::Unfinished
                    }
                    None => {
                        self.table.end(place, &key, |_, _| ());
                        AfterRun::Finished
                    }
                };
            }
            None => {
                let leave = |entry: &mut JobEntry, run: &ActiveRun| entry.plan_mut().leave_to_next(run.at);
                self.table.end(place, &key, leave);
                tracing::error!(
                    job = &*job.name,
                    tick = shown(),
                    "its run panicked; the next leader decides on it"
                );
                // This leader leaves the run to the next leader. A scheduled run is treated as ended, so that a
                // schedule that counts from the ends of runs can continue. A request does not continue with its
                // next run, because the next leader must first decide on this run.
                let scheduled = cause.request().is_none();
                return if scheduled { AfterRun::Finished } else { AfterRun::Unfinished };
            }
            _ => self.table.end(place, &key, |_, _| ()),
        };
        match end {
            Some(RunEnd::Ended(end, ran)) => {
                self.ran(&job, tick, cause, (end, ran), now, out);
                AfterRun::Finished
            }
            Some(RunEnd::Interrupted(ran, _)) => {
                let reason = &ran.worked.reason;
                let reason =
                    format!("interrupted by the step-down; the next leader runs it again: {reason}").into();
                let worked = ExecutionResult { reason, ..ran.worked };
                let ran = RunSummary { worked, ..ran };
                self.ran(&job, tick, cause, (RunOutcome::Cancelled, ran), now, out);
                AfterRun::Unfinished
            }
            Some(RunEnd::NotStarted(error)) => self.not_started(&job, (tick, cause), &error, now, out),
            Some(RunEnd::Abandoned) => {
                tracing::warn!(job = &*job.name, tick = shown(), "not started: the term ended before");
                AfterRun::Unfinished
            }
            _ => AfterRun::Unfinished,
        }
    }

    fn not_started(
        &mut self,
        job: &Arc<Job>,
        (tick, cause): (WallTime, RunCause),
        error: &LedgerError,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) -> AfterRun {
        let shown = job.schedule.format(tick);
        match error {
            LedgerError::Superseded { .. } => {
                tracing::error!(job = &*job.name, tick = shown, "resigning: {error}");
                AfterRun::Superseded
            }
            // A later leader has ended the run. When this leader sealed the ledger, the record of that end did
            // not exist yet.
            LedgerError::Standing(stored) if stored.last => {
                tracing::info!(job = &*job.name, tick = shown, "not started: its record is final");
                AfterRun::Finished
            }
            // The job is at-most-once, and the run may have been started. So no leader starts the run any more,
            // and it is lost.
            LedgerError::Standing(_) | LedgerError::Forgotten(_) => {
                let (end, why) = (RunOutcome::Lost, format!("not started: {error}").into());
                let report = self.reporter.not_run(job, NotRun { tick, until: None, cause, end, why });
                self.report(report, now, out);
                AfterRun::Finished
            }
            LedgerError::NoMajority(_) => {
                tracing::warn!(job = &*job.name, tick = shown, "not started: {error}");
                AfterRun::Unfinished
            }
        }
    }

    fn ran(
        &mut self,
        job: &Arc<Job>,
        tick: WallTime,
        cause: RunCause,
        (end, ran): (RunOutcome, RunSummary),
        now: WallTime,
        out: &mut Vec<Effect>,
    ) {
        if let Some(began) = ran.began.filter(|_| cause == RunCause::Scheduled && ran.worker.is_none()) {
            let by = job.jitters().ripe(tick).until(began);
            out.push(Effect::CountLate { job: Arc::clone(&job.name), by });
        }
        let report = self.reporter.ran(job, tick, cause, end, ran);
        self.report(report, now, out);
    }

    /// Emits the effect that enters the end of a run in the history, and notes the end in the job's row.
    fn report(&mut self, report: RunReport, now: WallTime, out: &mut Vec<Effect>) {
        let at = report.ended.unwrap_or(now);
        if let Some(place) = self.table.place(&report.job.name) {
            let before = self.table.get(place).map_or(0, |entry| entry.alerts().len());
            if self.table.change(place, |entry| entry.note_end(&report.entry, at)) == Some(true) {
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

    /// Handles the record `met` of a run. This record is later than the one that the seal found, and decides on
    /// the run. If this leader must continue the run, returns the run. Otherwise closes the run.
    fn on_met(
        &mut self,
        job: &Arc<Job>,
        met: Record,
        run: PendingRun,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) -> Option<PendingRun> {
        match run.decided_by(met, job.delivery) {
            RecordedRun::Continue(run) => Some(run),
            RecordedRun::Close(close) => {
                self.close(job, close, now, out);
                None
            }
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

    /// Pauses a job on a request, from `paused.at` on. Does nothing if the job is already paused in the same
    /// way, or if the job's row shows that this request was carried out before.
    pub(in crate::scheduler) fn pause(
        &mut self,
        place: usize,
        request: RequestId,
        paused: Paused,
        out: &mut Vec<Effect>,
    ) -> bool {
        let until = paused.until;
        let pause = |entry: &mut JobEntry| Some((Arc::clone(entry.job()), entry.pause(request, paused)?));
        let Some((job, skipped)) = self.table.change(place, pause).flatten() else { return false };
        // A pause skips scheduled ticks only. Requested runs continue, and so do runs of ticks after the end of
        // the pause.
        let is_left_out = |run: &ActiveRun| run.request.is_none() && is_before(run.tick, until);
        self.withdraw(place, is_left_out, RunOutcome::SkippedPaused, PAUSED, out);
        self.skip(&job, skipped, out);
        true
    }

    /// Resumes a job on a request. Does nothing if the job is not paused, or if the job's row shows that this
    /// request was carried out before.
    pub(in crate::scheduler) fn resume(
        &mut self,
        place: usize,
        request: RequestId,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) -> bool {
        let resume = |entry: &mut JobEntry| Some((Arc::clone(entry.job()), entry.resume(request, now)?));
        let Some((job, ended)) = self.table.change(place, resume).flatten() else { return false };
        self.report_pause(&job, ended, out);
        true
    }

    /// Ends the pause of a job and the freeze of the group, if the times for their ends have come.
    fn end_pauses(&mut self, place: usize, now: WallTime, out: &mut Vec<Effect>) {
        let end = |entry: &mut JobEntry| Some((Arc::clone(entry.job()), entry.end_pause(now)?));
        while let Some((job, ended)) = self.table.change(place, end).flatten() {
            let until = ended.paused.until.map(|until| job.schedule.format(until));
            let what = if ended.is_freeze { "the freeze" } else { "the pause" };
            tracing::info!(job = &*job.name, until, "{what} has ended");
            self.put_row(place, out);
            self.report_pause(&job, ended, out);
        }
    }

    /// Reports the ticks that were skipped because of a pause.
    fn report_pause(&mut self, job: &Arc<Job>, ended: EndedPause, out: &mut Vec<Effect>) {
        let EndedPause { paused, is_freeze, span } = ended;
        let Some((first, last)) = span else { return };
        let what = if is_freeze { FROZEN } else { "the job was paused" };
        let mut why = format!("{what} by {}", paused.by);
        why += &paused.reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let until = (first != last).then_some(last);
        let (cause, end) = (RunCause::Scheduled, RunOutcome::SkippedPaused);
        self.report_not_run(job, NotRun { tick: first, until, cause, end, why: why.into() }, out);
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

    /// Emits the effect that closes a run of an earlier term under this term, and reports the run's end.
    pub(in crate::scheduler) fn close(
        &mut self,
        job: &Arc<Job>,
        close: RunToClose,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) {
        let report = self.reporter.closed(job, close);
        self.report(report, now, out);
    }

    /// Emits the effect that writes a history entry for ticks that did not run.
    pub(in crate::scheduler) fn report_not_run(&self, job: &Arc<Job>, ticks: NotRun, out: &mut Vec<Effect>) {
        out.push(Effect::Report(Box::new(self.reporter.not_run(job, ticks))));
    }

    fn skip(&self, job: &Arc<Job>, skipped: Vec<SkippedTick>, out: &mut Vec<Effect>) {
        let reports = skipped.into_iter().filter_map(|tick| self.reporter.skipped(job, tick, &self.sealed));
        out.extend(reports.map(|report| Effect::Report(Box::new(report))));
    }

    /// Emits the effects that end those open runs of a job for which `selects` returns true. A run that a
    /// worker has taken does not end.
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
