//! The jobs that run on every worker, and the workers. Without I/O.

use crate::scheduler::{
    job::{Job, in_name, whole_and_worker, whole_of},
    policy::Placement,
    run::assign::LiveWorker,
};
use std::{collections::BTreeMap, sync::Arc};

/// The leader's jobs that run on every worker. For each of them and each worker that has it, the leader has a *part*: a job
/// that follows it, and that only this worker runs.
#[derive(Debug)]
pub(in crate::scheduler) struct EveryJobs {
    jobs: BTreeMap<Arc<str>, Arc<Job>>,
    /// The sessions of each worker, by what follows `@` in the names of its parts.
    workers: BTreeMap<Arc<str>, Vec<LiveWorker>>,
    /// True once the leader has looked which workers live. The ledger has those that an earlier leader knew.
    is_known: bool,
}

impl EveryJobs {
    /// Creates an empty set of jobs, with the workers that the ledger has.
    pub(in crate::scheduler) fn new(workers: Vec<LiveWorker>) -> Self {
        Self { jobs: BTreeMap::new(), workers: by_name(workers), is_known: false }
    }

    /// Adds a job, or changes it. Returns the jobs in its place, the whole after the parts.
    pub(in crate::scheduler) fn put(&mut self, job: &Arc<Job>) -> Vec<Arc<Job>> {
        if job.rules.placement != Placement::EveryWorker {
            self.jobs.remove(&job.name);
            return vec![Arc::clone(job)];
        }
        self.jobs.insert(Arc::clone(&job.name), Arc::clone(job));
        let parts = self.parts_of(job);
        parts.chain([Arc::new(job.whole())]).collect()
    }

    /// Removes a job.
    pub(in crate::scheduler) fn remove(&mut self, name: &str) {
        self.jobs.remove(name);
    }

    pub(in crate::scheduler) fn clear(&mut self) {
        self.jobs.clear();
    }

    /// Notes the workers that live.
    pub(in crate::scheduler) fn set_workers(&mut self, workers: Vec<LiveWorker>) {
        (self.workers, self.is_known) = (by_name(workers), true);
    }

    /// Returns whether the leader has looked which workers live.
    pub(in crate::scheduler) fn is_known(&self) -> bool {
        self.is_known
    }

    pub(in crate::scheduler) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Returns the names of the jobs.
    pub(in crate::scheduler) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.jobs.keys()
    }

    /// Returns all parts.
    pub(in crate::scheduler) fn parts(&self) -> impl Iterator<Item = Arc<Job>> {
        self.jobs.values().flat_map(|job| self.parts_of(job))
    }

    /// Returns whether `name` is that of a part of one of these jobs.
    pub(in crate::scheduler) fn is_part(&self, name: &str) -> bool {
        whole_of(name).is_some_and(|whole| self.jobs.contains_key(whole))
    }

    /// Returns whether a worker runs the part `name`.
    pub(in crate::scheduler) fn has_part(&self, name: &str) -> bool {
        let find = |(whole, worker): (&str, &str)| Some((self.jobs.get(whole)?, self.workers.get(worker)?));
        let found = whole_and_worker(name).and_then(find);
        found.is_some_and(|(job, sessions)| sessions.iter().any(|session| session.has(job, name)))
    }

    fn parts_of(&self, job: &Job) -> impl Iterator<Item = Arc<Job>> {
        let named = self.workers.values().filter_map(|sessions| Some((sessions.first()?.name(), sessions)));
        let parts = named.map(|(worker, sessions)| (job.part(worker), sessions));
        let has = |(part, sessions): &(Job, &Vec<LiveWorker>)| {
            sessions.iter().any(|session| session.has(job, &part.name))
        };
        let parts: Vec<Arc<Job>> = parts.filter(has).map(|(part, _)| Arc::new(part)).collect();
        parts.into_iter()
    }
}

fn by_name(workers: Vec<LiveWorker>) -> BTreeMap<Arc<str>, Vec<LiveWorker>> {
    let mut by_name = BTreeMap::<_, Vec<LiveWorker>>::new();
    for worker in workers {
        by_name.entry(in_name(worker.name()).into()).or_default().push(worker);
    }
    by_name
}
