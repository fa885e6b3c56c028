//! Tests of many leases at once, of numbered slots, and of leases that end because of `max_hold` or because
//! their worker is stuck. The tests use memory nodes and the real clock.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{SECOND, nodes, quorum};
use quorate::{
    lease::{Heartbeat, Lease, LeaseEvent, Leases, StepDownCause, TryAcquire},
    node::Resource,
    quorum::Quorum,
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

async fn holder(quorum: &Quorum, name: &str) -> Option<String> {
    let resource = Resource::lock(name).expect("a name");
    let seen = quorum.inspect(&resource).await.expect("a majority");
    seen.holder.map(|holder| holder.worker().to_owned())
}

/// Waits until the lock `name` has no holder. Fails after five seconds.
async fn must_be_free(quorum: &Quorum, name: &str) {
    let end = quorum.env().now() + 5 * SECOND;
    while let Some(who) = holder(quorum, name).await {
        assert!(quorum.env().now() < end, "{name} is still held by {who}");
        quorum.env().sleep(SECOND / 100).await;
    }
}

fn names(leases: &Leases) -> Vec<String> {
    leases.iter().map(|lease| lease.resource().to_string()).collect()
}

#[tokio::test]
async fn all_locks_are_acquired_or_none_and_tokens_keep_the_callers_order() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let all = a.locks(["z", "a", "m", "a"]).acquire_all().await.expect("free");
    assert_eq!(names(&all), ["z", "a", "m"], "as named, each once");
    let tokens = all.fencing_tokens().expect("held");
    let each: Vec<_> = all.iter().map(Lease::unchecked_token).collect();
    assert_eq!(tokens, each);
    assert!(all.remaining() > 5 * SECOND);

    match b.locks(["b", "m", "n"]).try_acquire_all().await.expect("a quorum") {
        TryAcquire::Acquired(_) => panic!("m is held"),
        TryAcquire::Contended { resource, holder, .. } => {
            assert_eq!(resource.key(), "m");
            assert_eq!(holder.expect("a majority names it").worker(), "a");
        }
    }
    must_be_free(&b, "b").await;
    must_be_free(&b, "n").await;
    all.release().await.expect("all nodes answer");
    let after = b.locks(["m", "b"]).acquire_all().await.expect("free");
    assert!(after.fencing_tokens().expect("held")[0] > tokens[2]);
    drop(after);
    must_be_free(&b, "m").await;
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn the_wait_for_all_ends_when_the_last_is_released_and_holds_nothing_above_it() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let m = a.lock("m").acquire().await.expect("free");
    let waiting = {
        let b = b.clone();
        b.env().clone().spawn_scoped(async move { b.locks(["z", "m", "a"]).acquire_all().await })
    };
    let end = a.env().now() + 5 * SECOND;
    while holder(&a, "a").await.as_deref() != Some("b") || holder(&a, "z").await.is_some() {
        assert!(a.env().now() < end, "what is below the held one is kept, what is above is not");
        a.env().sleep(SECOND / 50).await;
    }
    m.release().await.expect("all nodes answer");
    let all = waiting.await.expect("no panic").expect("free now");
    assert_eq!(names(&all), ["z", "m", "a"]);

    // An attempt to acquire several locks is dropped. Afterwards none of these locks may be held because of it.
    let c = quorum("c", &nodes);
    let dropped = c.env().before(c.env().now() + SECOND / 2, c.locks(["0", "a"]).acquire_all()).await;
    assert!(dropped.is_none(), "a is held");
    must_be_free(&a, "0").await;
    for quorum in [a, b, c] {
        quorum.close().await;
    }
}

