//! The competition for a lock with readers and writers.

use super::{Worker, lock_kind::Signals};
use quorate::lease::{Lease, Lock, ReadLease, TryAcquire};
use std::{sync::Arc, time::Duration};

/// The name of the lock.
pub(in super::super) const READ_WRITE: &str = "rw";

/// Repeats until the environment is stopped: acquires the lock for reading or for writing, holds it, and gives
/// it up.
pub(super) async fn work(mut worker: Worker) {
    while !worker.is_stopped() {
        worker.think(&[30, 300, 1_200]).await;
        if worker.rng.chance(600) {
            if let Some(lease) = worker.want_to_read().await {
                worker.read(lease, None).await;
            }
        } else if let Some(lease) = worker.want_to_write().await {
            worker.write(lease).await;
        }
    }
}

impl Worker {
    async fn want_to_read(&mut self) -> Option<ReadLease> {
        let lock = self.quorum.read_lock(READ_WRITE);
        let lock = self.drawn(lock);
        let got = match self.rng.number(0..=9) {
            0..=3 => lock.try_acquire().await.ok().and_then(TryAcquire::acquired),
            4..=5 => self.or_drop(120, lock.acquire()).await.and_then(Result::ok),
            _ => {
                let wait = self.rng.millis(0..=2_500);
                lock.wait(wait).acquire().await.ok()
            }
        };
        self.referee.count(if got.is_some() {
            "reader's attempt rewarded"
        } else {
            "reader's attempt failed"
        });
        got
    }

    async fn want_to_write(&mut self) -> Option<Lease> {
        let lock = self.quorum.lock(READ_WRITE);
        let lock = self.drawn(lock);
        let got = match self.rng.number(0..=9) {
            0..=2 => lock.try_acquire().await.ok().and_then(TryAcquire::acquired),
            3..=4 => self.or_drop(120, lock.acquire()).await.and_then(Result::ok),
            _ => {
                let wait = self.rng.millis(0..=2_500);
                lock.wait(wait).acquire().await.ok()
            }
        };
        self.referee.count(if got.is_some() {
            "writer's attempt rewarded"
        } else {
            "writer's attempt failed"
        });
        got
    }

    /// Draws the options of a lock. Some waiters join the queue.
    fn drawn<L>(&mut self, lock: Lock<L>) -> Lock<L> {
        let lock = lock.ttl(self.draw_ttl()).auto_extend(!self.rng.chance(200));
        if self.rng.chance(300) { lock.fair(self.rng.millis(0..=300)) } else { lock }
    }

    /// Holds a writer's lease, and gives it up in one of several ways.
    async fn write(&mut self, lease: Lease) {
        let (signals, token) = (Signals::from(&lease), lease.unchecked_token().get());
        let held = self.referee.granted(&self.host, lease);
        self.stay(&signals, &[30, 300, 1_500]).await;
        // The worker is about to give up the lease. From now on the referee must not count it as the holder.
        let Some(lease) = held.take().and_then(Arc::into_inner) else { return };
        match self.rng.number(0..=9) {
            0..=4 => match lease.downgrade().await {
                Ok(lease) => {
                    self.referee.count("lease downgraded");
                    self.read(lease, Some(token)).await;
                }
                Err(_) => self.referee.count("lease not downgraded"),
            },
            5..=7 => drop(lease.release().await),
            _ => drop(lease),
        }
    }

    /// Holds a reader's lease, and releases or drops it.
    async fn read(&mut self, lease: ReadLease, downgraded: Option<u64>) {
        let signals = Signals::from(&lease);
        let held = self.referee.read(&self.host, lease, downgraded);
        self.stay(&signals, &[50, 500, 2_500]).await;
        let Some(lease) = held.take_reader().and_then(Arc::into_inner) else { return };
        if self.rng.chance(600) {
            drop(lease.release().await);
        }
        self.env.sleep(Duration::from_millis(1)).await;
    }
}
