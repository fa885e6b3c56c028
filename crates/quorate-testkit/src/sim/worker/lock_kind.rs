use super::{Worker, fair, read_write, shards, slots, transfers};
use crate::sim::SeedRng;
use quorate::lease::{Lease, ReadLease};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The number of seeds in a thousand in which the workers compete for locks of each kind.
const SEEDS: [(LockKind, u64); 5] = [
    (LockKind::ReadWrite, 150),
    (LockKind::Fair, 100),
    (LockKind::Slots, 100),
    (LockKind::Transfers, 100),
    (LockKind::Shards, 100),
];

/// A kind of lock, beside the plain ones, for which all workers compete in some seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum LockKind {
    /// A lock with readers and writers.
    ReadWrite,
    /// A lock with a queue of waiters.
    Fair,
    /// Numbered slots.
    Slots,
    /// A lock that its holders transfer to each other.
    Transfers,
    /// The locks of balanced shards.
    Shards,
}

impl LockKind {
    /// Draws the kind of lock of a seed. Most seeds have none.
    pub(super) fn of(seed: u64) -> Option<Self> {
        // A random stream of its own keeps this draw from changing the other duties.
        let mut dice = SeedRng::new(seed, "lock kind").number(0..=999);
        for (kind, seeds) in SEEDS {
            if dice < seeds {
                return Some(kind);
            }
            dice -= seeds;
        }
        None
    }

    /// Starts the task of `worker` that competes for locks of this kind.
    pub(super) fn start(self, worker: &Worker) {
        let code = worker.fork("lock kind");
        match self {
            Self::ReadWrite => worker.env.spawn(read_write::work(code)),
            Self::Fair => worker.env.spawn(fair::work(code)),
            Self::Slots => worker.env.spawn(slots::work(code)),
            Self::Transfers => worker.env.spawn(transfers::work(code)),
            Self::Shards => worker.env.spawn(shards::work(code)),
        }
    }
}

/// The signals of a lease that ask its holder to stop.
pub(super) struct Signals {
    step_down: CancellationToken,
    lost: CancellationToken,
}

impl From<&Lease> for Signals {
    fn from(lease: &Lease) -> Self {
        Self { step_down: lease.step_down_token().clone(), lost: lease.lost_token().clone() }
    }
}

impl From<&ReadLease> for Signals {
    fn from(lease: &ReadLease) -> Self {
        Self { step_down: lease.step_down_token().clone(), lost: lease.lost_token().clone() }
    }
}

impl Worker {
    /// Holds a lease in small steps, until a random time is over, up to one of the limits `tops` in
    /// milliseconds, or until the lease asks its holder to stop. Sometimes the worker stops only once the lease
    /// is lost.
    pub(super) async fn stay(&mut self, signals: &Signals, tops: &[u64]) {
        let until = self.env.now() + self.rng.millis_up_to(tops);
        let stubborn = self.rng.chance(200);
        while self.env.now() < until && !self.is_stopped() {
            self.referee.look();
            if signals.lost.is_cancelled() || (signals.step_down.is_cancelled() && !stubborn) {
                return;
            }
            let step = self.rng.millis(1..=150);
            self.env.sleep(step).await;
        }
    }

    /// Draws the TTL of a lease.
    pub(super) fn draw_ttl(&mut self) -> Duration {
        Duration::from_millis([1_000, 1_500, 2_500][self.rng.index(3)])
    }

    /// Waits for `attempt`, or drops it after a random time of at most `top` milliseconds.
    pub(super) async fn or_drop<T>(&mut self, top: u64, attempt: impl Future<Output = T>) -> Option<T> {
        let deadline = self.env.now() + self.rng.millis(0..=top);
        let env = self.env.clone();
        env.before(deadline, attempt).await
    }
}
