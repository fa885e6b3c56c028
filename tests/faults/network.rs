//! Tests with a network that cuts replies, directions or connections, or that is slow.

use super::bench::{Bench, NODE_TIMEOUT, TTL, eventually, take_over};
use quorate_testkit::proxy::{Directions, Latency, Proxy};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_cut_in_the_middle_on_a_minority_is_a_lost_vote() {
    let bench = Bench::new().await;
    let worker = bench.worker_on_roads("a").await;
    for (round, bytes) in [0, 1, 4, 30].into_iter().enumerate() {
        worker.roads[..2].iter().for_each(|road| road.cut_reply_after(bytes));
        let lease = worker.must_acquire("x").await;
        let cut = || worker.roads.iter().map(Proxy::replies_cut).sum::<u64>();
        let expected = 2 * (round as u64 + 1);
        eventually("replies cut", || (cut() >= expected).then_some(())).await;
        lease.release().await.unwrap_or_else(|error| panic!("{error}"));
        worker.trusts(5).await;
    }
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_cut_in_the_middle_on_a_majority_lose_the_round_and_leave_nothing() {
    let bench = Bench::of_long_leases().await;
    let worker = bench.worker_on_roads("a").await;
    for bytes in [0, 7, 30] {
        worker.roads[..3].iter().for_each(|road| road.cut_reply_after(bytes));
        let error = worker.must_not_acquire("x").await.expect("no worker holds it");
        assert!(error.to_string().contains("the connection closed"), "{error}");
        // The servers granted the requests, but the replies were lost. The worker releases these grants when it
        // is connected again.
        assert!((0..3).all(|index| bench.is_stored(index, "{quorate:x}:fence")));
        bench.freed("x").await;
        worker.trusts(5).await;
    }
    worker.serves("x").await;
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_a_cut_holds_back_are_refused_when_they_arrive() {
    let bench = Bench::new().await;
    let worker = bench.worker_on_roads("a").await;
    worker.roads[..2].iter().for_each(|road| road.cut(Directions::There));
    worker.serves("w").await;
    worker.roads[2].cut(Directions::There);
    let began = worker.now();
    let error = worker.must_not_acquire("x").await.expect("no worker holds it");
    assert!(error.is_unreachable() && error.to_string().contains("no reply in time"), "{error}");
    assert!(began.until(worker.now()) >= NODE_TIMEOUT);
    // A request may wait behind others for up to a node timeout before it is sent. It then stays valid for
    // another node timeout. After that the servers must refuse it.
    worker.quorum.env().sleep_until(began + NODE_TIMEOUT * 3).await;
    // The requests that waited in the network now arrive, in order.
    worker.heal();
    worker.trusts(5).await;
    worker.serves("y").await;
    for index in 0..3 {
        assert!(!bench.is_stored(index, "{quorate:x}:fence"), "node {index} ran what was abandoned");
    }
    worker.serves("x").await;
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_whose_replies_a_cut_holds_back_run_and_are_taken_back() {
    let bench = Bench::of_long_leases().await;
    let worker = bench.worker_on_roads("a").await;
    worker.roads[..2].iter().for_each(|road| road.cut(Directions::Back));
    worker.serves("w").await;
    worker.roads[2].cut(Directions::Back);
    // On this node, the request is granted but the reply is lost. The release can arrive, because the
    // direction to the node is not cut. (On the first two nodes, other requests may still wait for a reply. So
    // the release may not be sent to them.)
    let mut tries = 0;
    while !bench.is_stored(2, "{quorate:x}:fence") {
        let error = worker.must_not_acquire("x").await.expect("no worker holds it");
        assert!(error.is_unreachable(), "{error}");
        tries += 1;
        assert!(tries < 20, "node 2 never ran what it was asked: {error}");
    }
    bench.freed_on(2..3, "x").await;
    // The worker may have closed its connections to the first two servers. It then releases their grants on the
    // next connections.
    worker.heal();
    worker.trusts(5).await;
    bench.freed("x").await;
    worker.serves("x").await;
    bench.clean().await;
}

/// Checks a holder that is cut off from a majority of the nodes, in these directions. The rival reaches all
/// nodes.
async fn holder_cut_off(directions: Directions) {
    let bench = Bench::new().await;
    let (holder, rival) = (bench.worker_on_roads("a").await, bench.worker("b").await);
    let lease = holder.must_acquire("x").await;
    eventually("lease on all five", || (bench.holders_of("x").len() == 5).then_some(())).await;
    let cut = holder.now();
    holder.roads[1..4].iter().for_each(|road| road.cut(directions));
    let next = take_over(&rival, &lease).await;
    let took = cut.until(rival.now());
    assert!(took < TTL * 4, "free only {took:?} later");
    holder.sees_the_end(&lease).await;
    holder.heal();
    holder.trusts(5).await;
    rival.keeps(&next, TTL).await;
    next.release().await.expect("a majority answers");
    holder.serves("x").await;
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_requests_do_not_arrive_has_lost_before_another_holds() {
    holder_cut_off(Directions::There).await;
}

/// Checks a holder whose extensions arrive, but whose replies are lost. The keys live longer than the holder
/// believes, and never shorter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_hears_no_replies_has_lost_before_another_holds() {
    holder_cut_off(Directions::Back).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_cut_off_both_ways_has_lost_before_another_holds() {
    holder_cut_off(Directions::Both).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_all_at_once_cost_no_lease() {
    let bench = Bench::new().await;
    let worker = bench.worker_on_roads("a").await;
    let lease = worker.must_acquire("x").await;
    for _ in 0..3 {
        worker.roads.iter().for_each(Proxy::sever);
        worker.keeps(&lease, TTL / 2).await;
    }
    worker.trusts(5).await;
    // A minority of the servers refuses connections. The worker must keep its lease nevertheless.
    worker.roads[..2].iter().for_each(|road| {
        road.refuse();
        road.sever();
    });
    worker.keeps(&lease, TTL).await;
    worker.heal();
    lease.release().await.expect("a majority answers");
    worker.trusts(5).await;
    worker.serves("x").await;
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_slow_network_validity_counts_from_the_send() {
    let bench = Bench::new().await;
    let worker = bench
        .worker_on_roads_with("a", |setup| quorate::quorum::QuorumConfig {
            node_timeout: NODE_TIMEOUT * 3 / 2,
            ..setup
        })
        .await;
    let (way, jitter) = (Duration::from_millis(30), Duration::from_millis(30));
    worker.roads.iter().for_each(|road| road.set_latency(Latency::each_way(way).jitter(jitter)));
    let began = worker.now();
    let lease = worker.must_acquire("x").await;
    let (took, left) = (began.until(worker.now()), lease.remaining());
    assert!(took >= way * 2, "{took:?}");
    let most = worker.quorum.config().validity(TTL) - way * 2;
    assert!(left <= most, "valid for {left:?}, at most {most:?} can be known of");
    worker.keeps(&lease, TTL + TTL / 2).await;
    lease.release().await.unwrap_or_else(|error| panic!("{error}"));
    worker.serves("x").await;
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_node_timeout_there_is_no_lease_and_nothing_stays() {
    let bench = Bench::of_long_leases().await;
    let worker = bench.worker_on_roads("a").await;
    // A request arrives in time and is granted, but its reply arrives after the node timeout.
    let way = NODE_TIMEOUT * 2 / 3;
    worker.roads[..2].iter().for_each(|road| road.set_latency(Latency::each_way(way)));
    worker.serves("w").await;
    worker.roads[2].set_latency(Latency::each_way(way));
    for _ in 0..3 {
        let began = worker.now();
        let error = worker.must_not_acquire("x").await.expect("no worker holds it");
        assert!(error.is_unreachable(), "{error}");
        assert!(began.until(worker.now()) < Duration::from_secs(5));
        bench.freed("x").await;
    }
    worker.heal();
    worker.trusts(5).await;
    worker.serves("x").await;
    bench.clean().await;
}
