use crate::{
    config::SettingError,
    env::BootTime,
    lease::{
        AcquireError, Lease, LeaseError, LeaseEvent, LeaseLost, Lock, TryAcquire,
        acquire::{AttemptResult, downgrade},
        inner::QuorumInner,
        mode::Mode,
    },
    node::{Owner, Request, Resource},
    vote::NoMajority,
};
use std::{sync::Arc, time::Duration};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

impl Lock<ReadLease> {
    /// Returns the lock of this name, to be acquired for reading.
    pub(crate) fn for_reading(inner: Arc<QuorumInner>, resource: Result<Resource, SettingError>) -> Self {
        Self::new(inner, resource).held(Mode::Shared)
    }

    /// Makes one attempt to acquire the lock for reading, without waiting, like [`Lock::try_acquire`] of a lock
    /// for writing.
    ///
    /// # Errors
    /// The same as for a lock for writing.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the worker releases on each node what this call may have acquired.
    /// Each node receives the release after all other requests of this call, so no request can acquire the
    /// lock after its release.
    pub async fn try_acquire(&self) -> Result<TryAcquire<ReadLease>, AcquireError> {
        Ok(self.attempt().await?.map(ReadLease))
    }

    /// Waits until this caller holds the lock for reading, like [`Lock::acquire`] of a lock for writing.
    ///
    /// # Errors
    /// The same as for a lock for writing.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the worker releases on each node what this call may have acquired.
    /// Each node receives the release after all other requests of this call, so no request can acquire the
    /// lock after its release. The subscription to releases ends too.
    pub async fn acquire(&self) -> Result<ReadLease, AcquireError> {
        self.acquire_by(self.deadline()).await.map(ReadLease)
    }
}

/// A held reader's lease. Dropping the handle releases the lease. The lease has the same states as a
/// [`Lease`], but no fencing token, because a reader writes nothing that a fencing token could protect.
#[derive(Debug)]
#[must_use = "dropping a lease releases it"]
pub struct ReadLease(Lease);

impl ReadLease {
    /// Returns the lease as one that may be ended without a release. Its fencing token has no meaning.
    #[doc(hidden)]
    pub fn into_lease(self) -> Lease {
        self.0
    }

    /// Returns the lock that is held.
    pub fn resource(&self) -> &Resource {
        self.0.resource()
    }

    /// Returns the owner token, which identifies this lease on the nodes.
    pub fn owner(&self) -> &Owner {
        self.0.owner()
    }

    /// Returns the TTL: the time for which the nodes keep the lease after each extension.
    pub fn ttl(&self) -> Duration {
        self.0.ttl()
    }

    /// Checks that the lease is valid. If it is, no client has held the lock for writing since the lease was
    /// acquired. Call this function after the data was read, and use the data only if the function succeeds.
    ///
    /// # Errors
    /// [`LeaseLost`] once the lease has ended.
    pub fn ensure_held(&self) -> Result<(), LeaseLost> {
        self.0.fencing_token().map(drop)
    }

    /// Returns whether the lease is valid at this moment.
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// Returns how long the lease is valid from now on if no extension succeeds. Returns zero if the lease
    /// has ended.
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Returns the time, on this worker's boot clock, at which validity ends if no extension succeeds.
    /// Returns `None` if the lease has ended.
    pub fn valid_until(&self) -> Option<BootTime> {
        self.0.valid_until()
    }

    /// Returns the token that is cancelled when the work should finish: `step_down_grace` before validity ends.
    pub fn step_down_token(&self) -> &CancellationToken {
        self.0.step_down_token()
    }

    /// Returns the token that is cancelled when validity ends.
    pub fn lost_token(&self) -> &CancellationToken {
        self.0.lost_token()
    }

    /// Returns the events of this lease: first its present state, then each change. The last is [`LeaseEvent::Lost`].
    #[doc(hidden)]
    pub fn events(&self) -> mpsc::UnboundedReceiver<LeaseEvent> {
        self.0.events()
    }

    /// Extends the lease now, like [`Lease::extend`].
    ///
    /// # Errors
    /// The same as for [`Lease::extend`].
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the extension continues.
    pub async fn extend(&self) -> Result<(), LeaseError> {
        self.0.extend().await
    }

    /// Ends the lease and waits until a majority has confirmed its release, like [`Lease::release`].
    ///
    /// # Errors
    /// The same as for [`Lease::release`].
    ///
    /// # Cancel safety
    /// The lease ends at the first poll, or when the future is dropped. The releases are sent in both cases.
    pub async fn release(self) -> Result<(), NoMajority> {
        self.0.release().await
    }
}

impl Lease {
    /// Turns this writer's lease into a reader's lease. From then on other readers may acquire the lock. No
    /// other client can write between the two leases.
    ///
    /// The writer's lease ends before the first message is sent, even if the call then fails. Each node
    /// replaces the writer's lease by a reader's lease in one step. The reader's lease has the same TTL and
    /// grace period, and an owner token of its own. A `max_hold` or a health check applies to the writer's
    /// lease only, and ends with it.
    ///
    /// # Errors
    /// [`LeaseError`] if the lease had ended, or if too few nodes turned it into a reader's lease. In either
    /// case no lease is held any more, and the keys on the nodes are released.
    ///
    /// # Cancel safety
    /// The writer's lease ends at the first poll, or when the future is dropped. A dropped attempt sends its
    /// releases after its own requests.
    pub async fn downgrade(self) -> Result<ReadLease, LeaseError> {
        self.fencing_token()?;
        let inner = Arc::clone(self.inner());
        // The writer's lease ends before the first message is sent: see `LeaseDeadline::release`. The renewer
        // does not release the keys. The guard `WriterKeys` does so for the nodes on which the call fails.
        self.forget();
        let keys = WriterKeys { inner: Arc::clone(&inner), lease: self };
        let attempted = downgrade(&inner, &keys.lease).await;
        drop(keys);
        match attempted {
            AttemptResult::Held(lease, _) => Ok(ReadLease(lease)),
            AttemptResult::Closed => Err(LeaseError::Closed),
            AttemptResult::Lost(_) if inner.env().stopped().is_cancelled() => Err(LeaseError::Closed),
            AttemptResult::Lost(tally) => {
                let reason = "the lease is over, and did not become a reader's";
                Err(inner.pool().report(tally.outcomes()).of(reason).into())
            }
        }
    }
}

/// A guard for the keys of a writer's lease. Dropping it releases them on every node that has not turned the
/// lease into a reader's lease.
struct WriterKeys {
    inner: Arc<QuorumInner>,
    lease: Lease,
}

impl Drop for WriterKeys {
    fn drop(&mut self) {
        let (resource, owner) = (self.lease.resource().clone(), self.lease.owner().clone());
        self.inner.pool().free(Request::Release { resource, owner }, |_| true, None);
    }
}
