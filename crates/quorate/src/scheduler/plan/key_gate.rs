//! The active runs of each concurrency key, and the jobs that wait for one.

use crate::scheduler::plan::job_id::JobId;
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

/// The concurrency keys of the leader's jobs. A run has its key from its start, or from its opening to workers, until the
/// leader has recorded its end. So the limit holds for the runs of all workers. No run with a key starts while the leader
/// does not know yet which open runs have one.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct KeyGate {
    is_closed: bool,
    active: BTreeMap<Arc<str>, usize>,
    waiting: BTreeMap<Arc<str>, BTreeSet<JobId>>,
}

impl KeyGate {
    /// Returns whether no further run with the key may start.
    pub(in crate::scheduler) fn is_full(&self, key: &str, limit: usize) -> bool {
        self.is_closed || self.active.get(key).is_some_and(|active| *active >= limit)
    }

    /// Closes the gate, or opens it. Returns the keys for which jobs wait, if it has just been opened.
    pub(in crate::scheduler) fn set_closed(&mut self, is_closed: bool) -> Vec<Arc<str>> {
        match mem::replace(&mut self.is_closed, is_closed) && !is_closed {
            true => self.waited_for(),
            false => Vec::new(),
        }
    }

    /// Returns the keys for which jobs wait.
    pub(in crate::scheduler) fn waited_for(&self) -> Vec<Arc<str>> {
        self.waiting.keys().cloned().collect()
    }

    /// Returns whether a job waits for a key.
    pub(in crate::scheduler) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Notes that a run of the job waits for the key.
    pub(in crate::scheduler) fn wait(&mut self, key: &Arc<str>, job: JobId) {
        self.waiting.entry(Arc::clone(key)).or_default().insert(job);
    }

    /// Notes the start of a run with the key.
    pub(in crate::scheduler) fn begin(&mut self, key: &Arc<str>) {
        *self.active.entry(Arc::clone(key)).or_default() += 1;
    }

    /// Notes the end of a run with the key.
    pub(in crate::scheduler) fn end(&mut self, key: &Arc<str>) {
        if let Some(active) = self.active.get_mut(key) {
            *active -= 1;
            if *active == 0 {
                self.active.remove(key);
            }
        }
    }

    /// Returns the jobs that wait for the key.
    pub(in crate::scheduler) fn waiting(&self, key: &str) -> impl Iterator<Item = JobId> {
        self.waiting.get(key).into_iter().flatten().copied()
    }

    /// Notes that a job does not wait for the key any more.
    pub(in crate::scheduler) fn stop_waiting(&mut self, key: &str, job: JobId) {
        if let Some(jobs) = self.waiting.get_mut(key) {
            jobs.remove(&job);
            if jobs.is_empty() {
                self.waiting.remove(key);
            }
        }
    }
}
