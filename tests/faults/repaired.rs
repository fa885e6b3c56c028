//! Tests that a lease which was acquired while a node was unreachable is later stored on that node too. In the
//! meantime, a waiter tries to acquire the lock on that node.

use super::bench::{Bench, TTL, eventually};
use quorate::{env::BootTime, lease::Lease};
use quorate_tests::support::PATIENCE;
use std::{collections::BTreeMap, time::Duration};

/// The longest time for which the failed attempt of a waiter may be stored on a node. The waiter releases it at
/// once, but the machine may be busy.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Returns the owner that is stored on the node at `index`.
fn owner_on(bench: &Bench, index: usize) -> String {
    bench.servers[index].command(&["GET", "quorate:x"])
}

/// Checks that all five nodes store the lease after at most `within`. Until then, an attempt of the waiter must
/// not be stored on node 0 for longer than [`ATTEMPT`].
async fn comes_to_stand(bench: &Bench, lease: &Lease, now: impl Fn() -> BootTime, within: Duration) {
    let give_up = now() + within;
    let mut seen: BTreeMap<String, BootTime> = BTreeMap::new();
    loop {
        assert!(lease.is_valid(), "the holder has lost it");
        let owner = owner_on(bench, 0);
        if owner == lease.owner().as_str() {
            break;
        }
        assert!(now() < give_up, "not repaired within {within:?}; {owner:?} is stored there");
        if owner != "(nil)" {
            let since = *seen.entry(owner.clone()).or_insert_with(&now);
            assert!(since.until(now()) < ATTEMPT, "{owner} of the waiter stands on");
        }
        quorate::env::Env::system().sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(bench.holders_of("x"), [0, 1, 2, 3, 4]);
    // From now on, every node must store the lease, for at least one TTL. The lease is extended twice or more
    // in that time.
    let until = now() + TTL;
    while now() < until {
        for index in 0..5 {
            assert_eq!(owner_on(bench, index), lease.owner().as_str(), "on node {index}");
        }
        quorate::env::Env::system().sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_comes_to_stand_where_it_is_missing_though_a_waiter_contends() {
    let mut bench = Bench::new().await;
    let (worker, rival) = (bench.worker("a").await, bench.worker("b").await);
    worker.serves("x").await;
    // The node was killed before the acquire, and comes back without data. The node votes again after its
    // quarantine, which takes four seconds here.
    bench.servers[0].kill();
    let lease = worker.must_acquire("x").await;
    let waits = rival.quorum.env().spawn_scoped({
        let quorum = rival.quorum.clone();
        async move {
            // The waiter makes a new call each time, because this sends as many requests as possible.
            loop {
                if let Ok(quorate::lease::TryAcquire::Acquired(lease)) =
                    quorum.lock("x").ttl(TTL).try_acquire().await
                {
                    return lease.unchecked_token();
                }
                quorum.env().sleep(Duration::from_millis(7)).await;
            }
        }
    });
    bench.servers[0].restart().expect("it starts again");
    let quarantine = bench.config("a").quarantine();
    comes_to_stand(&bench, &lease, || worker.now(), quarantine + PATIENCE).await;

    // The key is deleted from a node that keeps its vote. Each round of extensions stores the lease there again, unless an
    // attempt of the waiter comes between two of its requests. On a busy machine this happens in every second round.
    for _ in 0..3 {
        assert_eq!(bench.servers[0].command(&["DEL", "quorate:x"]), "1");
        comes_to_stand(&bench, &lease, || worker.now(), PATIENCE).await;
    }
    let token = lease.unchecked_token();
    lease.release().await.expect("all nodes answer");
    let next = waits.await.expect("no panic");
    assert!(next > token);
    eventually("servers without the waiter's lease", || bench.holders_of("x").is_empty().then_some(())).await;
    bench.clean().await;
}
