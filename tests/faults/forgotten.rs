//! Tests of servers that lose all data while they run (FLUSHALL), under a lease that is held.

use super::bench::{Bench, TTL, eventually, take_over};
use quorate::quorum::NodeState;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_that_is_flushed_votes_no_more_until_its_quarantine_is_over() {
    let bench = Bench::new().await;
    let (worker, rival) = (bench.worker("a").await, bench.worker("b").await);
    let lease = worker.must_acquire("x").await;
    // An acquire may ask only a majority at first. If one of these servers is flushed, the lease ends at once.
    eventually("lease on all five", || (bench.holders_of("x").len() == 5).then_some(())).await;
    bench.servers[2].flushall();
    let since = worker.now();
    // The first worker that sends a request notices the loss, and writes a new marker. The other worker learns
    // of the loss from this marker.
    assert!(rival.must_not_acquire("x").await.is_none(), "a majority reports the holder");
    rival.sees(2, "quarantined", |state| matches!(state, NodeState::Quarantined { .. })).await;
    worker.keeps(&lease, TTL + TTL / 2).await;
    rival.sees(2, "trusted", |state| *state == NodeState::Trusted).await;
    assert!(since.until(rival.now()) >= rival.quorum.config().quarantine(), "it voted too soon");
    eventually("lease on all five", || (bench.holders_of("x").len() == 5).then_some(())).await;
    lease.release().await.expect("a majority answers");
    rival.serves("x").await;
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_is_flushed_ends_the_lease_and_makes_no_second_holder() {
    let bench = Bench::new().await;
    let (worker, rival) = (bench.worker("a").await, bench.worker("b").await);
    let lease = worker.must_acquire("x").await;
    let since = worker.now();
    (0..3).for_each(|index| bench.servers[index].flushall());
    let next = take_over(&rival, &lease).await;
    assert!(since.until(rival.now()) >= rival.quorum.config().quarantine());
    next.release().await.expect("a majority answers");
    worker.serves("x").await;
    bench.clean().await;
}
