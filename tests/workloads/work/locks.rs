//! The part of a worker that competes for locks. It holds most of them for a short time, and some for so long
//! that they need extensions.

use super::{CHECK_EVERY, Failure, GRACE, await_step_down};
use crate::harness::{Event, Journal, LeaseLog, StoreClient};
use quorate::{
    env::{BootTime, Env},
    lease::{Lease, TryAcquire},
    quorum::Quorum,
};
use quorate_testkit::sim::SeedRng;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// The locks that the workers compete for.
pub(crate) const LOCKS: [&str; 2] = ["lock-0", "lock-1"];
/// The longest time that a waiting call waits.
const WAIT: Duration = Duration::from_secs(1);
/// The longest wait for a store's answer after the worker has been asked to end.
const STORE_ANSWERS_WITHIN: Duration = Duration::from_secs(1);

pub(super) async fn compete(
    quorum: &Quorum,
    journal: &Journal,
    mut rng: SeedRng,
    ttl: Duration,
    (stores, elements): (&[SocketAddr], u64),
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let _stop = stop.clone().drop_guard();
    let env = quorum.env();
    let mut writers = Vec::new();
    for store in stores {
        tokio::select! { biased;
            client = StoreClient::connect(*store) => writers.push(client?),
            () = given_up(env, stop) => return Ok(()),
        }
    }
    let mut next = elements;
    while !stop.is_cancelled() {
        let lock = rng.index(LOCKS.len());
        let name = LOCKS[lock];
        let mut writer = Writer { client: &mut writers[lock], next: &mut next };
        let lock = quorum.lock(name).ttl(ttl).step_down_grace(GRACE).wait(WAIT);
        let requested = journal.now();
        let lease = if rng.chance(500) {
            match lock.try_acquire().await {
                Ok(TryAcquire::Acquired(lease)) => Ok(Some(lease)),
                Ok(TryAcquire::Contended { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        } else {
            let acquired = tokio::select! { biased; () = stop.cancelled() => break, a = lock.acquire() => a };
            acquired.map(Some)
        };
        match lease {
            Ok(Some(lease)) => {
                hold(quorum, journal, &mut rng, (name, &mut writer), requested, lease, stop).await?;
            }
            Ok(None) => {}
            Err(error) if error.is_permanent() => return Err(error.into()),
            Err(_) => {}
        }
        let pause = rng.millis(10..=120);
        let _ = env.before(env.now() + pause, stop.cancelled()).await;
    }
    Ok(())
}

/// Waits until the worker has been asked to end and a call of a store still has no answer a while later. After a cut, TCP
/// repeats its packets at intervals that have grown to several seconds.
async fn given_up(env: &Env, stop: &CancellationToken) {
    stop.cancelled().await;
    env.sleep(STORE_ANSWERS_WITHIN).await;
}

async fn hold(
    quorum: &Quorum,
    journal: &Journal,
    rng: &mut SeedRng,
    (name, writer): (&str, &mut Writer<'_>),
    requested: BootTime,
    lease: Lease,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let env = quorum.env();
    let token = lease.unchecked_token().get();
    let Some(log) = LeaseLog::begin(journal, name, token, requested, || lease.remaining()) else {
        return Ok(());
    };
    let over = env.now() + if rng.chance(100) { rng.millis(1000..=5000) } else { rng.millis(5..=200) };
    while env.now() < over && !stop.is_cancelled() {
        tokio::select! { biased;
            () = lease.step_down_token().cancelled(), if !log.has_stepped_down() => log.step_down(),
            () = lease.lost_token().cancelled() => {}
            () = stop.cancelled() => break,
            () = env.sleep_until(over.min(env.now() + CHECK_EVERY)) => {}
        }
        if !log.check(|| lease.remaining()) {
            await_step_down(env, &log, lease.step_down_token()).await;
            return Ok(());
        }
        if rng.chance(300) {
            // The check of the lease and this write are not one step: only the token protects the store.
            tokio::select! { biased;
                written = writer.write(journal, name, token, || lease.remaining()) => written?,
                () = given_up(env, stop) => break,
            }
        }
        if rng.chance(30) {
            // The next check of the lease shows whether the extension succeeded.
            let _ = lease.extend().await;
        }
    }
    if !log.end(|| lease.remaining()) {
        await_step_down(env, &log, lease.step_down_token()).await;
        return Ok(());
    }
    if rng.chance(800) {
        // The release ends the lease in this worker even if no majority has confirmed it.
        let _ = lease.release().await;
    }
    Ok(())
}

/// The connection to the store that a lock protects, and the next element.
struct Writer<'a> {
    client: &'a mut StoreClient,
    next: &'a mut u64,
}

impl Writer<'_> {
    async fn write(
        &mut self,
        journal: &Journal,
        name: &str,
        token: u64,
        remaining: impl FnOnce() -> Duration,
    ) -> Result<(), Failure> {
        *self.next += 1;
        let (element, requested) = (*self.next, journal.now());
        let resource: Arc<str> = name.into();
        journal.write_at(requested, Event::Writing { resource: Arc::clone(&resource), token, element });
        let before = self.client.put(token, element).await?;
        let (accepted, before) = (before.is_some(), before.unwrap_or_default());
        let (valid, requested) = (!remaining().is_zero(), requested.as_nanos());
        journal.write(Event::Written { resource, token, element, requested, before, accepted, valid });
        Ok(())
    }
}
