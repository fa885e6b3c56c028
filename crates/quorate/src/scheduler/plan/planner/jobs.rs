//! The decisions on single jobs: a job is taken over, replaced, removed or due, and a run of it starts.

use super::Planner;
use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, whole_of},
        plan::{
            active_run::{ActiveRun, Withdrawal},
            effect::{Effect, RunStart},
            job_id::JobId,
            known_jobs::warn_unreadable,
            led_job::{DueDecisions, FoundJob, LedJob, RemovedJob, find},
        },
        policy::Placement,
        store::{JobRow, snapshot::state_key},
    },
};
use std::sync::Arc;

impl Planner {
    /// Takes a job over from the ledger, and plans its ticks. Writes the job's row, and closes runs of earlier terms.
    pub(super) fn register(&mut self, job: Arc<Job>, now: WallTime) {
        let mut removed = self.removed.remove(&job.name);
        let state = removed.as_mut().and_then(RemovedJob::take_state);
        let found = find(Arc::clone(&job), &self.sealed, self.marked, removed, now);
        let FoundJob { mut led, lost, is_new, write, window, unreadable } = found;
        if self.left_out.failures {
            led.forget_failed_runs();
        }
        let key = JobRow::key(&job.name);
        self.needed.add_window(window);
        if let Some(why) = unreadable {
            warn_unreadable(&self.group, &key, &why);
        }
        led.open_ahead_by(self.ahead);
        if let Some(freeze) = &self.freeze.last {
            let recorded = self.sealed.last_before(&job.name, freeze.at);
            led.take_freeze(freeze, self.marked.max(recorded));
        }
        let next = led.next();
        tracing::debug!(
            job = &*job.name,
            next = next.map(|at| tracing::field::display(job.schedule.format(at))),
            since = %led.row().since,
            "found"
        );
        let (value, waiting) = (led.row().to_value(), led.alerts().len());
        let is_unconfirmed = self.unconfirmed.contains_key(&job.name);
        let id = self.table.add(led, write && is_new || is_unconfirmed);
        match (write, is_new) {
            (true, true) => {
                let (job, due) = (Arc::clone(&job.name), next.unwrap_or_default());
                self.effects.push(Effect::Register { id, job, key, value, due });
            }
            (true, false) => self.effects.push(Effect::PutRow { key, value }),
            _ => {}
        }
        if let Some(text) = state {
            self.put_state(&job.name, text);
        }
        if waiting > 0 {
            self.put_row(id, waiting);
        }
        self.pause_if_failing(id, now);
        self.follow_recorded(id, now);
        let any = !lost.is_empty();
        for run in lost {
            self.lose(&job, run, now);
        }
        if any {
            self.on_end(id, now);
        }
    }

    pub(super) fn replace(&mut self, id: JobId, job: Arc<Job>, now: WallTime) {
        let changed = Arc::clone(&job);
        let Some(Some(replaced)) = self.table.change(id, |led| led.replace(job, now)) else { return };
        self.table.note_follower(id, Some(&replaced.before), Some(&changed));
        self.limits_changed |= replaced.before.rules.concurrency != changed.rules.concurrency;
        if replaced.write {
            self.put_row(id, 0);
        }
        if replaced.moved {
            self.withdraw(id, |_| true, Withdrawal::Changed);
        }
        self.skip(&replaced.before, replaced.skipped, now);
    }

    /// Removes a job, so that none of its runs starts from now on. Closes the job's row and its requests. If a job of
    /// this name is added later, it starts as a new job.
    pub(super) fn remove(&mut self, id: JobId, now: WallTime) {
        let Some(led) = self.table.get(id) else { return };
        let (name, active) = (Arc::clone(&led.job().name), led.active_requests());
        self.table.change(id, LedJob::drop_requested);
        self.withdraw(id, |_| true, Withdrawal::Removed);
        let Some(removed) = self.table.get(id).map(|led| led.remove(now)) else { return };
        self.effects.push(Effect::RemoveRow { key: JobRow::key(&name) });
        if whole_of(&name).is_some() {
            self.effects.push(Effect::OnNodes { job: Arc::clone(&name), is_stored: false });
        }
        self.removed.insert(Arc::clone(&name), removed);
        self.table.remove(id);
        self.drop_requests_of(&name, &active, now);
        self.close_ended();
    }

