//! A majority of the servers stops while leases are held and extended: is every holder told before its validity ends, and
//! before anybody else could hold?

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

/// A short one, so that twenty stops take a minute.
const TTL: Duration = Duration::from_secs(2);

/// What one holder saw.
struct Told {
    /// How long before the end of validity it was told to stop.
    step_down_before: Duration,
    /// How long after the end of validity it was told that the lease is lost.
    lost_after: Duration,
    /// Whether it was told to stop only when validity had ended.
    late: bool,
}

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let runtime = runtime(2)?;
    let mut told = Vec::new();
    for stop in 0..plan.stops {
        told.extend(runtime.block_on(one_stop(plan, servers, stop))?);
    }
    let mut before = Samples::default();
    let mut after = Samples::default();
    told.iter().for_each(|one| {
        before.add(one.step_down_before);
        after.add(one.lost_after);
    });
    let late = told.iter().filter(|one| one.late).count();
    let row = |figure: &str, unit, value| Row::new("quorate", figure, unit, value);
    Ok(vec![
        row("leases at stops", "", told.len() as f64),
        row("stops", "", plan.stops as f64),
        row("told after validity ended", "leases", late as f64).at_most(0.0),
        row("told to stop before validity ended, least", "ms", ms(before.quantile(0.0))),
        row("told to stop before validity ended, p50", "ms", ms(before.quantile(0.5))),
        row("told lost after validity ended, longest", "ms", ms(after.longest())),
    ])
}

async fn one_stop(plan: &Plan, servers: &Servers, stop: usize) -> Result<Vec<Told>, String> {
    let quorum = quorum(servers.urls(), "bench-loss").await?;
    let mut leases = Vec::new();
    for number in 0..plan.leases_a_stop {
        let lock = quorum.lock(&format!("loss-{stop}-{number}")).ttl(TTL);
        leases.push(lock.acquire().await.map_err(|error| error.to_string())?);
    }
    // Somewhere within a renewal's period, another place at each stop.
    quorum.env().sleep(TTL / 3 + TTL / 3 * u32::try_from(stop % 10).unwrap_or(0) / 10).await;
    let holders: Vec<_> = leases.into_iter().map(|lease| spawn(hold(lease))).collect();
    let which = [0, 1, 2].map(|server| (server + stop) % servers.urls().len());
    which.iter().for_each(|&server| servers.stop(server));
    let mut told = Vec::new();
    for holder in holders {
        told.push(holder.await.map_err(|error| error.to_string()));
    }
    which.iter().for_each(|&server| servers.go_on(server));
    quorum.close().await;
    told.into_iter().collect()
}

/// Watches the end of validity as the lease itself tells it, and when it is told.
async fn hold(lease: Lease) -> Told {
    lease.step_down_token().cancelled().await;
    let at = now();
    // After the step-down nothing is extended: this is the last word on when validity ends.
    let until = lease.valid_until();
    lease.lost_token().cancelled().await;
    let lost = now();
    Told {
        step_down_before: until.map_or(Duration::ZERO, |until| at.until(until)),
        lost_after: until.map_or(Duration::ZERO, |until| until.until(lost)),
        late: until.is_none_or(|until| at >= until),
    }
}
