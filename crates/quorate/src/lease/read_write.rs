use crate::{
    env::BootTime,
    lease::{
        AcquireError, DowngradeError, ExtendError, Lease, LeaseEvents, LeaseLost, Lock, ReleaseError,
        TryAcquire,
        acquire::{AttemptResult, downgrade},
        inner::QuorumInner,
        mode::Mode,
        options::lease_options,
    },
    node::{NameError, Owner, Request, Resource},
};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// A lock that many may read under, or one may write under: made by [`Quorum::rw_lock`](super::Quorum::rw_lock).
///
/// Who writes holds what a plain [`Lock`] of the same name holds: a writer, a plain lock and any other Redlock client
/// on that name exclude each other, and readers exclude them all.
#[derive(Clone, Debug)]
pub struct RwLock {
    inner: Arc<QuorumInner>,
    resource: Result<Resource, NameError>,
}

impl RwLock {
    pub(crate) fn new(inner: Arc<QuorumInner>, resource: Result<Resource, NameError>) -> Self {
        Self { inner, resource }
    }

    /// To read, beside other readers.
    pub fn read(&self) -> ReadLock {
        ReadLock(Lock::new(Arc::clone(&self.inner), self.resource.clone()).held(Mode::Shared))
    }

    /// To write, alone.
    pub fn write(&self) -> Lock {
        Lock::new(Arc::clone(&self.inner), self.resource.clone())
    }
}

/// A lock that can be acquired for reading, made by [`RwLock::read`]. It has every setting that [`Lock`] has.
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct ReadLock(Lock);

impl ReadLock {
    lease_options!(through 0);

    /// As [`Lock::wait`].
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.wait(wait))
    }

    /// As [`Lock::fair`]. Waiting readers acquire the lock together, up to the first writer in the queue.
    pub fn fair(self, patience: Duration) -> Self {
        Self(self.0.fair(patience))
    }

    /// As [`Lock::try_acquire`].
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// Safe: a dropped attempt posts its releases behind its own requests.
    pub async fn try_acquire(&self) -> Result<TryAcquire<ReadLease>, AcquireError> {
        Ok(self.0.try_acquire().await?.map(ReadLease))
    }

    /// As [`Lock::acquire`].
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// Safe: a dropped attempt posts its releases behind its own requests.
    pub async fn acquire(&self) -> Result<ReadLease, AcquireError> {
        self.0.acquire().await.map(ReadLease)
    }
}

/// A held reader's lease. The handle is the scope: dropping it releases. See [`Lease`], whose life it shares; it has no
/// fencing token, since what only reads changes nothing that could be fenced.
#[derive(Debug)]
#[must_use = "dropping a lease releases it"]
pub struct ReadLease(Lease);

impl ReadLease {
    /// What is held.
    pub fn resource(&self) -> &Resource {
        self.0.resource()
    }

    /// The token that signs this lease on the nodes.
    pub fn owner(&self) -> &Owner {
        self.0.owner()
    }

    /// For how long each extension holds.
    pub fn ttl(&self) -> Duration {
        self.0.ttl()
    }

    /// Whether nobody writes at this moment: look after reading, before what was read is trusted.
    ///
    /// # Errors
    /// [`LeaseLost`] once the lease has ended.
    pub fn ensure_held(&self) -> Result<(), LeaseLost> {
        self.0.fencing_token().map(drop)
    }

    /// Whether the lease is valid at this moment.
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// How long the lease is valid from now on if no extension succeeds; zero once it has ended.
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// When validity ends on this worker's boot clock if no extension succeeds; `None` once it has.
    pub fn valid_until(&self) -> Option<BootTime> {
        self.0.valid_until()
    }

    /// Fires when the work should finish: `step_down_grace` before validity ends.
    pub fn step_down_token(&self) -> &CancellationToken {
        self.0.step_down_token()
    }

    /// Fires when validity ends.
    pub fn lost_token(&self) -> &CancellationToken {
        self.0.lost_token()
    }

    /// The events from now on.
    pub fn events(&self) -> LeaseEvents {
        self.0.events()
    }

    /// As [`Lease::extend`].
    ///
    /// # Errors
    /// As [`Lease::extend`].
    ///
    /// # Cancel safety
    /// Safe: the extension goes on without the caller.
    pub async fn extend(&self) -> Result<(), ExtendError> {
        self.0.extend().await
    }

    /// As [`Lease::release`].
    ///
    /// # Errors
    /// As [`Lease::release`].
    ///
    /// # Cancel safety
    /// The lease ends and the releases leave at the first poll, or at the drop of the future: nothing is lost.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.0.release().await
    }
}

impl Lease {
    /// Goes on as a reader: others may read from then on, and nobody writes in between.
    ///
    /// The writer's lease is over before the first message leaves, whatever comes of it; each node turns it into a
    /// reader's in one step. The reader's lease has the same TTL and grace, and an owner token of its own; a longest hold
    /// and a condition on renewal were the writer's alone, and end with it.
    ///
    /// # Errors
    /// [`DowngradeError`] where the lease had ended, or too few nodes made it a reader's: then nothing is held any
    /// more, and what stands on nodes is released.
    ///
    /// # Cancel safety
    /// The writer's lease ends at the first poll, or at the drop of the future; a dropped attempt posts its releases
    /// behind its own requests.
    pub async fn downgrade(self) -> Result<ReadLease, DowngradeError> {
        self.fencing_token()?;
        let inner = Arc::clone(self.inner());
        // Before the first message leaves: see `Tenure::end`. The keeper leaves the keys to us.
        self.forget();
        let keys = WriterKeys { inner: Arc::clone(&inner), lease: self };
        let attempted = downgrade(&inner, &keys.lease).await;
        drop(keys);
        match attempted {
            AttemptResult::Held(lease, _) => Ok(ReadLease(lease)),
            AttemptResult::Closed => Err(DowngradeError::Closed),
            AttemptResult::Lost(_) if inner.env().stopped().is_cancelled() => Err(DowngradeError::Closed),
            AttemptResult::Lost(tally) => {
                Err(DowngradeError::NoMajority(inner.pool().report(tally.outcomes())))
            }
        }
    }
}

/// Frees what still stands of a writer's lease, wherever it was not turned into a reader's.
struct WriterKeys {
    inner: Arc<QuorumInner>,
    lease: Lease,
}

impl Drop for WriterKeys {
    fn drop(&mut self) {
        let (resource, owner) = (self.lease.resource().clone(), self.lease.owner().clone());
        self.inner.pool().free(&Request::Release { resource, owner }, |_| true, None);
    }
}
