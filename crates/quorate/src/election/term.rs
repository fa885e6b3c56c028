use super::impediment::Impediment;
use crate::{
    config::QuorumConfig,
    env::{BootTime, Env, ScopedTask, WallTime},
    lease::{Bell, Lease, LeaseError, LeaseLost, StepDownCause},
    node::FencingToken,
    quorum::Quorum,
    vote::NoMajority,
};
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// One term of a leader. [`Election::run`](super::Election::run) passes it to the work. Clones are the same
/// term, and do not prolong it.
///
/// ```
/// use quorate::{Election, Quorum, node::MemoryNode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// let election = Election::new(&quorum, "billing").end_on_error();
/// let led = election.run(|term| async move {
///     term.spawn(async { /* a helper that ends with the term */ });
///     let token = term.fencing_token().map_err(|error| error.to_string())?; // pass it to the write
///     Err::<(), String>(format!("wrote under {token}"))
/// });
/// assert!(led.await.unwrap_err().to_string().contains("wrote under"));
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Term(Arc<Inner>);

struct Inner {
    quorum: Quorum,
    lease: Lease,
    /// The time, on the quorum's clock, at which the leader sent the request that elected it.
    began: WallTime,
    /// The bell that rings when there is a request for the leader on the nodes.
    bell: Bell,
    step_down: CancellationToken,
    group: Arc<str>,
    tasks: TaskTracker,
    /// Cancelled when the work has ended, so that the tasks of [`Term::spawn`] end too.
    tasks_end: CancellationToken,
    /// Cancelled when the leader must resign.
    resigning: CancellationToken,
    /// The worker to which the leader transfers its lease when it resigns. `None` if it only releases the
    /// lease.
    successor: Mutex<Option<Arc<str>>>,
    /// The time by which the work must end because of a shutdown or a resignation, in nanoseconds of the boot
    /// clock.
    stop_by: AtomicU64,
    /// True once the leader has given up the lead.
    given_up: AtomicBool,
    impediment: Arc<Impediment>,
}

impl Term {
    pub(super) fn new(quorum: Quorum, group: Arc<str>, lease: Lease, impediment: Arc<Impediment>) -> Self {
        let step_down = lease.step_down_token().child_token();
        let bell = Bell::new(quorum.inner(), lease.resource().bell());
        let began = quorum.wall() - lease.acquired_at().until(quorum.env().now());
        Self(Arc::new(Inner {
            quorum,
            lease,
            began,
            bell,
            step_down,
            group,
            tasks: TaskTracker::new(),
            tasks_end: CancellationToken::new(),
            resigning: CancellationToken::new(),
            successor: Mutex::new(None),
            stop_by: AtomicU64::new(u64::MAX),
            given_up: AtomicBool::new(false),
            impediment,
        }))
    }

