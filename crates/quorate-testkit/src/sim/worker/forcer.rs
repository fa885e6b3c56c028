//! The operator's forced releases, in plans with [`Plan::forces`](crate::sim::Plan::forces).

use super::{RESOURCES, operator::Operator};
use crate::sim::SeedRng;
use quorate::node::{Owner, Resource};

/// Releases the locks [`RESOURCES`] by force now and then, until the faults end, as the command
/// `lock release --force` does.
pub(in super::super) async fn work(operator: Operator) {
    let mut rng = SeedRng::new(operator.seed, "forced releases");
    while !operator.referee.is_calm() {
        let pause = rng.millis_up_to(&[100, 700, 3_000]);
        operator.env.sleep(pause).await;
        let Ok(resource) = Resource::lock(RESOURCES[rng.index(RESOURCES.len())]) else { continue };
        let Ok(seen) = operator.quorum.inspect(&resource).await else {
            operator.referee.count("forced release: owner not read");
            continue;
        };
        // The operator reads the owners before the release.
        let reads = rng.millis_up_to(&[1, 20, 400]);
        operator.env.sleep(reads).await;
        for (owner, _) in &seen.named {
            if operator.referee.is_calm() {
                return;
            }
            // A reservation is no lease, and the invariant *reservations* requires that it is kept.
            if owner.reserved_for().is_none() {
                let again = rng.chance(200);
                let drops_after = rng.chance(100).then(|| rng.millis(0..=40));
                for _ in 0..=u8::from(again) {
                    release(&operator, &resource, owner, drops_after).await;
                }
            }
        }
    }
}

/// Releases the lock of `owner` by force. If `drops_after` is given, drops the call after this time.
async fn release(
    operator: &Operator,
    resource: &Resource,
    owner: &Owner,
    drops_after: Option<std::time::Duration>,
) {
    let Operator { env, quorum, referee, .. } = operator;
    referee.forces(resource, owner);
    let call = quorum.force_release(resource, owner);
    let forced = match drops_after {
        None => Some(call.await),
        Some(time) => env.before(env.now() + time, call).await,
    };
    referee.count(match &forced {
        None => "forced release: dropped",
        Some(forced) if forced.is_final() => "forced release: final",
        Some(forced) if forced.is_clear() => "forced release: clear",
        Some(_) => "forced release: too few nodes",
    });
    if let Some(forced) = forced {
        referee.forced(owner, forced.is_final());
    }
}