/// Tests workers that name the same locks in different orders. If these workers waited for each other in a
/// circle, the test would never end.
#[tokio::test]
async fn workers_that_name_the_same_locks_in_any_order_do_not_wait_for_each_other_in_a_circle() {
    const TURNS: usize = 6;
    let nodes = nodes();
    let orders = [["x", "y", "z"], ["z", "y", "x"], ["y", "z", "x"]];
    let inside = Arc::new(AtomicU64::new(0));
    let workers = orders.into_iter().enumerate().map(|(number, order)| {
        let (quorum, inside) = (quorum(&format!("w{number}"), &nodes), Arc::clone(&inside));
        let worker = quorum.clone();
        let turns = quorum.env().spawn_scoped(async move {
            for _ in 0..TURNS {
                let all = worker.locks(order).wait(30 * SECOND).acquire_all().await.expect("in its turn");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                worker.env().sleep(Duration::from_millis(2)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                all.release().await.expect("all nodes answer");
            }
        });
        (turns, quorum)
    });
    for (turns, quorum) in workers.collect::<Vec<_>>() {
        turns.await.expect("no panic");
        quorum.close().await;
    }
}

#[tokio::test]
async fn separate_acquisitions_have_one_outcome_each() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let _held = a.lock("two").acquire().await.expect("free");
    let each = b.locks(["three", "two", "one"]).try_acquire_each().await.expect("a quorum");
    let outcomes: Vec<(&str, bool)> = each
        .iter()
        .map(|(name, one)| (name.key(), matches!(one, Ok(TryAcquire::Acquired(lease)) if lease.is_valid())))
        .collect();
    assert_eq!(outcomes, [("three", true), ("two", false), ("one", true)]);
    let bad = b.locks(["fine", "wi{ld"]).try_acquire_each().await.expect_err("a brace");
    assert!(bad.to_string().contains("brace"), "{bad}");
    let none = b.locks([""; 0]).acquire_all().await.expect_err("nothing to hold");
    assert!(none.to_string().contains("resources is a list of 0 locks"), "{none}");
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn the_first_lease_of_a_group_to_end_is_reported() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let all = quorum.locks(["a", "b"]).ttl(SECOND / 2).auto_extend(false).acquire_all().await.expect("free");
    all.any_step_down().await;
    assert!(all.fencing_tokens().is_ok(), "the grace is left");
    all.any_lost().await;
    assert!(all.iter().any(|lease| lease.step_down_cause() == Some(StepDownCause::NotExtended)));
    let dropped = quorum.lock("c").acquire().await.expect("free");
    let (step_down, mut events) = (dropped.step_down_token().clone(), dropped.events());
    dropped.release().await.expect("all nodes answer");
    while events.recv().await.is_some() {}
    assert!(step_down.is_cancelled());
    assert!(all.fencing_tokens().is_err());
    quorum.close().await;
}

#[tokio::test]
async fn k_slots_have_k_holders_each_with_a_number_and_a_token() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let mut held = Vec::new();
    for quorum in [&a, &b, &a] {
        held.push(quorum.slots("pool", 3).acquire_any().await.expect("free"));
    }
    let numbers: BTreeSet<usize> = held.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, BTreeSet::from([0, 1, 2]));
    for (number, lease) in &held {
        assert_eq!(lease.resource().key(), format!("pool/slot-{number}"));
    }
    assert!(b.slots("pool", 3).try_acquire_any().await.expect("a quorum").is_contended(), "full");
    let late = b.slots("pool", 3).wait(SECOND / 5).acquire_any().await.expect_err("full");
    assert!(late.is_contended() && late.to_string().contains("pool/slot-"), "{late}");
    let (number, freed) = held.remove(1);
    let token = freed.unchecked_token();
    drop(freed);
    let (again, lease) = b.slots("pool", 3).wait(5 * SECOND).acquire_any().await.expect("one is free");
    assert_eq!(again, number);
    assert!(lease.unchecked_token() > token, "a slot's tokens grow");
    let none = b.slots("pool", 0).acquire_any().await.expect_err("no slot at all");
    assert!(none.to_string().contains("slots is 0"), "{none}");
    let many = b.slots("pool", 5000).acquire_any().await.expect_err("too many");
    assert!(many.to_string().contains("give it 1 to 1024"), "{many}");
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn a_lease_is_held_no_longer_than_its_maximum() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let lock = quorum.lock("x").ttl(SECOND).step_down_grace(SECOND / 5).max_hold(SECOND * 9 / 5);
    let lease = lock.acquire().await.expect("free");
    let (began, mut events) = (quorum.env().now(), lease.events());
    assert_eq!(lease.step_down_cause(), None);
    lease.step_down_token().cancelled().await;
    assert_eq!(lease.step_down_cause(), Some(StepDownCause::MaxHold));
    lease.lost_token().cancelled().await;
    let lasted = began.until(quorum.env().now());
    assert!(lasted > SECOND, "extended meanwhile: {lasted:?}");
    assert!(lease.fencing_token().is_err() && lasted >= SECOND * 17 / 10, "{lasted:?}");
    let mut seen = Vec::new();
    while let Some(event) = events.recv().await {
        seen.push(event);
    }
    assert_eq!(seen, [LeaseEvent::Held, LeaseEvent::StepDown, LeaseEvent::Lost]);
    must_be_free(&quorum, "x").await;
    quorum.close().await;
}

