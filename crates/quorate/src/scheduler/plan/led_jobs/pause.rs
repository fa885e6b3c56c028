//! The pauses of single jobs, and the ends of pauses and freezes.

use super::LedJobs;
use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, RequestId, RunCause, RunOutcome},
        plan::{
            active_run::ActiveRun,
            effect::Effect,
            job_entry::{EndedPause, JobEntry},
            job_plan::is_before,
            reporter::{FROZEN, NotRun, PAUSED},
        },
        store::Paused,
    },
};
use std::sync::Arc;

impl LedJobs {
    /// Pauses a job on a request, from `paused.at` on. Does nothing if the job is already paused in the same
    /// way, or if the job's row shows that this request was carried out before.
    pub(in crate::scheduler) fn pause(
        &mut self,
        place: usize,
        request: RequestId,
        paused: Paused,
        out: &mut Vec<Effect>,
    ) -> bool {
        let (now, until) = (paused.at, paused.until);
        let pause = |entry: &mut JobEntry| Some((Arc::clone(entry.job()), entry.pause(request, paused)?));
        let Some((job, skipped)) = self.table.change(place, pause).flatten() else { return false };
        // A pause skips scheduled ticks only. Requested runs continue, and so do runs of ticks after the end of
        // the pause.
        let is_left_out = |run: &ActiveRun| run.request.is_none() && is_before(run.tick, until);
        self.withdraw(place, is_left_out, RunOutcome::SkippedPaused, PAUSED, out);
        self.skip(&job, skipped, now, out);
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
    pub(super) fn end_pauses(&mut self, place: usize, now: WallTime, out: &mut Vec<Effect>) {
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
        let (end, what) = match is_freeze {
            true => (RunOutcome::SkippedFrozen, FROZEN),
            false => (RunOutcome::SkippedPaused, "the job was paused"),
        };
        let mut why = format!("{what} by {}", paused.by);
        why += &paused.reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let until = (first != last).then_some(last);
        let cause = RunCause::Scheduled;
        self.report_not_run(job, NotRun { tick: first, until, cause, end, why: why.into() }, out);
    }
}
