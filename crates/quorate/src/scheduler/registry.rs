use crate::scheduler::{Job, RunCounts, counts::Counts};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// The jobs of one scheduler, which may change while it runs: shared by the scheduler, its handles, and the leader.
#[derive(Clone, Debug)]
pub(super) struct JobRegistry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    jobs: Mutex<BTreeMap<Arc<str>, Arc<Job>>>,
    /// How often the jobs have changed.
    version: watch::Sender<u64>,
    phase: watch::Sender<Phase>,
    /// How many terms the jobs are led in.
    leads: Mutex<usize>,
    /// How many runs of the scheduler there are: of `until` or `lead`.
    users: watch::Sender<usize>,
    counts: Counts,
    /// Held by the task that vouches for the jobs.
    vouching: tokio::sync::Mutex<()>,
}

/// Whether runs may be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// Nothing more is started.
    Draining,
    /// And all that ran has ended.
    Drained,
}

/// One who leads the jobs; dropping it is the end of the lead, however it came.
#[derive(Debug)]
pub(super) struct Lead(JobRegistry);

/// One who uses the registry; dropping it is the end of the use.
#[derive(Debug)]
pub(super) struct User(JobRegistry);

impl JobRegistry {
    pub(super) fn new(jobs: &[Job]) -> Self {
        let jobs = jobs.iter().map(|job| (Arc::clone(job.name()), Arc::new(job.clone()))).collect();
        Self(Arc::new(Inner {
            jobs: Mutex::new(jobs),
            version: watch::Sender::new(0),
            phase: watch::Sender::new(Phase::Open),
            leads: Mutex::new(0),
            users: watch::Sender::new(0),
            counts: Counts::default(),
            vouching: tokio::sync::Mutex::new(()),
        }))
    }

    /// The jobs, by name.
    pub(super) fn jobs(&self) -> BTreeMap<Arc<str>, Arc<Job>> {
        self.lock().clone()
    }

    /// Changes the jobs as a whole, and tells the leader; unless `change` refuses.
    pub(super) fn change<T, E>(
        &self,
        change: impl FnOnce(&mut BTreeMap<Arc<str>, Arc<Job>>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut jobs = self.lock();
        let mut changed = jobs.clone();
        let result = change(&mut changed)?;
        *jobs = changed;
        self.0.counts.forget_all_but(&jobs);
        drop(jobs);
        self.0.version.send_modify(|version| *version += 1);
        Ok(result)
    }

    /// Wakes whenever the jobs or the phase have changed.
    pub(super) fn watch(&self) -> (watch::Receiver<u64>, watch::Receiver<Phase>) {
        (self.0.version.subscribe(), self.0.phase.subscribe())
    }

    pub(super) fn phase(&self) -> Phase {
        *self.0.phase.borrow()
    }

    /// Nothing more is started from now on; where nobody leads, nothing runs either.
    pub(super) fn drain(&self) {
        let leads = self.leads();
        self.advance(if *leads == 0 { Phase::Drained } else { Phase::Draining });
    }

    /// Begins to lead the jobs; not once they are being drained.
    pub(super) fn lead(&self) -> Option<Lead> {
        let mut leads = self.leads();
        if self.phase() != Phase::Open {
            return None;
        }
        *leads += 1;
        Some(Lead(self.clone()))
    }

    /// Goes on to a later phase; there is no way back.
    fn advance(&self, to: Phase) {
        self.0.phase.send_if_modified(|phase| {
            let later =
                matches!((*phase, to), (Phase::Open, _) | (Phase::Draining, Phase::Drained)) && *phase != to;
            if later {
                *phase = to;
            }
            later
        });
    }

    /// Waits for a phase, or a later one.
    pub(super) async fn reached(&self, wanted: Phase) {
        let mut phase = self.0.phase.subscribe();
        let reached = |phase: &Phase| *phase == wanted || *phase == Phase::Drained;
        // The sender lives as long as this does.
        let _ = phase.wait_for(reached).await;
    }

    pub(super) fn enter(&self) -> User {
        self.0.users.send_modify(|users| *users += 1);
        User(self.clone())
    }

    /// Waits until nobody uses it.
    pub(super) async fn left(&self) {
        let _ = self.0.users.subscribe().wait_for(|users| *users == 0).await;
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// How ticks have ended, of the jobs that there are.
    pub(super) fn look_at_counts(&self) -> RunCounts {
        // A job that was removed may have had its last end after that.
        self.0.counts.forget_all_but(&self.lock());
        self.0.counts.look()
    }

    /// Whose turn it is to vouch for the jobs.
    pub(super) fn vouching(&self) -> &tokio::sync::Mutex<()> {
        &self.0.vouching
    }

    /// Held while the phase is looked at and changed: the end of the last lead is that of the draining.
    fn leads(&self) -> MutexGuard<'_, usize> {
        self.0.leads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Job>>> {
        self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        let mut leads = self.0.leads();
        *leads -= 1;
        if *leads == 0 && self.0.phase() != Phase::Open {
            self.0.advance(Phase::Drained);
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.0.0.users.send_modify(|users| *users -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_lead_is_drained_at_once_and_leads_no_more() {
        let registry = JobRegistry::new(&[]);
        drop(registry.lead());
        assert_eq!(registry.phase(), Phase::Open);
        registry.drain();
        assert_eq!(registry.phase(), Phase::Drained);
        assert!(registry.lead().is_none());
    }

    #[test]
    fn a_drain_ends_with_the_last_lead_however_that_ends() {
        let registry = JobRegistry::new(&[]);
        let leads = [registry.lead(), registry.lead()];
        registry.drain();
        assert_eq!(registry.phase(), Phase::Draining);
        assert!(registry.lead().is_none(), "a later term starts nothing");
        let [first, second] = leads;
        drop(first);
        assert_eq!(registry.phase(), Phase::Draining);
        drop(second);
        assert_eq!(registry.phase(), Phase::Drained);
    }
}
