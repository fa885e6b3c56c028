//! A signal to other workers: something has changed on the nodes. A worker rings the bell by acquiring and releasing a lock,
//! since the nodes report releases at once to those that wait for the lock. A report may be lost, so everything that waits for
//! the bell also looks from time to time.

use super::{AskOrder, Lease, Lock, Shown, TryAcquire, inner::QuorumInner};
use crate::{
    driver::{Subscription, WakeOrder},
    node::Resource,
};
use std::{sync::Arc, time::Duration};

/// The longest time between two looks, if the nodes report releases.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The lifetime of the lock, if a worker dies while it rings: the shortest one, and the number of timeouts of a node that it must
/// last.
const TTL: (Duration, u32) = (Duration::from_secs(2), 5);
/// The number of attempts at the lock if the votes are split.
const RINGS_MAX: u32 = 8;
/// The longest pause between two such attempts.
const RING_AGAIN: Duration = Duration::from_millis(10);

/// The bell with the name `resource`.
#[derive(Debug)]
pub(crate) struct Bell {
    inner: Arc<QuorumInner>,
    resource: Resource,
    ttl: Duration,
    rung: Shown<u64>,
}

impl Bell {
    pub(crate) fn new(inner: &Arc<QuorumInner>, resource: Resource) -> Self {
        let config = inner.config();
        let ttl = TTL.0.max(config.node_timeout * TTL.1).min(config.max_ttl);
        Self { inner: Arc::clone(inner), resource, ttl, rung: Shown::default() }
    }

    /// Returns the number of rings so far.
    pub(crate) fn rings(&self) -> u64 {
        self.rung.get()
    }

    /// Waits until there is a ring after the first `rings`.
    pub(crate) async fn rung_after(&self, rings: u64) {
        self.rung.until(|rung| *rung > rings).await;
    }

    /// Counts the rings, until the future is dropped.
    pub(crate) async fn listen(&self) {
        let waiter = Subscription::begin(self.inner.pool(), &self.resource, WakeOrder::Arrival);
        loop {
            waiter.woken().await;
            self.rung.change(|rings| *rings += 1);
        }
    }

    /// Returns the longest time between two looks of those who hear the bell: `unheard` until it is known that the nodes report
    /// releases to this process.
    pub(crate) fn look_every(&self, unheard: Duration) -> Duration {
        match self.inner.pool().waiters().wake_queue().releases_are_reported() {
            true => LOOK_EVERY,
            false => unheard,
        }
    }

    /// Rings the bell. If another worker is about to release the lock, its ring comes after what this worker has written, and is
    /// enough.
    pub(crate) async fn ring(&self) {
        let lock: Lock<Lease> = Lock::new(Arc::clone(&self.inner), Ok(self.resource.clone()));
        // A release at all nodes is also heard by a worker that does not reach one of them.
        let lock =
            lock.ttl(self.ttl).step_down_grace(Duration::ZERO).auto_extend(false).contact(AskOrder::All);
        for _ in 0..RINGS_MAX {
            match lock.try_acquire().await {
                Ok(TryAcquire::Acquired(lease)) => return drop(lease.release().await),
                Ok(TryAcquire::Contended { holder: None, .. }) => {
                    let pause = self.inner.env().random_below(RING_AGAIN);
                    self.inner.env().sleep(pause).await;
                }
                Ok(TryAcquire::Contended { .. }) => return,
                Err(error) => return tracing::debug!(bell = %self.resource, "not rung: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{node::MemoryNode, quorum::Quorum};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn other_workers_hear_a_bell_and_then_look_seldom() {
        let nodes: Vec<_> = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}"))).collect();
        let quorum = |worker: &str| {
            let builder = Quorum::builder().worker(worker).nodes(nodes.clone()).trust_new_nodes(true);
            builder.build().unwrap()
        };
        let (rings, hears) = (quorum("a"), quorum("b"));
        let resource = Resource::election("g").unwrap().bell();
        let bell = |quorum: &Quorum| Bell::new(quorum.inner(), resource.clone());
        let (rung, heard) = (bell(&rings), bell(&hears));
        assert_eq!((heard.rings(), heard.look_every(SECOND / 4)), (0, SECOND / 4));
        let all = async {
            for ring in 0..3 {
                // A ring that comes while the listener connects is lost, so the first one is repeated.
                while heard.rings() == ring {
                    rung.ring().await;
                    hears.env().before(hears.env().now() + SECOND, heard.rung_after(ring)).await;
                }
            }
        };
        let done = hears.env().before(hears.env().now() + 20 * SECOND, async {
            tokio::select! { () = heard.listen() => {}, () = all => {} }
        });
        assert!(done.await.is_some(), "{heard:?}");
        assert_eq!(heard.look_every(SECOND / 4), LOOK_EVERY);
        for quorum in [rings, hears] {
            quorum.close().await;
        }
    }
}
