//! Tests of servers that are stopped (SIGSTOP). Connections stay open, and requests wait until SIGCONT, when
//! the servers run them.

use super::bench::{Bench, TTL, take_over};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_stands_still_costs_one_node_timeout_at_most() {
    let bench = Bench::new().await;
    let worker = bench.worker("a").await;
    let lease = worker.must_acquire("x").await;
    bench.servers[0].pause();
    bench.servers[1].pause();
    // A round that is decided does not wait for the stopped servers.
    let began = worker.now();
    worker.serves("y").await;
    assert!(began.until(worker.now()) < Duration::from_secs(5));
    worker.keeps(&lease, TTL + TTL / 2).await;
    bench.servers[0].resume();
    bench.servers[1].resume();
    worker.trusts(5).await;
    worker.keeps(&lease, TTL / 2).await;
    lease.release().await.expect("a majority answers");
    worker.serves("x").await;
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_stands_still_ends_the_lease_and_what_was_abandoned_sets_nothing() {
    let bench = Bench::new().await;
    let (worker, rival) = (bench.worker("a").await, bench.worker("b").await);
    // The lock has been used before on these servers. So the abandoned request is one of plain commands, which the servers
    // run late.
    rival.serves("z").await;
    let lease = worker.must_acquire("x").await;
    (0..3).for_each(|index| bench.servers[index].pause());
    let error = rival.must_not_acquire("z").await.expect("no worker holds it");
    assert!(error.is_unreachable(), "{error}");
    assert!(error.to_string().contains("no reply in time"), "{error}");
    worker.sees_the_end(&lease).await;
    (0..3).for_each(|index| bench.servers[index].resume());
    rival.trusts(5).await;
    rival.serves("y").await;
    // The abandoned acquire request waited in the sockets of the three servers, before any later request. So
    // the servers have handled it by now, and its release after it.
    let keys: Vec<String> = (0..3).map(|index| bench.servers[index].command(&["GET", "quorate:z"])).collect();
    assert_eq!(keys, ["(nil)"; 3], "a node keeps what was abandoned");
    let next = take_over(&rival, &lease).await;
    next.release().await.expect("a majority answers");
    worker.serves("x").await;
    worker.serves("z").await;
    bench.clean().await;
}
