//! Stops a majority of the servers while leases are held and extended. Measures whether every holder gets the
//! step-down signal before its lease's validity ends, and so before another worker could hold the lock.

use super::cycles::runtime;
use crate::{
    measure::{Samples, ms, now},
    plan::Plan,
    report::Row,
    rivals::{quorum, spawn},
    servers::Servers,
};
use quorate::lease::Lease;
use std::time::Duration;

/// A short TTL, so that twenty stops take a minute.
const TTL: Duration = Duration::from_secs(2);

/// The observations of one holder.
struct Observed {
    /// The time between the step-down signal and the end of validity.
    step_down_before: Duration,
    /// The time between the end of validity and the loss signal.
    lost_after: Duration,
    /// True if the step-down signal came only after the end of validity, which must never happen.
    late: bool,
}

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let runtime = runtime(2)?;
    let mut observed = Vec::new();
    for stop in 0..plan.stops {
        observed.extend(runtime.block_on(one_stop(plan, servers, stop))?);
    }
    let mut before = Samples::default();
    let mut after = Samples::default();
    observed.iter().for_each(|one| {
        before.add(one.step_down_before);
        after.add(one.lost_after);
    });
    let late = observed.iter().filter(|one| one.late).count();
    let row = |figure: &str, unit, value| Row::new("quorate", figure, unit, value);
    Ok(vec![
        row("leases at stops", "", observed.len() as f64),
        row("stops", "", plan.stops as f64),
        row("signalled after validity ended", "leases", late as f64).at_most(0.0),
        row("step-down before validity ended, least", "ms", ms(before.quantile(0.0))),
        row("step-down before validity ended, p50", "ms", ms(before.quantile(0.5))),
        row("loss signal after validity ended, longest", "ms", ms(after.longest())),
    ])
}

async fn one_stop(plan: &Plan, servers: &Servers, stop: usize) -> Result<Vec<Observed>, String> {
    let quorum = quorum(servers.urls(), "bench-loss").await?;
    let mut leases = Vec::new();
    for number in 0..plan.leases_per_stop {
        let lock = quorum.lock(format!("loss-{stop}-{number}")).ttl(TTL);
        leases.push(lock.acquire().await.map_err(|error| error.to_string())?);
    }
    // The wait differs from stop to stop, so that each stop hits another moment of the renewal period.
    quorum.env().sleep(TTL / 3 + TTL / 3 * u32::try_from(stop % 10).unwrap_or(0) / 10).await;
    let holders: Vec<_> = leases.into_iter().map(|lease| spawn(hold(lease))).collect();
    let which = [0, 1, 2].map(|server| (server + stop) % servers.urls().len());
    which.iter().for_each(|&server| servers.stop(server));
    let mut observed = Vec::new();
    for holder in holders {
        observed.push(holder.await.map_err(|error| error.to_string()));
    }
    which.iter().for_each(|&server| servers.resume(server));
    quorum.close().await;
    observed.into_iter().collect()
}

/// Waits for the step-down signal and the loss signal of a lease, and compares their times with the end of
/// its validity.
async fn hold(lease: Lease) -> Observed {
    lease.step_down_token().cancelled().await;
    let at = now();
    // After the step-down the lease is not extended, so this end of validity is final.
    let until = lease.valid_until();
    lease.lost_token().cancelled().await;
    let lost = now();
    Observed {
        step_down_before: until.map_or(Duration::ZERO, |until| at.until(until)),
        lost_after: until.map_or(Duration::ZERO, |until| until.until(lost)),
        late: until.is_none_or(|until| at >= until),
    }
}
