use crate::{
    config::QuorumConfig,
    env::{BootTime, Env, ScopedTask},
    lease::{Lease, LeaseLost, StepDownCause, TransferError},
    node::FencingToken,
    quorum::Quorum,
};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// One tenure of a leader. Clones are the same term; none of them keeps it alive.
#[derive(Clone, Debug)]
pub struct Term(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    quorum: Quorum,
    lease: Lease,
    step_down: CancellationToken,
    group: Arc<str>,
    tasks: TaskTracker,
    /// Fires when the leader is to resign in good order.
    leaving: CancellationToken,
    /// To whom it then hands over.
    heir: Mutex<Option<Arc<str>>>,
    /// Whether the lease is left to run out when the term ends.
    unreleased: AtomicBool,
    /// Until when the work has time once it is told to resign; nanoseconds of the boot clock.
    stop_by: AtomicU64,
}

impl Term {
    pub(super) fn new(quorum: Quorum, group: Arc<str>, lease: Lease) -> Self {
        let step_down = lease.step_down_token().child_token();
        Self(Arc::new(Inner {
            quorum,
            lease,
            step_down,
            group,
            tasks: TaskTracker::new(),
            leaving: CancellationToken::new(),
            heir: Mutex::new(None),
            unreleased: AtomicBool::new(false),
            stop_by: AtomicU64::new(u64::MAX),
        }))
    }

    /// The fencing token, if the term is still ours at this moment: pass it to the write that follows.
    ///
    /// # Errors
    /// [`LeaseLost`] once the term has ended.
    pub fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        self.0.lease.fencing_token()
    }

    /// The term's number, whether or not it still runs: its fencing token.
    pub fn token(&self) -> FencingToken {
        self.0.lease.token()
    }

    /// The group that is led.
    pub fn group(&self) -> &Arc<str> {
        &self.0.group
    }

    /// Whether the term is ours at this moment.
    pub fn is_valid(&self) -> bool {
        self.0.lease.is_valid()
    }

    /// How long the term is ours from now on if no extension succeeds.
    pub fn remaining(&self) -> Duration {
        self.0.lease.remaining()
    }

    /// When the term ends on this worker's boot clock if no extension succeeds; `None` once it has.
    pub fn valid_until(&self) -> Option<BootTime> {
        self.0.lease.valid_until()
    }

    /// Until when the work may run: the end of the term, or of the grace once the leader is told to resign;
    /// `None` once the term has ended. What runs longer is dropped, and what other processes do for it must
    /// have ended by then.
    pub fn work_until(&self) -> Option<BootTime> {
        let stop_by = BootTime::from_nanos(self.0.stop_by.load(Ordering::Acquire));
        self.valid_until().map(|until| until.min(stop_by))
    }

    /// Fires when the work should finish: at a shutdown, or some time before validity ends.
    pub fn step_down_token(&self) -> &CancellationToken {
        &self.0.step_down
    }

    /// Fires when validity ends.
    pub fn lost_token(&self) -> &CancellationToken {
        self.0.lease.lost_token()
    }

    /// Has the leader resign in good order: the work is told to stop and has the grace to end, then the lease is
    /// released. The candidate campaigns again after its back-off. Does not wait.
    pub fn resign(&self) {
        self.0.leaving.cancel();
    }

    /// As [`Term::resign`], and then hands over to the candidate of the worker called `worker`, as
    /// [`Lease::transfer_to`] does. Does not wait: what came of it is
    /// [`ElectionEvent::HandedOver`](super::ElectionEvent::HandedOver).
    ///
    /// # Errors
    /// [`TransferError`] where no worker can be called so, or the term has ended: then nothing happens.
    pub fn transfer_to(&self, worker: &str) -> Result<(), TransferError> {
        QuorumConfig::validate_worker("the heir", worker)?;
        self.fencing_token()?;
        *self.0.heir.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker.into());
        self.resign();
        Ok(())
    }

    /// Has the lease run out when this term ends, instead of being released or handed over: no other leader is elected
    /// before its TTL is over. For work that may still run then and cannot be ended, such as a process of another user.
    /// Cannot be taken back.
    pub fn end_without_release(&self) {
        self.0.unreleased.store(true, Ordering::Release);
    }

    /// Why the work was told to stop, where the lease was what ended; `None` while it goes on.
    pub fn step_down_cause(&self) -> Option<StepDownCause> {
        self.0.lease.step_down_cause()
    }

    /// The quorum by which the term is held.
    pub fn quorum(&self) -> &Quorum {
        &self.0.quorum
    }

    /// Fires when the leader is to resign.
    pub(super) fn leaving(&self) -> &CancellationToken {
        &self.0.leaving
    }

    /// Whether [`Term::end_without_release`] was called.
    pub(super) fn is_unreleased(&self) -> bool {
        self.0.unreleased.load(Ordering::Acquire)
    }

    /// To whom the lease goes when the term ends.
    pub(super) fn heir(&self) -> Option<Arc<str>> {
        self.0.heir.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts a task that ends when its handle is dropped, and for whose end the resignation waits.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> ScopedTask<T> {
        self.env().spawn_scoped(self.0.tasks.track_future(work))
    }

    /// Tells the work to end, and until when it has time.
    pub(super) fn stop(&self, by: BootTime) {
        self.0.stop_by.fetch_min(by.as_nanos(), Ordering::AcqRel);
        self.0.step_down.cancel();
    }

    /// Waits until every task of the term has ended.
    pub(super) async fn ended(&self) {
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

/// Ends the term's lease when the campaign lets go of it, whoever still has a clone.
#[derive(Debug)]
pub(super) struct TermGuard(pub(super) Term);

impl Drop for TermGuard {
    fn drop(&mut self) {
        if self.0.is_unreleased() {
            return self.0.lease().forget();
        }
        self.0.lease().let_go(None);
    }
}
