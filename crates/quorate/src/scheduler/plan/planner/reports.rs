//! The effects of decisions on rows, on active runs and on the history.

use super::Planner;
use crate::{
    env::WallTime,
    scheduler::{
        job::Job,
        plan::{
            active_run::{ActiveRun, SkippedTick, Withdrawal},
            effect::Effect,
            job_id::JobId,
            led_job::LedJob,
        },
        run::pending_run::PendingRun,
        store::{JobRow, run_report::RunReport},
    },
};
use std::sync::Arc;

impl Planner {
    /// Lets `change` modify the row of a job. If `change` returns true, writes the row, and reports the alert that it
    /// has added, if it has.
    pub(super) fn change_row(&mut self, id: JobId, change: impl FnOnce(&mut LedJob) -> bool) {
        let changed = self.table.change(id, |led| {
            let (most, last) = (led.alerts().len(), led.alerts().last().cloned());
            // If too many alerts wait, the new one takes the place of the oldest.
            change(led).then(|| led.alerts().len() >= most && led.alerts().last() != last.as_ref())
        });
        if let Some(Some(is_alert)) = changed {
            self.put_row(id, usize::from(is_alert));
        }
    }

    /// Writes the row of a job, then reports its newest `count` alerts.
    pub(super) fn put_row(&mut self, id: JobId, count: usize) {
        let Some(led) = self.table.get(id) else { return };
        let alerts = led.alerts()[led.alerts().len().saturating_sub(count)..].to_vec();
        let (key, value) = (JobRow::key(&led.job().name), led.row().to_value());
        self.effects.push(match alerts.is_empty() {
            true => Effect::PutRow { key, value },
            false => Effect::Alert { job: Arc::clone(led.job()), key, value, alerts },
        });
    }

    /// Notes the end of a run or of skipped ticks. If the job's schedule counts from the ends of runs, this end
    /// gives the next tick.
    pub(super) fn on_end(&mut self, id: JobId, now: WallTime) {
        // If the job was removed, its row is closed and must not be written again.
        let is_led = |led: &LedJob| self.table.id(&led.job().name) == Some(id);
        if self.table.get(id).is_some_and(is_led) {
            self.change_row(id, |led| led.on_end(now));
        }
    }

    /// Enters an end in the history, and notes it in the job's row.
    pub(super) fn report(&mut self, report: RunReport, now: WallTime) {
        if let Some(id) = self.table.id(&report.job.name) {
            self.change_row(id, |led| led.note_end(&report.entry, now));
            self.pause_if_failing(id, now);
        }
        self.effects.push(Effect::Report(Box::new(report)));
    }

    /// Closes a run of an earlier leader as lost, and reports that.
    pub(super) fn lose(&mut self, job: &Arc<Job>, run: PendingRun, now: WallTime) {
        let at = run.at;
        let report = self.reporter.lost(job, run);
        self.follow(&report.entry, at, now);
        self.report(report, now);
    }

    pub(super) fn skip(&mut self, job: &Arc<Job>, skipped: Vec<SkippedTick>, now: WallTime) {
        let reports = skipped.into_iter().filter_map(|tick| self.reporter.skipped(job, tick, now));
        self.effects.extend(reports.map(|report| Effect::Report(Box::new(report))));
    }

    /// Cancels those active runs of a job for which `selects` returns true. Returns their number.
    pub(super) fn cancel(
        &mut self,
        id: JobId,
        selects: impl Fn(&ActiveRun) -> bool,
        why: &Arc<str>,
    ) -> usize {
        let before = self.effects.len();
        let active = self.table.get(id).into_iter().flat_map(LedJob::active);
        let cancel = |run: &ActiveRun| Effect::Cancel { key: Arc::clone(&run.key), why: Arc::clone(why) };
        self.effects.extend(active.filter(|run| selects(run)).map(cancel));
        self.effects.len() - before
    }

    /// Ends those open runs of a job for which `selects` returns true. A run that a worker has started does not end.
    pub(super) fn withdraw(&mut self, id: JobId, selects: impl Fn(&ActiveRun) -> bool, why: Withdrawal) {
        let active = self.table.get(id).into_iter().flat_map(LedJob::active);
        let open = active.filter(|run| !run.here && selects(run));
        self.effects.extend(open.map(|run| Effect::Withdraw { key: Arc::clone(&run.key), why }));
    }
}