    /// Closes the state and the history of each removed job whose last run has ended. If a job of the same name
    /// was added again, its state and history stay open.
    pub(super) fn close_ended(&mut self) {
        for led in self.table.take_ended() {
            let name = &led.job().name;
            if self.table.id(name).is_none() {
                self.remove_state(name);
                self.effects.push(Effect::CloseHistory(Arc::clone(name)));
            }
        }
    }

    /// Stores the state that a run has saved for the later runs of its job.
    pub(super) fn put_state(&mut self, job: &str, text: Arc<str>) {
        self.sealed.set_state(job, Arc::clone(&text));
        self.effects.push(Effect::PutRow { key: state_key(job), value: text });
    }

    /// Removes the state of a removed job. If the job is added again in this term, it gets the state back.
    pub(super) fn remove_state(&mut self, job: &str) {
        let Some(text) = self.sealed.take_state(job) else { return };
        self.effects.push(Effect::RemoveRow { key: state_key(job) });
        if let Some(removed) = self.removed.get_mut(job) {
            removed.keep_state(text);
        }
    }

    /// Decides on the due ticks of a job.
    pub(super) fn plan(&mut self, id: JobId, now: WallTime) {
        self.end_pauses(id, now);
        self.change_row(id, |led| led.note_overdue(now));
        let sealed = &self.sealed;
        let decide = |led: &mut LedJob| (Arc::clone(led.job()), led.plan_due(sealed, now));
        let Some((job, decisions)) = self.table.change(id, decide) else { return };
        self.carry_out(id, &job, decisions, now);
    }

    /// Cancels the active runs of a job and skips its ticks, as decided.
    pub(super) fn carry_out(&mut self, id: JobId, job: &Arc<Job>, decisions: DueDecisions, now: WallTime) {
        if let Some(tick) = decisions.cancel_for {
            let why: Arc<str> = format!("for the tick {}", job.schedule.format(tick)).into();
            self.cancel(id, |_| true, &why);
        }
        let skipped = !decisions.skipped.is_empty();
        self.skip(job, decisions.skipped, now);
        if skipped {
            self.on_end(id, now);
        }
        self.retire(id, now);
    }

    /// Starts the waiting run of a job whose turn it is.
    pub(super) fn start(&mut self, id: JobId, now: WallTime) {
        let start = |led: &mut LedJob| (Arc::clone(led.job()), led.start(now));
        let Some((job, (run, too_late))) = self.table.change(id, start) else { return };
        if let Some(run) = run {
            let active = ActiveRun::new(&run, &job);
            let (here, key) = (active.here, Arc::clone(&active.key));
            self.table.begin(id, active);
            let led = self.table.get(id);
            // The job is paused, and the run is still open. The earlier leader that accepted the pause may have
            // ended before it withdrew the run. So this leader withdraws it.
            let scheduled = run.is_open() && run.request().is_none();
            let left_out = led.filter(|_| scheduled).and_then(|led| led.left_out_at(run.tick));
            let end_needed_at = led.and_then(|led| led.end_needed_at(&run));
            let payload = match job.rules.placement {
                Placement::EveryWorker => self.parts_named(&job.name),
                _ => run.payload.clone().or_else(|| job.payload.clone()),
            };
            let (owner, state) = (Some(id), self.sealed.state(&job.name));
            let start = RunStart { owner, job: Arc::clone(&job), state, run, payload, end_needed_at };
            self.effects.push(if here { Effect::Execute(start) } else { Effect::Open(start) });
            self.effects.extend(left_out.map(|why| Effect::Withdraw { key, why }));
        }
        let was_late = !too_late.is_empty();
        self.skip(&job, too_late, now);
        if was_late {
            self.retire(id, now);
        }
    }
}
