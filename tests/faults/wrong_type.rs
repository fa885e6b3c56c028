//! Tests with keys of a wrong type under the names of Quorate's keys. Such a key must affect only its own lock
//! or record, and the error must name the key.

use super::bench::{Bench, Worker, eventually};
use quorate::{
    claim::{ClaimOutcome, Claims},
    ledger::Ledger,
    node::{FencingToken, Record, Refusal},
    quorum::{NoMajority, NodeOutcome, NodeState},
};

/// A script that replaces a key by a list, in one step.
const SPOIL: &str = "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'x')";

fn spoil(bench: &Bench, nodes: usize, key: &str) {
    for index in 0..nodes {
        assert_eq!(bench.servers[index].command(&["EVAL", SPOIL, "1", key]), "1");
    }
}

fn fix(bench: &Bench, key: &str) {
    for server in bench.servers.iter() {
        server.command(&["DEL", key]);
    }
}

/// Checks that at least a majority of the nodes name the key in their refusals.
#[track_caller]
fn names(report: &NoMajority, key: &str) {
    let named = |outcome: &NodeOutcome| matches!(outcome, NodeOutcome::Refused(Refusal::WrongType(what)) if what.contains(key));
    assert!(report.count(named) >= report.needed(), "{key}: {report}");
    assert!(report.to_string().contains(key), "{report}");
}

