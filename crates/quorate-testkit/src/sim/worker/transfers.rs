//! The competition for a lock that its holders transfer to each other.

use super::{Worker, lock_kind::Signals};
use crate::sim::scenario::WORKERS;
use std::sync::Arc;

/// The name of the lock.
pub(in super::super) const HANDED: &str = "handed";

/// Repeats until the environment is stopped: waits for the lock, holds it, and mostly transfers it to another
/// worker, which may be waiting.
pub(super) async fn work(mut worker: Worker) {
    while !worker.is_stopped() {
        worker.think(&[10, 100, 400]).await;
        let (ttl, wait) = (worker.draw_ttl(), worker.rng.millis(200..=2_500));
        let lock = worker.quorum.lock(HANDED).ttl(ttl).wait(wait);
        let lock = if worker.rng.chance(300) { lock.fair(worker.rng.millis(0..=200)) } else { lock };
        let Ok(lease) = lock.acquire().await else { continue };
        let signals = Signals::from(&lease);
        let held = worker.referee.granted(&worker.host, lease);
        worker.stay(&signals, &[30, 300, 1_200]).await;
        let Some(lease) = held.take().and_then(Arc::into_inner) else { continue };
        match worker.rng.number(0..=9) {
            0..=7 => {
                let successor = format!("w{}", worker.rng.index(WORKERS));
                worker.referee.transfer(&worker.host, lease, &successor).await;
            }
            8 => drop(lease.release().await),
            _ => drop(lease),
        }
    }
}
