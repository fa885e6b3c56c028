//! The end of the leader's task for a run.

use super::Planner;
use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, RunCause, whole_of},
        plan::{
            active_run::ActiveRun,
            effect::{Effect, RunCompletion},
            job_id::JobId,
        },
        policy::Placement,
        run::{on_leader::RunEnd, pending_run::PendingRun},
        store::{HistoryEntry, run_report::RunReport},
    },
};
use std::sync::Arc;

impl Planner {
    /// Handles the end of the task of a run. `stepping_down` is true once the term must end.
    pub(in crate::scheduler) fn run_ended(
        &mut self,
        ended: RunCompletion,
        stepping_down: bool,
        now: WallTime,
    ) {
        let RunCompletion { owner, key, end } = ended;
        let Some(id) = owner else { return self.watch_ended(&key, end, now) };
        let Some(job) = self.table.get(id).map(|led| Arc::clone(led.job())) else { return };
        self.note_state(&job.name, end.as_ref());
        let Some(run) = self.table.end(id, &key) else { return };
        let (request, at) = (run.request(), run.at);
        let is_over = match end {
            Some(RunEnd::Interrupted(entry, again)) if !stepping_down => {
                self.run_again(id, &entry, *again, now);
                false
            }
            Some(end) => {
                let is_over = self.report_end(Arc::clone(&job), run, end, now);
                if !is_over {
                    // Without this, the job would seem to be over, and a single run would be removed.
                    self.table.change(id, |led| led.leave_to_next(at));
                }
                is_over
            }
            None => {
                let tick = job.schedule.format(run.tick);
                tracing::error!(job = &*job.name, tick, "its run panicked; the next leader decides on it");
                // This leader leaves the run to the next leader. A scheduled run is treated as ended, so that a
                // schedule that counts from the ends of runs can continue. A request does not continue with its
                // next run, because the next leader must first decide on this run.
                self.table.change(id, |led| led.leave_to_next(at));
                request.is_none()
            }
        };
        match request {
            Some(request) if is_over => self.requested_run_ended(request, now),
            None if is_over => self.on_end(id, now),
            _ => {}
        }
        // A single run on every worker is over once all its parts are. A run that was not started, or that the next leader
        // decides on, is not over.
        let whole = match job.rules.placement {
            Placement::EveryWorker => Some(&*job.name),
            _ => whole_of(&job.name),
        };
        if let Some(whole) = whole.filter(|_| is_over && !stepping_down).and_then(|name| self.table.id(name))
        {
            self.retire(whole, now);
        }
        self.close_ended();
    }

    /// Handles the end of the task that watches an open run of a job that the leader does not have.
    fn watch_ended(&mut self, key: &Arc<str>, end: Option<RunEnd>, now: WallTime) {
        let Some((job, uses)) = self.unknown_runs.end(key) else { return };
        uses.iter().for_each(|key| self.table.free_key(key));
        self.note_state(&job.name, end.as_ref());
        match end {
            Some(RunEnd::Ended { entry, .. }) => {
                if let Some(at) = self.sealed.settle(key, entry.end) {
                    self.follow(&entry, at, now);
                }
                self.needed.refresh(&job.name, &self.sealed);
                let report = RunReport { job: Arc::clone(&job), entry: *entry, close: None };
                self.effects.push(Effect::Report(Box::new(report)));
            }
            None => tracing::error!(job = &*job.name, run = &**key, "the watch of an open run panicked"),
            // The run stays open, and a leader that has the job will continue it.
            Some(_) => {}
        }
        if !self.unknown_runs.jobs().contains(&job.name) {
            self.to_take.extend(self.deferred.remove(&job.name));
        }
    }

    /// Notes the state that a run has saved for the later runs of its job. The run's task has stored it already. It is stored
    /// again, because the states of two runs that end at about the same time may arrive here in another order.
    fn note_state(&mut self, job: &str, end: Option<&RunEnd>) {
        if let Some(RunEnd::Ended { state: Some(text), .. }) = end {
            self.put_state(job, Arc::clone(text));
        }
    }

    /// Starts a run again that was interrupted within the term.
    fn run_again(&mut self, id: JobId, entry: &HistoryEntry, again: PendingRun, now: WallTime) {
        let until = self.table.change(id, |led| {
            let until = led.again(again, now)?;
            Some(led.job().schedule.format(until))
        });
        tracing::warn!(
            job = &*entry.job,
            until = until.flatten(),
            "interrupted within the term; it runs again: {}",
            entry.reason
        );
    }

    /// Enters the end of a run in the history. Returns false if the run is not over: a worker still executes it, or the
    /// next leader decides on it.
    fn report_end(&mut self, job: Arc<Job>, run: ActiveRun, end: RunEnd, now: WallTime) -> bool {
        let is_over = matches!(end, RunEnd::Ended { .. });
        let entry = match end {
            RunEnd::Ended { entry, .. } => *entry,
            RunEnd::Interrupted(entry, _) => {
                let reason = &entry.reason;
                let reason = format!("interrupted by the step-down; the next leader runs it again: {reason}");
                HistoryEntry { reason: reason.into(), ..*entry }
            }
            RunEnd::Aborted { began, took } => {
                let report = self.reporter.aborted(&job, run, began, took);
                self.report(report, now);
                return false;
            }
            RunEnd::Abandoned => {
                let tick = job.schedule.format(run.tick);
                tracing::warn!(job = &*job.name, tick, "not started: the term ended before");
                return false;
            }
            RunEnd::Left => return false,
        };
        if let Some(began) = entry.started.filter(|_| run.here && run.cause == RunCause::Scheduled) {
            let by = run.not_before.until(began);
            self.effects.push(Effect::CountLate { job: Arc::clone(&job.name), by });
        }
        if is_over {
            self.follow(&entry, run.at, now);
        }
        self.report(RunReport { job, entry, close: None }, now);
        is_over
    }
}
