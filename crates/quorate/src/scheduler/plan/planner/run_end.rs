//! The end of the leader's task for a run.

use super::Planner;
use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, RunCause, RunOutcome},
        plan::{
            active_run::ActiveRun,
            effect::{Effect, RunCompletion},
            job_id::JobId,
            led_job::LedJob,
        },
        run::{
            ExecutionResult,
            on_leader::{RunEnd, RunSummary},
        },
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
        let Some(id) = ended.owner else { return self.watch_ended(ended) };
        let request = ended.cause.request();
        if self.end_run(id, ended, stepping_down, now) {
            match request {
                Some(request) => self.requested_run_ended(request, now),
                None => self.on_end(id, now),
            }
        }
        self.close_ended();
    }

    /// Handles the end of the task that watches an open run of a job that the leader does not have.
    fn watch_ended(&mut self, ended: RunCompletion) {
        let RunCompletion { key, tick, cause, end, .. } = ended;
        let Some(job) = self.unknown_runs.end(&key) else { return };
        match end {
            Some(RunEnd::Ended(end, ran)) => {
                let report = self.reporter.ran(&job, tick, cause, end, ran);
                self.effects.push(Effect::Report(Box::new(report)));
                self.sealed.settle(&key, end);
                self.needed.refresh(&job.name, &self.sealed);
            }
            None => tracing::error!(job = &*job.name, run = &*key, "the watch of an open run panicked"),
            // The run stays open, and a leader that has the job will continue it.
            Some(_) => {}
        }
        if !self.unknown_runs.jobs().contains(&job.name) {
            self.to_take.extend(self.deferred.remove(&job.name));
        }
    }

    /// Handles the end of a run of the job `id`. Returns true if the run has ended, or is treated as ended, so that the
    /// next run of the same job or request may start. Otherwise a worker still executes the run, this leader starts it
    /// again, or the next leader decides on it.
    pub(super) fn end_run(
        &mut self,
        id: JobId,
        ended: RunCompletion,
        stepping_down: bool,
        now: WallTime,
    ) -> bool {
        let Some(job) = self.table.get(id).map(|led| Arc::clone(led.job())) else { return false };
        let RunCompletion { key, tick, cause, end, .. } = ended;
        let shown = || job.schedule.format(tick);
        match end {
            Some(RunEnd::Interrupted(ran, run)) if !stepping_down => {
                let until = self.table.end(id, &key, |led, _| led.again(*run, now)).flatten();
                let until = until.map(|at| job.schedule.format(at));
                let reason = &*ran.worked.reason;
                tracing::warn!(
                    job = &*job.name,
                    until,
                    "interrupted within the term; it runs again: {reason}"
                );
                false
            }
            None => {
                let leave = |led: &mut LedJob, run: &ActiveRun| led.leave_to_next(run.at);
                self.table.end(id, &key, leave);
                tracing::error!(
                    job = &*job.name,
                    tick = shown(),
                    "its run panicked; the next leader decides on it"
                );
                // This leader leaves the run to the next leader. A scheduled run is treated as ended, so that a
                // schedule that counts from the ends of runs can continue. A request does not continue with its
                // next run, because the next leader must first decide on this run.
                cause.request().is_none()
            }
            Some(end) => {
                self.table.end(id, &key, |_, _| ());
                match end {
                    RunEnd::Ended(end, ran) => {
                        self.ran(&job, tick, cause, end, ran, now);
                        return true;
                    }
                    RunEnd::Interrupted(ran, _) => {
                        let reason = &ran.worked.reason;
                        let reason =
                            format!("interrupted by the step-down; the next leader runs it again: {reason}");
                        let worked = ExecutionResult { reason: reason.into(), ..ran.worked };
                        let ran = RunSummary { worked, ..ran };
                        self.ran(&job, tick, cause, RunOutcome::Cancelled, ran, now);
                    }
                    RunEnd::Abandoned => {
                        tracing::warn!(
                            job = &*job.name,
                            tick = shown(),
                            "not started: the term ended before"
                        );
                    }
                    RunEnd::Left => {}
                }
                false
            }
        }
    }

    /// Enters the end of an executed run in the history.
    fn ran(
        &mut self,
        job: &Arc<Job>,
        tick: WallTime,
        cause: RunCause,
        end: RunOutcome,
        ran: RunSummary,
        now: WallTime,
    ) {
        if let Some(began) = ran.began.filter(|_| cause == RunCause::Scheduled && ran.worker.is_none()) {
            let by = job.jitters().ripe(tick).until(began);
            self.effects.push(Effect::CountLate { job: Arc::clone(&job.name), by });
        }
        let report = self.reporter.ran(job, tick, cause, end, ran);
        self.report(report, now);
    }
}