#[tokio::test]
async fn a_stuck_worker_stops_renewing_and_is_notified() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let well = Arc::new(AtomicBool::new(true));
    let check = {
        let well = Arc::clone(&well);
        move || well.load(Ordering::Acquire)
    };
    let lease = a.lock("x").ttl(SECOND).renew_while(check).acquire().await.expect("free");
    a.env().sleep(SECOND * 3 / 2).await;
    assert!(lease.is_valid(), "extended while it gets on");
    well.store(false, Ordering::Release);
    lease.lost_token().cancelled().await;
    assert_eq!(lease.step_down_cause(), Some(StepDownCause::Unhealthy));
    let after = b.lock("x").wait(5 * SECOND).acquire().await.expect("free");
    assert!(after.unchecked_token() > lease.unchecked_token());

    let heart = Heartbeat::new(a.env(), SECOND / 4);
    let beating = a.lock("y").ttl(SECOND).renew_while_beating(&heart).acquire().await.expect("free");
    for _ in 0..30 {
        heart.beat();
        a.env().sleep(SECOND / 20).await;
    }
    assert!(beating.is_valid(), "beaten for longer than its TTL");
    beating.lost_token().cancelled().await;
    assert_eq!(beating.step_down_cause(), Some(StepDownCause::Unhealthy));

    let panics = a.lock("z").ttl(SECOND / 2).renew_while(|| panic!("a check that breaks")).acquire().await;
    panics.expect("free").lost_token().cancelled().await;
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn impossible_holdings_are_refused_with_the_fix() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let short = quorum.lock("x").max_hold(SECOND).acquire().await.expect_err("the grace is 2 s");
    assert!(short.to_string().contains("max_hold is 1s") && short.is_permanent(), "{short}");
    let long = quorum.lock("x").ttl(5 * SECOND).min_validity(5 * SECOND).acquire().await;
    let long = long.expect_err("an attempt would never leave so much");
    assert!(long.to_string().contains("min_validity is 5s") && long.is_permanent(), "{long}");
    let grace =
        quorum.lock("x").step_down_grace(Duration::MAX).acquire().await.expect_err("longer than the TTL");
    assert!(grace.to_string().contains("step_down_grace"), "{grace}");
    let idle = quorum.lock("x").renew_while(|| true).auto_extend(false).acquire().await.expect_err("idle");
    assert!(idle.to_string().contains("auto_extend"), "{idle}");
    let heart = Heartbeat::new(quorum.env(), Duration::ZERO);
    let dead = quorum.lock("x").renew_while_beating(&heart).acquire().await.expect_err("never beats");
    assert!(dead.to_string().contains("max_silence is 0ns"), "{dead}");
    quorum.close().await;
}
