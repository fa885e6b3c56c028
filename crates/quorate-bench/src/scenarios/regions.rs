//! Measures acquires on nodes in distant regions, which a proxy before each server imitates.

use super::cycles::runtime;
use crate::{
    measure::{Samples, ms, now},
    plan::Plan,
    report::Row,
    rivals::{TTL, quorum},
    servers::Servers,
};
use quorate::lease::TryAcquire;
use quorate_testkit::proxy::{Latency, ProxiedCluster};
use std::time::Duration;

/// The round trips from the worker to the nodes, in milliseconds.
const REGIONS: [(&str, &[u64]); 4] = [
    ("3 nodes, 50 ms to each", &[50, 50, 50]),
    ("3 regions, the worker in one of them", &[1, 50, 80]),
    ("5 nodes, 50 ms to each", &[50, 50, 50, 50, 50]),
    ("5 regions, the worker in one of them", &[1, 30, 50, 80, 140]),
];

pub(crate) fn run(plan: &Plan, _servers: &Servers) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (place, trips) in REGIONS {
        let acquires = runtime(1)?.block_on(measure(plan, trips))?;
        let (p50, p99) = (ms(acquires.quantile(0.5)), ms(acquires.quantile(0.99)));
        // An acquire needs a majority, so the slowest node of the nearest majority decides.
        let decides = nearest_majority(trips);
        let row = |figure: &str, unit, value| Row::new("quorate", format!("{place}: {figure}"), unit, value);
        rows.push(row("acquire p50", "ms", p50));
        rows.push(row("acquire p99", "ms", p99));
        rows.push(row("p50 / the nearest majority's round trip", "×", p50 / decides).at_most(1.1));
    }
    Ok(rows)
}

/// Returns the longest round trip within the nearest majority, in milliseconds.
fn nearest_majority(trips: &[u64]) -> f64 {
    let mut sorted = trips.to_vec();
    sorted.sort_unstable();
    sorted.get(trips.len() / 2).copied().unwrap_or_default() as f64
}

async fn measure(plan: &Plan, trips: &[u64]) -> Result<Samples, String> {
    let cluster = ProxiedCluster::start(trips.len()).map_err(|error| error.to_string())?;
    for (proxy, trip) in cluster.proxies().zip(trips) {
        proxy.set_latency(Latency::each_way(Duration::from_micros(trip * 500)));
    }
    let quorum = quorum(&cluster.proxied_urls(), "bench-regions").await?;
    let mut acquires = Samples::default();
    for number in 0..plan.distant {
        let lock = quorum.lock(format!("distant-{number}")).ttl(TTL);
        let began = now();
        let acquired = lock.try_acquire().await.map_err(|error| error.to_string())?;
        acquires.add(now().since(began));
        if let TryAcquire::Acquired(lease) = acquired {
            lease.release().await.map_err(|error| error.to_string())?;
        }
    }
    quorum.close().await;
    Ok(acquires)
}
