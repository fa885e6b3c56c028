//! Tests of servers that are killed (SIGKILL). They restart without data, or with their append-only file.

use super::bench::{Bench, TTL, eventually, take_over};
use quorate::{
    node::Cause,
    quorum::{NodeState, QuarantineReason, VoteRejection},
};
use quorate_testkit::redis::{RedisConfig, RedisServer};

fn quarantined(state: &NodeState, because: QuarantineReason) -> bool {
    matches!(state, NodeState::Quarantined { why: VoteRejection::Quarantined { reason, .. }, .. } if *reason == because)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_is_killed_costs_nothing_and_takes_part_again_after_its_quarantine() {
    let mut bench = Bench::new().await;
    let worker = bench.worker("a").await;
    let lease = worker.must_acquire("x").await;
    bench.servers[0].kill();
    bench.servers[1].kill();
    worker.serves("y").await;
    worker.keeps(&lease, TTL + TTL / 2).await;
    let mut since = worker.now();
    for index in 0..2 {
        since = worker.now();
        bench.servers[index].restart().expect("it starts again");
        worker.sees(index, "quarantined", |state| quarantined(state, QuarantineReason::Unmarked)).await;
    }
    worker.sees(1, "trusted", |state| *state == NodeState::Trusted).await;
    assert!(since.until(worker.now()) >= worker.quorum.config().quarantine(), "it voted too soon");
    worker.trusts(5).await;
    eventually("lease on all five", || (bench.holders_of("x").len() == 5).then_some(())).await;
    worker.keeps(&lease, TTL / 2).await;
    lease.release().await.expect("a majority answers");
    worker.serves("x").await;
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_is_killed_ends_the_lease_in_time_and_comes_back_without_a_second_holder() {
    let mut bench = Bench::new().await;
    let (worker, rival) = (bench.worker("a").await, bench.worker("b").await);
    let lease = worker.must_acquire("x").await;
    let killed = worker.now();
    (0..3).for_each(|index| bench.servers[index].kill());
    worker.sees_the_end(&lease).await;
    assert!(killed.until(worker.now()) < TTL * 2, "lost only {:?} later", killed.until(worker.now()));
    let error = rival.must_not_acquire("x").await.expect("no worker holds it");
    assert!(error.is_unreachable(), "{error}");
    for index in 0..3 {
        let port = bench.servers[index].port();
        assert!(error.to_string().contains(&format!("127.0.0.1:{port}")), "{error}");
    }
    let since = worker.now();
    for index in 0..3 {
        bench.servers[index].restart().expect("it starts again");
    }
    // Two nodes still store the lease, and the three others are in quarantine. So no rival can acquire the lock
    // before the quarantine has ended.
    let next = take_over(&rival, &lease).await;
    assert!(since.until(rival.now()) >= rival.quorum.config().quarantine());
    next.release().await.expect("a majority answers");
    worker.serves("x").await;
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_restarts_empty_under_a_held_lease_makes_no_second_holder() {
    let mut bench = Bench::new().await;
    let (worker, rival) = (bench.worker("a").await, bench.worker("b").await);
    let lease = worker.must_acquire("x").await;
    let since = worker.now();
    for index in 0..3 {
        bench.servers[index].restart().expect("it starts again");
    }
    let next = take_over(&rival, &lease).await;
    assert!(since.until(rival.now()) >= rival.quorum.config().quarantine());
    next.release().await.expect("a majority answers");
    worker.serves("x").await;
    bench.clean().await;
}

/// Returns the beginning of each node's memory, from the node's marker. A quarantine moves this time forward.
fn began(bench: &Bench) -> Vec<String> {
    let markers = bench.servers.iter().map(|server| server.command(&["GET", "quorate:node"]));
    let since = |marker: String| marker.lines().find(|line| line.starts_with("since_us=")).map(str::to_owned);
    markers.map(|marker| since(marker).expect("a marker")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_five_restart_from_files_synced_at_every_write_and_the_lease_goes_on() {
    let mut bench = Bench::with(&RedisConfig::new().append_only(), true).await;
    let (worker, rival) = (bench.worker("a").await, bench.worker("b").await);
    let lease = worker.must_acquire("x").await;
    // A lock asks a majority first. The lease reaches the other nodes a moment later.
    let limit = worker.now() + TTL / 2;
    while bench.holders_of("x").len() < 5 && worker.now() < limit {
        worker.quorum.env().sleep(std::time::Duration::from_millis(5)).await;
    }
    let killed = worker.now();
    let memories = began(&bench);
    bench.servers.iter_mut().for_each(RedisServer::kill);
    for index in 0..5 {
        bench.servers[index].restart().expect("it starts again");
    }
    worker.trusts(5).await;
    rival.trusts(5).await;
    assert_eq!(began(&bench), memories, "what a node remembers is what it remembered");
    let away = killed.until(worker.now());
    // The worker cannot extend its lease while the servers are down. If they were down for too long, the lease
    // may have ended, so the test checks the lease only after a short time.
    if away < TTL / 2 {
        assert_eq!(bench.holders_of("x").len(), 5, "the files hold the lease");
        worker.keeps(&lease, TTL).await;
        assert!(rival.must_not_acquire("x").await.is_none(), "held is held, by the majority's word");
    } else {
        println!("all five were away for {away:?}: too long for a TTL of {TTL:?}");
    }
    let token = lease.unchecked_token().get();
    let _ = lease.release().await;
    let next = rival.must_acquire("x").await;
    // The append-only files also contain the counters. If a counter had been started again from the clock, the
    // step would be as large as the elapsed microseconds.
    let step = next.unchecked_token().get() - token;
    assert!((1..100).contains(&step), "the counter rose by {step}");
    next.release().await.expect("a majority answers");
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_told_of_durable_nodes_do_without_those_that_are_not() {
    let bench = Bench::with(&RedisConfig::new().append_only(), true).await;
    let worker = bench.worker("a").await;
    let lease = worker.must_acquire("x").await;
    let memories = began(&bench);
    let set = |index: usize, when: &str| {
        let said = bench.servers[index].command(&["CONFIG", "SET", "appendfsync", when]);
        assert_eq!(said.trim(), "OK");
    };
    let refused = |state: &NodeState| matches!(state, NodeState::Unreachable(Cause::Denied(why)) if why.contains("appendfsync is everysec"));
    // If only one server has this setting, the worker can still use the others.
    set(0, "everysec");
    worker.sees(0, "refused", refused).await;
    worker.keeps(&lease, TTL).await;
    // If a majority of the servers has this setting, the worker has no quorum.
    for index in 1..3 {
        set(index, "everysec");
    }
    for index in 1..3 {
        worker.sees(index, "refused", refused).await;
    }
    worker.sees_the_end(&lease).await;
    let rival = bench.newcomer("b");
    rival.sees(2, "refused", refused).await;
    assert!(rival.must_not_acquire("y").await.is_some(), "nodes that may forget it are no quorum");
    // The servers have not been restarted, so they still store the lease.
    for index in 0..3 {
        set(index, "always");
    }
    rival.trusts(5).await;
    assert_eq!(began(&bench), memories, "what a node remembers is what it remembered");
    rival.serves("x").await;
    bench.clean().await;
}