    /// Returns the fencing token if the term is valid at this moment. Pass it to the write that follows.
    ///
    /// # Errors
    /// [`LeaseLost`] once the term has ended.
    pub fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        self.0.lease.fencing_token()
    }

    /// Returns the fencing token, which is also the number of the term, even if the term has ended.
    pub fn unchecked_token(&self) -> FencingToken {
        self.0.lease.unchecked_token()
    }

    /// Returns the time, on the quorum's clock, at which the leader sent the request that elected it.
    pub(crate) fn began(&self) -> WallTime {
        self.0.began
    }

    /// Returns the bell that rings when there is a request for the leader on the nodes.
    pub(crate) fn bell(&self) -> &Bell {
        &self.0.bell
    }

    /// Returns the name of the group that is led.
    pub fn group(&self) -> &Arc<str> {
        &self.0.group
    }

    /// Returns whether the term is valid at this moment.
    pub fn is_valid(&self) -> bool {
        self.0.lease.is_valid()
    }

    /// Returns how long the term is valid from now on if no extension succeeds.
    pub fn remaining(&self) -> Duration {
        self.0.lease.remaining()
    }

    /// Returns the time, on this worker's boot clock, at which the term ends if no extension succeeds.
    /// Returns `None` if the term has ended.
    pub fn valid_until(&self) -> Option<BootTime> {
        self.0.lease.valid_until()
    }

    /// Returns the time until which the work may run, or `None` if the term has ended. In general this is the
    /// end of the term. If a shutdown or a resignation has begun, the end of the grace period is returned if
    /// it is earlier. Work that runs longer is dropped. Other processes that act for the work must have ended
    /// by then.
    pub fn work_until(&self) -> Option<BootTime> {
        let stop_by = BootTime::from_nanos(self.0.stop_by.load(Ordering::Acquire));
        self.valid_until().map(|until| until.min(stop_by))
    }

    /// Returns the token that is cancelled when the work should finish: at a shutdown, at a resignation, or
    /// `step_down_grace` before validity ends.
    pub fn step_down_token(&self) -> &CancellationToken {
        &self.0.step_down
    }

    /// Returns the token that is cancelled when validity ends.
    pub fn lost_token(&self) -> &CancellationToken {
        self.0.lease.lost_token()
    }

    /// Resigns: asks the work to stop within the grace period, and then releases the lease. The candidate
    /// campaigns again after its back-off. The call returns at once.
    pub fn resign(&self) {
        self.0.resigning.cancel();
    }

    /// Resigns because this worker cannot do the leader's work, so that another worker may lead. The candidate does not
    /// campaign again for one TTL, or longer if this happens again and again.
    pub(crate) fn give_up(&self) {
        self.0.given_up.store(true, Ordering::Release);
        self.resign();
    }

    /// Sets the reason why this worker cannot do the leader's work. `None` if it can.
    pub(crate) fn set_impediment(&self, why: Option<Arc<str>>) {
        self.0.impediment.set(why);
    }

    /// Resigns as [`Term::resign`] does, and then hands the lease over to the candidate of the worker called
    /// `worker`, as [`Lease::transfer_to`] does. The call returns at once.
    /// [`ElectionEvent::HandedOver`](super::ElectionEvent::HandedOver) reports the result.
    ///
    /// # Errors
    /// [`LeaseError`] if no worker can have that name, or if the term has ended. In both cases nothing
    /// happens.
    pub fn transfer_to(&self, worker: &str) -> Result<(), LeaseError> {
        QuorumConfig::validate_worker("the successor", worker)?;
        self.fencing_token()?;
        *self.0.successor.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker.into());
        self.resign();
        Ok(())
    }

    /// Starts a task that ends with the term. When the work has ended, or the term is lost, the task is
    /// dropped at its next await point. The lease is released only after the task has been dropped, unless
    /// the term is lost. A task of `tokio::spawn` would outlive the term.
    ///
    /// To let the task finish its work, watch [`Term::step_down_token`] in the task, and let the term's work
    /// wait for the task. A panic ends only that task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let (lost, end) = (self.lost_token().clone(), self.0.tasks_end.clone());
        let bounded = async move {
            tokio::select! { biased;
                () = lost.cancelled() => {}
                () = end.cancelled() => {}
                () = task => {}
            }
        };
        self.env().spawn(self.0.tasks.track_future(bounded));
    }

    /// Lets the lease expire at the end of this term, instead of releasing it or handing it over. No other
    /// leader is elected before the lease's TTL is over. Use this for work that may still run then and cannot
    /// be ended, such as a process of another user. The call cannot be undone.
    pub fn end_without_release(&self) {
        self.0.lease.keep_keys();
    }

    /// Returns the reason why the lease asked the work to stop. Returns `None` if the lease did not, for
    /// example at a shutdown.
    pub fn step_down_cause(&self) -> Option<StepDownCause> {
        self.0.lease.step_down_cause()
    }

    /// Returns the answer of each node to the extensions that failed, if the lease asked the work to stop because
    /// of them ([`StepDownCause::NotExtended`]).
    pub fn failed_extension(&self) -> Option<&NoMajority> {
        self.0.lease.failed_extension()
    }

    /// Returns the quorum that grants the leader's lease.
    pub fn quorum(&self) -> &Quorum {
        &self.0.quorum
    }

    /// Returns the token that is cancelled when the leader must resign.
    pub(super) fn resigning(&self) -> &CancellationToken {
        &self.0.resigning
    }

    pub(super) fn has_given_up(&self) -> bool {
        self.0.given_up.load(Ordering::Acquire)
    }

    /// Returns whether [`Term::end_without_release`] was called.
    pub(super) fn is_unreleased(&self) -> bool {
        self.0.lease.keeps_keys()
    }

    /// Returns the worker to which the leader transfers its lease when it resigns, if there is one.
    pub(super) fn successor(&self) -> Option<Arc<str>> {
        self.0.successor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts a task that ends when its handle is dropped. The lease is released only after the task has
    /// ended.
    pub(crate) fn spawn_scoped<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> ScopedTask<T> {
        self.env().spawn_scoped(self.0.tasks.track_future(work))
    }

    /// Asks the work to stop, and sets the time `by` which it must have ended.
    pub(super) fn stop(&self, by: BootTime) {
        self.0.stop_by.fetch_min(by.as_nanos(), Ordering::AcqRel);
        self.0.step_down.cancel();
    }

    /// Asks the tasks of [`Term::spawn`] to end.
    pub(super) fn end_tasks(&self) {
        self.0.tasks_end.cancel();
    }

    /// Waits until every task of the term has ended.
    pub(super) async fn tasks_ended(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    pub(crate) fn env(&self) -> &Env {
        self.quorum().env()
    }

    pub(super) fn lease(&self) -> &Lease {
        &self.0.lease
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("group", &self.0.group)
            .field("token", &self.unchecked_token())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// A guard of a term. When the campaign drops it, the term's lease ends, even if clones of the term still
/// exist.
pub(super) struct TermGuard(pub(super) Term);

impl Drop for TermGuard {
    fn drop(&mut self) {
        self.0.end_tasks();
        if self.0.is_unreleased() {
            return self.0.lease().forget();
        }
        self.0.lease().post_release(None);
    }
}
