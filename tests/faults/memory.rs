//! Tests with servers that are out of memory. With `noeviction` they refuse commands that would need more
//! memory.

use super::bench::{Bench, TTL};
use quorate::{node::Refusal, quorum::NodeOutcome};

fn fill(bench: &Bench, nodes: usize) {
    for index in 0..nodes {
        assert_eq!(bench.servers[index].command(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    }
}

fn room(bench: &Bench) {
    for server in bench.servers.iter() {
        assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_minority_refuses_and_the_others_grant() {
    let bench = Bench::new().await;
    let worker = bench.worker("a").await;
    fill(&bench, 2);
    let lease = worker.must_acquire("x").await;
    worker.keeps(&lease, TTL + TTL / 2).await;
    assert_eq!(bench.holders_of("x"), [2, 3, 4]);
    room(&bench);
    // The server has memory again, so it stores the lease at the next extension.
    super::bench::eventually("lease on all five", || (bench.holders_of("x").len() == 5).then_some(())).await;
    lease.release().await.expect("a majority answers");
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_servers_refuse_new_leases_by_name_and_extend_those_that_stand() {
    let bench = Bench::new().await;
    let worker = bench.worker("a").await;
    let lease = worker.must_acquire("x").await;
    fill(&bench, 5);
    let error = worker.must_not_acquire("y").await.expect("no worker holds it");
    let report = error.report().expect("a round");
    let full = |outcome: &NodeOutcome| matches!(outcome, NodeOutcome::Refused(Refusal::Unable(why)) if why.contains("OOM"));
    assert!(report.count(full) >= report.needed(), "{error}");
    for (name, _) in report.outcomes().iter().filter(|(_, outcome)| full(outcome)) {
        assert!(
            error.to_string().contains(&format!("{name}: refused: the node cannot serve leases: OOM")),
            "{error}"
        );
    }
    assert!(!error.is_permanent(), "memory comes back");
    // Extensions and releases need no memory, so they still work.
    worker.keeps(&lease, TTL + TTL / 2).await;
    lease.release().await.expect("a majority answers");
    bench.clean().await;
    room(&bench);
    worker.serves("y").await;
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_a_full_majority_refuses_leaves_nothing_on_the_others() {
    let bench = Bench::of_long_leases().await;
    let worker = bench.worker("a").await;
    fill(&bench, 3);
    for _ in 0..5 {
        worker.must_not_acquire("x").await.expect("no worker holds it");
        bench.freed("x").await;
    }
    room(&bench);
    worker.serves("x").await;
    bench.clean().await;
}
