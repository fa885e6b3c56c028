use super::Worker;
use crate::sim::{SeedRng, scenario::WORKERS};
use quorate::lease::{Lease, Lock, TryAcquire};
use std::{sync::Arc, time::Duration};

/// The resources for which the workers compete.
pub(in super::super) const RESOURCES: [&str; 2] = ["x", "y"];

/// Repeats until the environment is stopped: acquires a lease, works under it, and gives it up in one of several ways.
pub(super) async fn work(mut worker: Worker, resource: &'static str) {
    while !worker.is_stopped() {
        worker.think(&[30, 200, 1_500]).await;
        if let Some(lease) = worker.want(resource).await {
            worker.hold(lease).await;
        }
    }
}

impl Worker {
    /// Tries once to acquire the lease, or waits for it. The attempt may be dropped at any moment.
    async fn want(&mut self, resource: &str) -> Option<Lease> {
        let ttl = Duration::from_millis([1_000, 1_500, 2_500, 3_000][self.rng.index(4)]);
        let lock = self.quorum.lock(resource).ttl(ttl).auto_extend(!self.rng.chance(200));
        // A random stream of its own keeps this draw from changing the other draws.
        let mut bounds = SeedRng::new(self.seed, &format!("bound {} {:?}", self.label, self.env.now()));
        let lock = match bounds.number(0..=9) {
            0 => lock.max_hold(ttl + bounds.millis(0..=2_000)),
            _ => lock,
        };
        match self.rng.number(0..=9) {
            0..=3 => self.attempt(&lock).await,
            4..=6 => {
                let deadline = self.env.now() + self.rng.millis(0..=120);
                let env = self.env.clone();
                let lease = env.before(deadline, self.attempt(&lock)).await;
                if lease.is_none() {
                    self.referee.count("attempt dropped");
                }
                lease.flatten()
            }
            _ => {
                let wait = self.rng.millis(0..=4_000);
                let got = lock.wait(wait).acquire().await;
                self.referee.count(match &got {
                    Ok(_) => "wait rewarded",
                    Err(error) if error.is_contended() => "wait contended",
                    Err(error) if error.is_untrusted() => "wait untrusted",
                    Err(_) => "wait unreachable",
                });
                got.ok()
            }
        }
    }

    async fn attempt(&self, lock: &Lock) -> Option<Lease> {
        match lock.try_acquire().await {
            Ok(TryAcquire::Acquired(lease)) => Some(lease),
            Ok(TryAcquire::Contended { .. }) => {
                self.referee.count("attempt contended");
                None
            }
            Err(error) => {
                let untrusted = error.is_untrusted();
                self.referee.count(if untrusted { "attempt untrusted" } else { "attempt unreachable" });
                None
            }
        }
    }

    /// Works in small steps under `lease`, until a random time is over or the lease asks its holder to stop.
    async fn hold(&mut self, lease: Lease) {
        let held = self.referee.granted(&self.host, lease);
        let until = self.env.now() + self.rng.millis_up_to(&[50, 800, 5_000]);
        let stubborn = self.rng.chance(300);
        while let Some(lease) = held.lease() {
            self.referee.look();
            if lease.step_down_token().is_cancelled() && !stubborn {
                self.referee.count("stepped down");
                break;
            }
            if lease.lost_token().is_cancelled() {
                self.referee.count("lost");
                break;
            }
            if self.env.now() >= until || self.env.stopped().is_cancelled() {
                break;
            }
            if self.rng.chance(50) {
                let extended = lease.extend().await;
                self.referee.count(if extended.is_ok() {
                    "extended by hand"
                } else {
                    "not extended by hand"
                });
            }
            drop(lease);
            let step = self.rng.millis(1..=120);
            self.env.sleep(step).await;
        }
        // The worker is about to give up the lease. From now on the referee must not count it as the holder.
        let lease = held.take().and_then(Arc::into_inner);
        let mut successors = SeedRng::new(self.seed, &format!("successor {} {}", self.label, held.token()));
        let lease = match lease {
            Some(lease) if successors.chance(250) => {
                let successor = format!("w{}", successors.index(WORKERS));
                self.referee.transfer(&self.host, lease, &successor).await;
                None
            }
            lease => lease,
        };
        if self.rng.chance(600)
            && let Some(lease) = lease
        {
            let released = lease.release().await;
            self.referee.count(if released.is_ok() { "release confirmed" } else { "release unconfirmed" });
        }
    }
}
