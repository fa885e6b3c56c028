use crate::scheduler::{
    alert::AlertHook,
    counts::{Counts, RunCounts},
    job::{Handler, Job, Work},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// The jobs of a scheduler at one moment, by name.
pub(in crate::scheduler) type JobMap = Arc<BTreeMap<Arc<str>, Arc<Job>>>;

/// The jobs of one scheduler, which may change while the scheduler runs. The scheduler, its handles and the
/// leader share one registry.
#[derive(Clone, Debug)]
pub(super) struct JobRegistry(Arc<Inner>);

/// The functions that this process has registered for jobs which name their handler, and the function for the alerts of jobs
/// that are stored on the nodes.
#[derive(Clone, Default)]
pub(in crate::scheduler) struct Handlers {
    pub(super) functions: BTreeMap<Arc<str>, Handler>,
    pub(super) on_alert: Option<AlertHook>,
}

impl Handlers {
    /// Returns the job with its function, if this process has it, and with the function for alerts.
    pub(in crate::scheduler) fn resolve(&self, mut job: Job) -> Job {
        if let Work::Named(name) = &job.work
            && let Some(function) = self.functions.get(name)
        {
            job.work = Work::Found(Arc::clone(name), Arc::clone(function));
        }
        job.on_alert.clone_from(&self.on_alert);
        job
    }

    pub(in crate::scheduler) fn names(&self) -> Vec<Arc<str>> {
        self.functions.keys().cloned().collect()
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.functions.keys()).finish()
    }
}

#[derive(Debug)]
struct Inner {
    handlers: Handlers,
    /// The names of the jobs that are stored on the nodes for more than one run, while this scheduler leads.
    on_nodes: Mutex<BTreeSet<Arc<str>>>,
    /// The present jobs. A change replaces the whole map, and a reader clones only the `Arc`. This keeps reads
    /// cheap: the event loops of the leader and of the worker read the map often.
    jobs: Mutex<JobMap>,
    /// The number of changes of the jobs so far. Each change notifies the receivers, such as the leader's event
    /// loop.
    version: watch::Sender<u64>,
    phase: watch::Sender<Phase>,
    /// The number of terms under which this scheduler plans the jobs now. Each such term has a [`LeadGuard`].
    leads: Mutex<usize>,
    /// The number of calls of `SchedulerRun::until` and `Scheduler::lead` that have not returned.
    users: watch::Sender<usize>,
    counts: Counts,
    /// The jobs whose rows the ledger had when this scheduler last planned them, in this term or an earlier one.
    stored: Mutex<BTreeSet<Arc<str>>>,
    /// A lock that is held by the task that refreshes the retention of the jobs' data. Several calls of `until`
    /// share the registry and start such a task each, but one task at a time suffices.
    vouching: tokio::sync::Mutex<()>,
}

/// The phases in the life of a scheduler, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Runs may start.
    Open,
    /// No further run starts.
    Draining,
    /// All runs that this scheduler planned have ended.
    Drained,
}

/// A guard for one term under which this scheduler plans the jobs. Dropping this guard reports to the registry
/// that this scheduler no longer plans jobs under that term.
#[derive(Debug)]
pub(super) struct LeadGuard(JobRegistry);

/// A guard for one call of `until` or `lead`. Dropping this guard reports to the registry that the call has
/// ended.
#[derive(Debug)]
pub(super) struct UseGuard(JobRegistry);

impl JobRegistry {
    /// Creates the registry of the group's jobs. `nodes` are the names of the nodes.
    pub(super) fn new(group: &Arc<str>, nodes: &[Arc<str>], jobs: &[Job], handlers: Handlers) -> Self {
        let counts = Counts::new(group, nodes);
        counts.measures().add(jobs.iter().map(Job::name));
        let jobs = jobs.iter().map(|job| (Arc::clone(job.name()), Arc::new(job.clone()))).collect();
        Self(Arc::new(Inner {
            handlers,
            on_nodes: Mutex::default(),
            jobs: Mutex::new(Arc::new(jobs)),
            version: watch::Sender::new(0),
            phase: watch::Sender::new(Phase::Open),
            leads: Mutex::new(0),
            users: watch::Sender::new(0),
            counts,
            stored: Mutex::default(),
            vouching: tokio::sync::Mutex::new(()),
        }))
    }