/// Checks one key of the wrong type. If only a minority of the nodes has such a key, the lock can be acquired.
/// If a majority has one, the error names the key, and other locks are not affected. Once the keys are fixed,
/// the lock can be acquired again.
async fn spoils_one_lock(key: &str) {
    let bench = Bench::new().await;
    let worker = bench.worker("a").await;
    spoil(&bench, 2, key);
    worker.serves("x").await;
    spoil(&bench, 3, key);
    let error = worker.must_not_acquire("x").await.expect("no worker holds it");
    names(error.report().expect("a round"), key);
    worker.serves("y").await;
    fix(&bench, key);
    worker.serves("x").await;
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_place_of_a_lock() {
    spoils_one_lock("quorate:x").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_place_of_a_queue() {
    spoils_one_lock("{quorate:x}:queue").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_place_of_a_counter() {
    spoils_one_lock("{quorate:x}:fence").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_place_of_a_held_lock_on_a_majority_the_lease_ends_and_nobody_has_two() {
    let bench = Bench::new().await;
    let (worker, rival) = (bench.worker("a").await, bench.worker("b").await);
    let lease = worker.must_acquire("x").await;
    spoil(&bench, 3, "quorate:x");
    worker.sees_the_end(&lease).await;
    names(
        rival.must_not_acquire("x").await.expect("no worker holds it").report().expect("a round"),
        "quorate:x",
    );
    fix(&bench, "quorate:x");
    let next = rival.must_acquire("x").await;
    assert!(next.unchecked_token() > lease.unchecked_token());
    next.release().await.expect("a majority answers");
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_place_of_the_marker_the_node_has_no_vote_until_it_is_deleted() {
    let bench = Bench::new().await;
    let worker = bench.worker("a").await;
    let lease = worker.must_acquire("x").await;
    spoil(&bench, 3, "quorate:node");
    let error = worker.must_not_acquire("y").await.expect("no worker holds it");
    names(error.report().expect("a round"), "quorate:node");
    // A worker that connects now gets the error, with the fix, from its handshake.
    let late = bench.newcomer("b");
    let seen = late.sees(0, "unusable", |state| matches!(state, NodeState::Unreachable(_))).await;
    let shown = format!("{:?}", seen.state);
    assert!(shown.contains("marker's key holds another type; delete it"), "{shown}");
    // On these nodes, no lease can be extended, and no lock can be granted to another worker.
    worker.sees_the_end(&lease).await;
    fix(&bench, "quorate:node");
    // The nodes have no marker now. They could be new or flushed, so they are quarantined.
    let since = worker.now();
    // Until the worker has connected again, each call returns the permanent error at once. So the call is
    // repeated.
    let give_up = since + std::time::Duration::from_secs(60);
    let next = loop {
        match late.lock("x").acquire().await {
            Ok(lease) => break lease,
            Err(error) => assert!(late.now() < give_up, "{error}"),
        }
        late.quorum.env().sleep(std::time::Duration::from_millis(100)).await;
    };
    assert!(since.until(late.now()) + QUARANTINE_BEGAN >= late.quorum.config().quarantine());
    assert!(next.unchecked_token() > lease.unchecked_token());
    next.release().await.expect("a majority answers");
    while let Err(error) = worker.lock("y").acquire().await.map(drop) {
        assert!(worker.now() < give_up, "{error}");
        worker.quorum.env().sleep(std::time::Duration::from_millis(100)).await;
    }
    bench.clean().await;
}

/// The longest time between the deletion of the first marker and the reading of `since`. The quarantine may
/// have begun this much before `since`.
const QUARANTINE_BEGAN: std::time::Duration = std::time::Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_place_of_a_ledger_nothing_else_suffers() {
    let bench = Bench::new().await;
    let worker = bench.worker("a").await;
    let (ledger, other) = (ledger(&worker, "g"), ledger(&worker, "h"));
    let term = FencingToken::new(7);
    // The times of these records are later than the beginning of each node's memory. So the votes of all nodes
    // on the records count.
    let record = |at| Record { at, term, last: false, value: "v".into() };
    let at = worker.quorum.env().wall().as_micros() + 10_000_000;
    spoil(&bench, 3, "quorate:ledger/g");
    let refused = ledger.read().await.expect_err("a majority is spoilt").to_string();
    assert!(refused.contains("quorate:ledger/g holds another type"), "{refused}");
    let refused =
        ledger.write(&"k".into(), None, &record(at)).await.expect_err("a majority is spoilt").to_string();
    assert!(refused.contains("quorate:ledger/g holds another type"), "{refused}");
    other.read().await.expect("another group's");
    worker.serves("x").await;
    fix(&bench, "quorate:ledger/g");
    ledger.read().await.expect("the keys are fixed");
    ledger.write(&"k".into(), None, &record(at)).await.expect("the keys are fixed");
    bench.clean().await;
}

fn ledger(worker: &Worker, group: &str) -> Ledger {
    Ledger::new(&worker.quorum, group).expect("a name")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_place_of_a_claim_the_batch_goes_on() {
    let bench = Bench::new().await;
    let worker = bench.worker("a").await;
    let claims = Claims::new(&worker.quorum, "s").ttl(super::bench::TTL);
    let spoilt = ["quorate:claim/s/one", "quorate:claim/s/two"];
    spoilt.iter().for_each(|key| spoil(&bench, 3, key));
    let all = claims.claim_many(["first", "one", "two", "last"]).await.expect("names");
    let mut mine = Vec::new();
    for (number, (id, outcome)) in all.into_iter().enumerate() {
        match (number, outcome) {
            (0 | 3, Ok(ClaimOutcome::Claimed(claim))) => mine.push(claim),
            (1 | 2, Err(error)) => names(error.report().expect("a round"), spoilt[number - 1]),
            (_, other) => panic!("{id}: {other:?}"),
        }
    }
    for claim in mine {
        claim.complete("ok").await.unwrap_or_else(|error| panic!("{error}"));
    }
    spoilt.iter().for_each(|key| fix(&bench, key));
    let again = eventually_claimed(&claims, "one").await;
    again.abandon().await.expect("a majority answers");
    bench.clean().await;
}

async fn eventually_claimed(claims: &Claims, id: &str) -> quorate::claim::Claim {
    let env = quorate::env::Env::system();
    for _ in 0..100 {
        if let Ok(ClaimOutcome::Claimed(claim)) = claims.claim(id).await {
            return claim;
        }
        env.sleep(std::time::Duration::from_millis(50)).await;
    }
    eventually::<()>("claim", || None).await;
    panic!("{id} was not to be claimed")
}
