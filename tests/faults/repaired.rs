//! A lease that was taken while a node was away comes to stand on that node too, with a waiter contending there
//! all the while.

use super::bench::{Bench, TTL, eventually};
use quorate::{env::BootTime, lease::Lease};
use std::{collections::BTreeMap, time::Duration};

/// For how long a waiter's attempt that lost may stand on a node: it is released at once, on a machine however busy.
const ATTEMPT: Duration = Duration::from_secs(1);

/// The owner on the node at `index`.
fn owner_on(bench: &Bench, index: usize) -> String {
    bench.servers[index].command(&["GET", "quorate:x"])
}

/// The lease stands on all five, from within `within` on; until then no attempt of the waiter stands on the node
/// at 0 for longer than an attempt takes.
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
    // Once it is stored there, no waiter acquires it in between, for two rounds of extensions and more.
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
    // Killed at the acquire, and back without memory: it votes once its quarantine, here four seconds, is over.
    bench.servers[0].kill();
    let lease = worker.must_acquire("x").await;
    let waits = rival.quorum.env().spawn_scoped({
        let quorum = rival.quorum.clone();
        async move {
            // It starts a new call each time, so that it asks as often as possible.
            loop {
                if let Ok(quorate::lease::TryAcquire::Acquired(lease)) =
                    quorum.lock("x").ttl(TTL).try_acquire().await
                {
                    return lease.token();
                }
                quorum.env().sleep(Duration::from_millis(7)).await;
            }
        }
    });
    bench.servers[0].restart().expect("it starts again");
    let quarantine = bench.config("a").quarantine();
    comes_to_stand(&bench, &lease, || worker.now(), quarantine + TTL * 3).await;

    // And where the key alone is gone, with all trust in place: within two rounds of extensions.
    for _ in 0..3 {
        assert_eq!(bench.servers[0].command(&["DEL", "quorate:x"]), "1");
        comes_to_stand(&bench, &lease, || worker.now(), TTL * 3).await;
    }
    let token = lease.token();
    lease.release().await.expect("all nodes answer");
    let next = waits.await.expect("no panic");
    assert!(next > token);
    eventually("servers without the waiter's lease", || bench.holders_of("x").is_empty().then_some(())).await;
    bench.clean().await;
}
