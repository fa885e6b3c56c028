//! The competition for a lock with a queue of waiters.

use super::{Worker, lock_kind::Signals};
use quorate::lease::{Lease, TryAcquire};
use std::sync::Arc;

/// The name of the lock.
pub(in super::super) const FAIR: &str = "fair";

/// Repeats until the environment is stopped: acquires the lock, mostly by waiting in its queue, holds it, and
/// gives it up.
pub(super) async fn work(mut worker: Worker) {
    while !worker.is_stopped() {
        worker.think(&[20, 150, 800]).await;
        if let Some(lease) = worker.queue().await {
            let signals = Signals::from(&lease);
            let held = worker.referee.granted(&worker.host, lease);
            worker.stay(&signals, &[30, 300, 1_200]).await;
            let lease = held.take().and_then(Arc::into_inner);
            if worker.rng.chance(600)
                && let Some(lease) = lease
            {
                drop(lease.release().await);
            }
        }
    }
}

impl Worker {
    async fn queue(&mut self) -> Option<Lease> {
        let lock = self.quorum.lock(FAIR).ttl(self.draw_ttl());
        let patience = self.rng.millis(0..=300);
        let got = match self.rng.number(0..=9) {
            0..=1 => lock.try_acquire().await.ok().and_then(TryAcquire::acquired),
            2..=3 => self.or_drop(800, lock.fair(patience).acquire()).await.and_then(Result::ok),
            _ => {
                let wait = self.rng.millis(0..=3_000);
                lock.fair(patience).wait(wait).acquire().await.ok()
            }
        };
        self.referee.count(if got.is_some() { "fair wait rewarded" } else { "fair wait failed" });
        got
    }
}
