//! The freeze of the group, and the pauses of single jobs.

use super::Planner;
use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, RequestId, RunCause},
        plan::{
            active_run::{ActiveRun, Withdrawal},
            effect::Effect,
            job_id::JobId,
            led_job::{EndedPause, LedJob, is_before},
        },
        store::{JobAction, JobRequest, JobResponse, Paused},
    },
};
use std::{sync::Arc, time::Duration};

impl Planner {
    /// Freezes the group on a request: no tick of its jobs is due before the end. Active and requested runs continue.
    pub(super) fn freeze(&mut self, request: RequestId, paused: Paused, now: WallTime) {
        self.freeze.freeze(request, paused);
        let Some(frozen) = self.freeze.last.clone() else { return };
        for id in self.ids() {
            self.end_pauses(id, now);
            let freeze = |led: &mut LedJob| (Arc::clone(led.job()), led.freeze(frozen.clone()));
            let Some((job, skipped)) = self.table.change(id, freeze) else { continue };
            let is_left_out = |run: &ActiveRun| run.request().is_none() && is_before(run.tick, frozen.until);
            self.withdraw(id, is_left_out, Withdrawal::Frozen);
            self.skip(&job, skipped, now);
        }
    }

    /// Ends the freeze on a request.
    pub(super) fn unfreeze(&mut self, request: RequestId, now: WallTime) {
        self.freeze.unfreeze(request, now);
        let Some(frozen) = self.freeze.last.clone() else { return };
        for id in self.ids() {
            self.table.change(id, |led| led.change_freeze(&frozen));
            self.end_pauses(id, now);
        }
    }

    fn ids(&self) -> Vec<JobId> {
        self.table.names().map(|(_, id)| id).collect()
    }

    /// Pauses a job on a request, from `paused.at` on. Does nothing if the job is already paused in the same
    /// way, or if the job's row shows that this request was carried out before.
    pub(super) fn pause(&mut self, id: JobId, request: RequestId, paused: Paused) {
        let (now, until) = (paused.at, paused.until);
        let pause = |led: &mut LedJob| Some((Arc::clone(led.job()), led.pause(request, paused)?));
        let Some((job, skipped)) = self.table.change(id, pause).flatten() else { return };
        // A pause skips scheduled ticks only. Requested runs continue, and so do runs of ticks after the end of
        // the pause.
        let is_left_out = |run: &ActiveRun| run.request().is_none() && is_before(run.tick, until);
        self.withdraw(id, is_left_out, Withdrawal::Paused);
        self.skip(&job, skipped, now);
    }

    /// Pauses a job of which enough runs in a row have failed, with an entry in the audit list.
    pub(super) fn pause_if_failing(&mut self, id: JobId, now: WallTime) {
        let by: Arc<str> = format!("the leader {}", self.reporter.worker()).into();
        let mut skipped = None;
        self.change_row(id, |led| {
            skipped = led.pause_if_failing(Arc::clone(&by), now);
            skipped.is_some()
        });
        let (Some(skipped), Some(led)) = (skipped, self.table.get(id)) else { return };
        let job = Arc::clone(led.job());
        let reason = led.row().paused.as_ref().and_then(|paused| paused.reason.clone());
        let what = JobAction::Pause { job: Arc::clone(&job.name), reason, until: None };
        // Two jobs may be paused at the same time.
        let number = u128::from(now.as_micros()) << 64 | u128::from(id.seq);
        let request =
            JobRequest { id: RequestId::from_u128(number), by, at: now, valid_for: Duration::ZERO, what };
        let answer = JobResponse::Accepted { text: "paused".into(), count: 0 };
        self.effects.push(Effect::Audit(Box::new((request, answer))));
        self.withdraw(id, |run| run.request().is_none(), Withdrawal::Paused);
        self.skip(&job, skipped, now);
    }

    /// Resumes a job on a request. Does nothing if the job is not paused, or if the job's row shows that this
    /// request was carried out before.
    pub(super) fn resume(&mut self, id: JobId, request: RequestId, now: WallTime) {
        let resume = |led: &mut LedJob| Some((Arc::clone(led.job()), led.resume(request, now)?));
        if let Some((job, ended)) = self.table.change(id, resume).flatten() {
            self.report_pause(&job, ended);
        }
    }

    /// Ends the pause of a job and the freeze of the group, if the times for their ends have come.
    pub(super) fn end_pauses(&mut self, id: JobId, now: WallTime) {
        let end = |led: &mut LedJob| Some((Arc::clone(led.job()), led.end_pause(now)?));
        while let Some((job, ended)) = self.table.change(id, end).flatten() {
            let until = ended.paused.until.map(|until| job.schedule.format(until));
            let what = if ended.is_freeze { "the freeze" } else { "the pause" };
            tracing::info!(job = &*job.name, until, "{what} has ended");
            self.put_row(id, 0);
            self.report_pause(&job, ended);
        }
    }

    /// Reports the ticks that were skipped because of a pause.
    fn report_pause(&mut self, job: &Arc<Job>, ended: EndedPause) {
        let EndedPause { paused, is_freeze, span } = ended;
        let Some(span) = span else { return };
        let (end, what) = match is_freeze {
            true => (Withdrawal::Frozen.end(), "the group was frozen"),
            false => (Withdrawal::Paused.end(), "the job was paused"),
        };
        let mut why = format!("{what} by {}", paused.by);
        why += &paused.reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let report = self.reporter.not_run(job, span, RunCause::Scheduled, end, &why);
        self.effects.push(Effect::Report(Box::new(report)));
    }
}
