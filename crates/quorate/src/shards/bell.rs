//! A signal to all workers of a set: something has changed. A worker rings the bell by acquiring and releasing a lock, since
//! the nodes report releases at once to those that wait for the lock. A report may be lost, so everything that waits for the
//! bell also looks from time to time.

use super::shown::Shown;
use crate::{
    driver::{Subscription, WakeOrder},
    lease::{Lease, Lock, TryAcquire},
    node::Resource,
    quorum::Quorum,
};
use std::{sync::Arc, time::Duration};

/// The longest time between two looks, if the nodes report releases, and if they do not.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const LOOK_EVERY_UNHEARD: Duration = Duration::from_millis(250);
/// The number of attempts at the lock if the votes are split.
const RINGS_MAX: u32 = 8;
/// The longest pause between two such attempts.
const RING_AGAIN: Duration = Duration::from_millis(10);

/// The bell of a set.
#[derive(Debug)]
pub(super) struct Bell {
    quorum: Quorum,
    resource: Resource,
    ttl: Duration,
    rung: Shown<u64>,
}

impl Bell {
    pub(super) fn new(quorum: &Quorum, resource: Resource, ttl: Duration) -> Self {
        Self { quorum: quorum.clone(), resource, ttl, rung: Shown::default() }
    }

    /// Returns the number of rings so far.
    pub(super) fn rings(&self) -> u64 {
        self.rung.get()
    }

    /// Waits until there is a ring after the first `rings`.
    pub(super) async fn rung_after(&self, rings: u64) {
        self.rung.until(|rung| *rung > rings).await;
    }

    /// Counts the rings, until the future is dropped.
    pub(super) async fn listen(&self) {
        let pool = self.quorum.pool();
        let waiter = Subscription::begin(pool, &self.resource, WakeOrder::Arrival);
        loop {
            waiter.woken().await;
            self.rung.change(|rings| *rings += 1);
        }
    }

    /// Returns the longest time between two looks of those who hear the bell: a short one until it is known that the nodes report
    /// releases to this process.
    pub(super) fn look_every(&self) -> Duration {
        match self.quorum.pool().waiters().wake_queue().releases_are_reported() {
            true => LOOK_EVERY,
            false => LOOK_EVERY_UNHEARD,
        }
    }

    /// Rings the bell. If another worker is about to release the lock, its ring comes after what this worker has written, and is
    /// enough.
    pub(super) async fn ring(&self) {
        let lock: Lock<Lease> = Lock::new(Arc::clone(self.quorum.inner()), Ok(self.resource.clone()));
        let lock = lock.ttl(self.ttl).auto_extend(false);
        for _ in 0..RINGS_MAX {
            match lock.try_acquire().await {
                Ok(TryAcquire::Acquired(lease)) => return drop(lease.release().await),
                Ok(TryAcquire::Contended { holder: None, .. }) => {
                    let pause = self.quorum.env().random_below(RING_AGAIN);
                    self.quorum.env().sleep(pause).await;
                }
                Ok(TryAcquire::Contended { .. }) | Err(_) => return,
            }
        }
    }
}
