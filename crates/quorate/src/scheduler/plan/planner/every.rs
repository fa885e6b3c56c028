//! The parts of the jobs that run on every worker: they come and go with the workers.

use super::Planner;
use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, Payload, handed_out_to, whole_of},
        plan::{effect::Effect, job_id::JobId, known_jobs::jobs_in_ledger, led_job::LedJob},
        run::assign::LiveWorker,
    },
};
use std::{collections::BTreeSet, sync::Arc};

impl Planner {
    /// Handles the event that workers have come or gone.
    pub(in crate::scheduler) fn workers_changed(&mut self, workers: Vec<LiveWorker>, now: WallTime) {
        self.every.set_workers(workers);
        // Before that, jobs wait to be taken over, and open runs are not watched yet.
        if self.is_complete {
            self.settle_parts(now);
        }
    }

    /// Removes the parts whose workers have gone, and adds those of new workers.
    pub(super) fn settle_parts(&mut self, now: WallTime) {
        if !self.every.is_known() {
            return;
        }
        self.forget_waiting_parts();
        let parts = self.table.names().filter(|(name, _)| whole_of(name).is_some());
        self.remove_gone(parts.map(|(_, id)| id).collect(), now);
        if self.every.is_empty() {
            return;
        }
        // Parts of earlier leaders, whose workers have gone since.
        let is_gone =
            |name: &str| self.every.is_part(name) && !self.every.has_part(name) && !self.knows(name);
        let watched = self.unknown_runs.jobs().into_iter().filter(|name| is_gone(name));
        let gone: BTreeSet<_> = jobs_in_ledger(&self.sealed, is_gone).into_iter().chain(watched).collect();
        let gone = gone.into_iter().collect();
        self.end_jobs(gone, "forgotten: the worker of this part has gone", now);
        let new: Vec<Arc<Job>> =
            self.every.parts().filter(|part| self.table.id(&part.name).is_none()).collect();
        self.take(new);
        let wholes: Vec<JobId> = self.every.names().filter_map(|name| self.table.id(name)).collect();
        wholes.into_iter().for_each(|id| self.retire(id, now));
    }

    /// Lets a job be taken over, or replace the leader's job of the same name. A job for every worker is taken over as its
    /// parts and its whole.
    pub(super) fn take_job(&mut self, job: &Arc<Job>, now: WallTime) {
        let jobs = self.every.put(job);
        self.forget_waiting_parts();
        self.take(jobs);
        self.remove_gone(self.table.parts_of(&job.name).collect(), now);
    }

    /// Forgets that a job runs on every worker, and removes its parts.
    pub(super) fn remove_parts_of(&mut self, job: &str, now: WallTime) {
        self.every.remove(job);
        self.to_take.retain(|waiting| *waiting.name != *job);
        self.deferred.remove(job);
        self.forget_waiting_parts();
        self.remove_gone(self.table.parts_of(job).collect(), now);
    }

    pub(super) fn take(&mut self, jobs: impl IntoIterator<Item = Arc<Job>>) {
        for job in jobs {
            if whole_of(&job.name).is_some() {
                // The worker does not know that it has this job, so the leader keeps the records of the job.
                self.effects.push(Effect::OnNodes { job: Arc::clone(&job.name), is_stored: true });
            }
            self.to_take.push_back(job);
        }
    }

    /// Forgets the parts that wait to be taken over and that no worker has.
    fn forget_waiting_parts(&mut self) {
        let every = &self.every;
        let is_gone = |name: &Arc<str>| whole_of(name).is_some() && !every.has_part(name);
        let waiting = self.to_take.iter().map(|job| &job.name).chain(self.deferred.keys());
        let gone: BTreeSet<Arc<str>> = waiting.filter(|name| is_gone(name)).cloned().collect();
        if gone.is_empty() {
            return;
        }
        self.to_take.retain(|job| !gone.contains(&job.name));
        self.deferred.retain(|name, _| !gone.contains(name));
        self.effects.extend(gone.into_iter().map(|job| Effect::OnNodes { job, is_stored: false }));
    }

    /// Removes those of the parts that no worker has.
    fn remove_gone(&mut self, mut parts: Vec<JobId>, now: WallTime) {
        parts.retain(|id| self.table.get(*id).is_some_and(|led| !self.every.has_part(&led.job().name)));
        parts.into_iter().for_each(|id| self.remove(id, now));
    }

    /// Returns whether no run of a part of the job is left.
    pub(super) fn are_parts_over(&self, job: &str) -> bool {
        self.table.parts_of(job).filter_map(|id| self.table.get(id)).all(LedJob::is_over)
    }

    /// Returns the payload of a run of a job for every worker: the workers to which it is handed out.
    pub(super) fn parts_named(&self, job: &str) -> Option<Payload> {
        let parts = self.table.parts_of(job).filter_map(|id| self.table.get(id));
        handed_out_to(parts.map(|led| &*led.job().name))
    }

    /// Returns the job and its parts.
    pub(super) fn with_parts(&self, id: JobId) -> Vec<JobId> {
        let Some(led) = self.table.get(id) else { return Vec::new() };
        [id].into_iter().chain(self.table.parts_of(&led.job().name)).collect()
    }
}
