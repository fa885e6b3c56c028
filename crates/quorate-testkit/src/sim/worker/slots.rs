//! The competition for numbered slots.

use super::{Worker, lock_kind::Signals};
use crate::sim::Event;
use quorate::lease::{Lease, TryAcquire};
use std::sync::Arc;

/// The name of the slots.
pub(in super::super) const SLOTS_NAME: &str = "slots";
/// The number of slots. There are fewer slots than workers.
pub(in super::super) const SLOTS: usize = 2;

/// Repeats until the environment is stopped: acquires any one of the slots, holds it, and gives it up.
pub(super) async fn work(mut worker: Worker) {
    while !worker.is_stopped() {
        worker.think(&[20, 200, 1_000]).await;
        if let Some((number, lease)) = worker.want_a_slot().await {
            let (signals, resource) = (Signals::from(&lease), lease.resource().clone());
            let held = worker.referee.granted(&worker.host, lease);
            let granted = Event::SlotGranted { worker: worker.host.name(), resource: &resource, number };
            worker.referee.tell(&granted);
            worker.stay(&signals, &[50, 500, 2_500]).await;
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
    async fn want_a_slot(&mut self) -> Option<(usize, Lease)> {
        let slots = self.quorum.slots(SLOTS_NAME, SLOTS).ttl(self.draw_ttl());
        let got = match self.rng.number(0..=9) {
            0..=3 => slots.try_acquire_any().await.ok().and_then(TryAcquire::acquired),
            4..=5 => self.or_drop(120, slots.acquire_any()).await.and_then(Result::ok),
            _ => {
                let wait = self.rng.millis(0..=2_500);
                slots.wait(wait).acquire_any().await.ok()
            }
        };
        self.referee.count(if got.is_some() { "slot acquired" } else { "slot not acquired" });
        got
    }
}
