//! Competes for locks: short holds, and long ones that live by extension.

use super::{Failure, be_told};
use crate::{
    journal::{Diary, Journal},
    settings::{GRACE, LOCKS, LOOK_EVERY, TTL},
};
use quorate::{
    env::BootTime,
    lease::{Lease, TryAcquire},
    quorum::Quorum,
};
use quorate_testkit::sim::SeedRng;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long one that waits does so.
const WAIT: Duration = Duration::from_secs(1);

pub(super) async fn compete(
    quorum: &Quorum,
    journal: &Journal,
    mut rng: SeedRng,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let _stop = stop.clone().drop_guard();
    let env = quorum.env();
    while !stop.is_cancelled() {
        let name = LOCKS[rng.index(LOCKS.len())];
        let lock = quorum.lock(name).ttl(TTL).step_down_grace(GRACE).wait(WAIT);
        let asked = journal.now();
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
            Ok(Some(lease)) => hold(quorum, journal, &mut rng, name, asked, lease, stop).await,
            Ok(None) => {}
            Err(error) if error.is_permanent() => return Err(error.into()),
            Err(_) => {}
        }
        let pause = rng.millis(10..=120);
        let _ = env.before(env.now() + pause, stop.cancelled()).await;
    }
    Ok(())
}

async fn hold(
    quorum: &Quorum,
    journal: &Journal,
    rng: &mut SeedRng,
    name: &str,
    asked: BootTime,
    lease: Lease,
    stop: &CancellationToken,
) {
    let env = quorum.env();
    let Some(diary) = Diary::begin(journal, name, lease.token().get(), asked, || lease.remaining()) else {
        return;
    };
    let over = env.now() + if rng.chance(100) { rng.millis(1000..=5000) } else { rng.millis(5..=200) };
    while env.now() < over && !stop.is_cancelled() {
        tokio::select! { biased;
            () = lease.step_down_token().cancelled(), if !diary.has_told() => diary.told(),
            () = lease.lost_token().cancelled() => {}
            () = stop.cancelled() => break,
            () = env.sleep_until(over.min(env.now() + LOOK_EVERY)) => {}
        }
        if !diary.look(|| lease.remaining()) {
            return be_told(env, &diary, lease.step_down_token()).await;
        }
        if rng.chance(30) {
            // What came of it shows in the next look.
            let _ = lease.extend().await;
        }
    }
    if !diary.end(|| lease.remaining()) {
        return be_told(env, &diary, lease.step_down_token()).await;
    }
    if rng.chance(800) {
        // A release that reached no majority has ended the lease all the same.
        let _ = lease.release().await;
    }
}
