//! The end of what the ledger has of jobs that are no more.

use crate::scheduler::{
    leader::event_loop::Leader,
    plan::{
        job_entry::{Retired, jobs_of},
        requests::{PREFIX, RequestRow},
    },
    store::saved_state::SavedState,
};
use crate::{env::WallTime, scheduler::JobRow};
use std::sync::Arc;

impl Leader<'_> {
    /// Asks now and then which jobs have ended of those that the ledger knows and this leader does not have.
    pub(in crate::scheduler) fn look_for_ended(&mut self) {
        if self.ending.is_some() || self.env.now() < self.end_at {
            return;
        }
        self.end_at = self.env.now() + self.retention.every();
        let mut unknown = jobs_of(&self.sealed);
        unknown.retain(|job| !self.names.contains_key(job) && !self.retired.contains_key(job));
        let (retention, group) = (self.retention.clone(), Arc::clone(self.term.group()));
        self.ending = Some(self.term.spawn_scoped(async move {
            retention.ended(unknown).await.unwrap_or_else(|error| {
                tracing::debug!(group = &*group, "cannot tell which jobs have ended: {error}");
                Vec::new()
            })
        }));
    }

    /// Leaves to pruning what the ledger has of a job that no worker has had for the retention.
    pub(in crate::scheduler) fn end_unknown(&mut self, job: &Arc<str>) {
        if self.names.contains_key(job) || self.retired.contains_key(job) {
            return;
        }
        tracing::info!(
            group = &**self.term.group(),
            job = &**job,
            "forgotten: no worker has had this job for the ledger's retention"
        );
        let now = self.now();
        let retired = Retired::of_unknown(&self.sealed, job, now);
        self.rows.close(&JobRow::key(job), retired.row().to_value(), now, false);
        retired.state().close(&self.rows, now);
        for (row, over) in self.sealed.rows(PREFIX).filter_map(|(_, records)| RequestRow::find(records)) {
            if !over && row.request.what.job() == job {
                self.rows.close(&RequestRow::key(&row.request), row.to_value(), now, true);
            }
        }
        self.retired.insert(Arc::clone(job), retired);
    }

    /// Forgets the removed jobs of which the nodes have forgotten everything: what is before `mark`.
    pub(in crate::scheduler) fn forget_retired(&mut self, mark: WallTime) {
        let running = |job: &Arc<str>| self.entries.iter().flatten().any(|entry| entry.plan.job.name == *job);
        let forgotten: Vec<Arc<str>> = self
            .retired
            .iter()
            .filter(|(job, retired)| retired.is_forgotten(mark) && !running(job))
            .map(|(job, _)| Arc::clone(job))
            .collect();
        for job in forgotten {
            let (row, state) = (JobRow::key(&job), SavedState::key(&job));
            self.sealed.forget(&job, |key, records| {
                let is_request = || {
                    key.starts_with(PREFIX)
                        && RequestRow::find(records).is_some_and(|(row, _)| *row.request.what.job() == job)
                };
                *key == *row || *key == *state || is_request()
            });
            self.known.open.remove(&job);
            self.retired.remove(&job);
        }
    }
}
