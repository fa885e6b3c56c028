//! The end of the leader's task for a run.

use super::{AfterRun, LedJobs};
use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, RunCause, RunOutcome},
        plan::{
            active_run::ActiveRun,
            effect::{Effect, RunCompletion},
            job_entry::JobEntry,
        },
        run::{
            ExecutionResult,
            on_leader::{RunEnd, RunSummary},
            pending_run::PendingRun,
        },
    },
};
use std::sync::Arc;

impl LedJobs {
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
                AfterRun::Unfinished
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
                if scheduled { AfterRun::Finished } else { AfterRun::Unfinished }
            }
            Some(end) => {
                self.table.end(place, &key, |_, _| ());
                self.report_end(&job, (tick, cause), end, now, out)
            }
        }
    }

    /// Reports the end of a run that this leader does not continue.
    fn report_end(
        &mut self,
        job: &Arc<Job>,
        (tick, cause): (WallTime, RunCause),
        end: RunEnd,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) -> AfterRun {
        match end {
            RunEnd::Ended(end, ran) => {
                self.ran(job, tick, cause, (end, ran), now, out);
                AfterRun::Finished
            }
            RunEnd::Interrupted(ran, _) => {
                let reason = &ran.worked.reason;
                let reason =
                    format!("interrupted by the step-down; the next leader runs it again: {reason}").into();
                let worked = ExecutionResult { reason, ..ran.worked };
                let ran = RunSummary { worked, ..ran };
                self.ran(job, tick, cause, (RunOutcome::Cancelled, ran), now, out);
                AfterRun::Unfinished
            }
            RunEnd::Abandoned => {
                let shown = job.schedule.format(tick);
                tracing::warn!(job = &*job.name, tick = shown, "not started: the term ended before");
                AfterRun::Unfinished
            }
            _ => AfterRun::Unfinished,
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
}