    pub(super) fn jobs(&self) -> JobMap {
        Arc::clone(&self.lock())
    }

    pub(super) fn handlers(&self) -> &Handlers {
        &self.0.handlers
    }

    /// Returns the names of the jobs for which this worker vouches: its own, and those on the nodes while it leads.
    pub(super) fn names(&self) -> BTreeSet<Arc<str>> {
        self.jobs().keys().cloned().chain(self.on_nodes().iter().cloned()).collect()
    }

    /// Lets the leader note that a job is stored on the nodes, or no longer is.
    pub(super) fn note_on_nodes(&self, job: &Arc<str>, is_stored: bool) {
        let mut on_nodes = self.on_nodes();
        match is_stored {
            true => drop(on_nodes.insert(Arc::clone(job))),
            false => drop(on_nodes.remove(job)),
        }
    }

    /// Returns the names of the jobs that are stored on the nodes.
    pub(super) fn on_nodes(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.0.on_nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_present(&self, name: &str, jobs: &JobMap) -> bool {
        jobs.contains_key(name)
            || self.on_nodes().contains(name)
            || self.0.handlers.functions.contains_key(name)
    }

    /// Notes that the ledger has the rows of all present jobs.
    pub(super) fn note_stored(&self) {
        let jobs = self.jobs();
        *self.stored() = jobs.keys().cloned().collect();
    }

    /// Returns whether the ledger had a row of this job when this scheduler planned it before.
    pub(super) fn was_stored(&self, job: &str) -> bool {
        self.stored().contains(job)
    }

    fn stored(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.0.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `change` modify a copy of the map of jobs, replaces the map with the copy, and notifies the leader.
    /// If `change` returns an error, the map does not change.
    pub(super) fn change<T, E>(
        &self,
        change: impl FnOnce(&mut BTreeMap<Arc<str>, Arc<Job>>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut jobs = self.lock();
        let mut changed = BTreeMap::clone(&jobs);
        let result = change(&mut changed)?;
        *jobs = Arc::new(changed);
        let present = Arc::clone(&jobs);
        // The event loops wait for the lock, and the measurements of many new jobs take a while.
        drop(jobs);
        // A leader removes the row of a removed job. If the job is added again, it is a new job.
        self.stored().retain(|job| present.contains_key(job));
        self.0.counts.forget_all_but(|job| self.is_present(job, &present));
        self.0.counts.measures().add(present.keys());
        self.0.version.send_modify(|version| *version += 1);
        Ok(result)
    }

    /// Returns receivers that are notified when the jobs or the phase change.
    pub(super) fn watch(&self) -> (watch::Receiver<u64>, watch::Receiver<Phase>) {
        (self.0.version.subscribe(), self.0.phase.subscribe())
    }

    pub(super) fn phase(&self) -> Phase {
        *self.0.phase.borrow()
    }

    /// Begins the draining: from now on no further run starts. If this worker does not lead, it has no planned
    /// runs, and the phase becomes *drained* at once. The worker's task `take_runs` still waits for the open
    /// runs that the worker has started.
    pub(super) fn drain(&self) {
        let leads = self.leads();
        self.advance(if *leads == 0 { Phase::Drained } else { Phase::Draining });
    }

    /// Registers that this scheduler begins to plan the jobs under a term. Returns `None` if the draining of
    /// the scheduler has begun.
    pub(super) fn lead(&self) -> Option<LeadGuard> {
        let mut leads = self.leads();
        if self.phase() != Phase::Open {
            return None;
        }
        *leads += 1;
        Some(LeadGuard(self.clone()))
    }

    /// Changes to the phase `to`, unless the present phase is later.
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

    /// Waits until the scheduler is in the phase `goal`, or a later one.
    pub(super) async fn reached(&self, goal: Phase) {
        let mut phase = self.0.phase.subscribe();
        let reached = |phase: &Phase| *phase == goal || *phase == Phase::Drained;
        // `wait_for` fails only if the sender was dropped, and `self` owns the sender.
        let _ = phase.wait_for(reached).await;
    }

    pub(super) fn enter(&self) -> UseGuard {
        self.0.users.send_modify(|users| *users += 1);
        UseGuard(self.clone())
    }

    /// Waits until no call of `until` or `lead` is active.
    pub(super) async fn unused(&self) {
        let _ = self.0.users.subscribe().wait_for(|users| *users == 0).await;
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// Returns the counts of the present jobs.
    pub(super) fn snapshot_counts(&self) -> RunCounts {
        // The last run of a removed job may end after the removal. That end creates counts for the job again.
        let jobs = self.jobs();
        self.0.counts.forget_all_but(|job| self.is_present(job, &jobs));
        self.0.counts.snapshot()
    }

    /// Returns the lock for the task that refreshes the retention of the jobs' data.
    pub(super) fn vouching(&self) -> &tokio::sync::Mutex<()> {
        &self.0.vouching
    }

    /// Locks the number of terms under which this scheduler plans jobs. The phase changes only under this lock.
    /// So when the guard of the last term is dropped during the draining, the phase becomes *drained*, and no
    /// other term can begin at that moment.
    fn leads(&self) -> MutexGuard<'_, usize> {
        self.0.leads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, JobMap> {
        self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LeadGuard {
    fn drop(&mut self) {
        let mut leads = self.0.leads();
        *leads -= 1;
        if *leads == 0 {
            self.0.on_nodes().clear();
            self.0.counts().measures().follows();
        }
        if *leads == 0 && self.0.phase() != Phase::Open {
            self.0.advance(Phase::Drained);
        }
    }
}

impl Drop for UseGuard {
    fn drop(&mut self) {
        self.0.0.users.send_modify(|users| *users -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_does_not_lead_is_drained_at_once_and_cannot_lead_again() {
        let registry = JobRegistry::new(&"g".into(), &[], &[], Handlers::default());
        drop(registry.lead());
        assert_eq!(registry.phase(), Phase::Open);
        registry.drain();
        assert_eq!(registry.phase(), Phase::Drained);
        assert!(registry.lead().is_none());
    }

    #[test]
    fn a_job_that_was_removed_is_no_longer_known() {
        let job = |name: &str| {
            let schedule =
                crate::scheduler::schedule::Schedule::every(std::time::Duration::from_secs(1)).unwrap();
            Job::new(name, schedule, |_| async { Ok::<(), String>(()) })
        };
        let registry = JobRegistry::new(&"g".into(), &[], &[job("a"), job("b")], Handlers::default());
        assert!(!registry.was_stored("a"));
        registry.note_stored();
        registry.change(|jobs| Ok::<_, String>(jobs.remove("b"))).unwrap();
        registry.change(|jobs| Ok::<_, String>(jobs.insert("b".into(), Arc::new(job("b"))))).unwrap();
        assert!(registry.was_stored("a") && !registry.was_stored("b"));
    }

    #[test]
    fn draining_ends_with_the_last_lead() {
        let registry = JobRegistry::new(&"g".into(), &[], &[], Handlers::default());
        let leads = [registry.lead(), registry.lead()];
        registry.drain();
        assert_eq!(registry.phase(), Phase::Draining);
        assert!(registry.lead().is_none(), "a later term cannot lead");
        let [first, second] = leads;
        drop(first);
        assert_eq!(registry.phase(), Phase::Draining);
        drop(second);
        assert_eq!(registry.phase(), Phase::Drained);
    }
}
