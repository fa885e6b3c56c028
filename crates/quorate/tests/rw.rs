//! Tests of readers and writers through the public interface, with memory nodes and the real clock.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a test awaits or aborts its tasks")]

mod common;

use common::{SECOND, nodes, quorum};
use quorate::{
    lease::{Lease, LeaseError, LeaseEvent, ReadLease, TryAcquire},
    node::{Owner, Resource},
    quorum::Quorum,
};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

async fn reads(quorum: &Quorum, ttl: Duration) -> ReadLease {
    match quorum.read_lock("x").ttl(ttl).try_acquire().await.expect("a quorum") {
        TryAcquire::Acquired(lease) => lease,
        TryAcquire::Contended { holder, .. } => panic!("held by {holder:?}"),
    }
}

async fn writes(quorum: &Quorum) -> Lease {
    match quorum.lock("x").try_acquire().await.expect("a quorum") {
        TryAcquire::Acquired(lease) => lease,
        TryAcquire::Contended { holder, .. } => panic!("held by {holder:?}"),
    }
}

/// Tries to acquire the lock for writing, and returns the worker of the holder that prevents it. A majority of
/// the nodes must report the same holder.
async fn in_the_way_of_a_writer(quorum: &Quorum) -> String {
    match quorum.lock("x").try_acquire().await.expect("a quorum") {
        TryAcquire::Acquired(_) => panic!("a writer beside another holder"),
        TryAcquire::Contended { holder, retry_after, .. } => {
            assert!(retry_after.is_some(), "memory nodes tell");
            holder.expect("a majority names it").worker().to_owned()
        }
    }
}

async fn in_the_way_of_a_reader(quorum: &Quorum) -> String {
    match quorum.read_lock("x").try_acquire().await.expect("a quorum") {
        TryAcquire::Acquired(_) => panic!("a reader beside a writer"),
        TryAcquire::Contended { holder, .. } => holder.expect("a majority names it").worker().to_owned(),
    }
}

#[tokio::test]
async fn many_read_or_one_writes() {
    let nodes = nodes();
    let (a, b, c) = (quorum("a", &nodes), quorum("b", &nodes), quorum("c", &nodes));
    let (one, two) = (reads(&a, 10 * SECOND).await, reads(&b, 10 * SECOND).await);
    assert!(one.ensure_held().is_ok() && two.ensure_held().is_ok());
    assert_ne!(one.owner(), two.owner());
    assert_eq!(in_the_way_of_a_writer(&c).await, Owner::READERS);
    one.release().await.expect("all nodes answer");
    assert_eq!(in_the_way_of_a_writer(&c).await, Owner::READERS, "one still reads");
    drop(two);
    let writer = c.lock("x").wait(SECOND).acquire().await.expect("free at once");
    let first = writer.fencing_token().expect("held");
    assert_eq!(in_the_way_of_a_reader(&a).await, "c");
    assert_eq!(in_the_way_of_a_writer(&a).await, "c");
    writer.release().await.expect("all nodes answer");
    let reader = reads(&a, 10 * SECOND).await;
    reader.release().await.expect("all nodes answer");
    assert!(writes(&b).await.fencing_token().expect("held") > first, "readers do not disturb the tokens");
    for quorum in [a, b, c] {
        quorum.close().await;
    }
}

#[tokio::test]
async fn readers_are_renewed_until_released_and_expire_without_renewal() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let reader = reads(&a, SECOND).await;
    let mut events = reader.events();
    assert_eq!(events.recv().await, Some(LeaseEvent::Held));
    let until = reader.valid_until().expect("held");
    while a.env().now() < until + SECOND / 2 {
        a.env().sleep(50 * MS).await;
        reader.ensure_held().expect("the renewer extends it");
        assert_eq!(in_the_way_of_a_writer(&b).await, Owner::READERS);
    }
    reader.extend().await.expect("a majority extends");
    reader.release().await.expect("all nodes answer");
    assert_eq!(events.recv().await, Some(LeaseEvent::StepDown));
    // The lease of this reader is not extended. So a writer can acquire the lock when that lease has ended.
    let began = b.env().now();
    let mortal = a.read_lock("x").ttl(SECOND).auto_extend(false).acquire().await.expect("free");
    let writer = b.lock("x").wait(5 * SECOND).acquire().await.expect("its time is over");
    assert!(!mortal.is_valid() && mortal.ensure_held().is_err(), "over before anybody writes");
    let waited = began.until(b.env().now());
    assert!(waited >= 850 * MS, "not before its validity of 888 ms is over: {waited:?}");
    drop(writer);
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn a_downgraded_writer_reads_on_with_no_writer_in_between() {
    let nodes = nodes();
    let (a, b, c) = (quorum("a", &nodes), quorum("b", &nodes), quorum("c", &nodes));
    let writer = writes(&a).await;
    let (owner, lost) = (writer.owner().clone(), writer.lost_token().clone());
    // During the downgrade, another writer keeps trying to acquire the lock.
    let waiting = {
        let b = b.clone();
        tokio::spawn(async move { b.lock("x").wait(10 * SECOND).acquire().await })
    };
    let reader = writer.downgrade().await.expect("all nodes answer");
    assert!(lost.is_cancelled(), "the writer's lease is over");
    assert_ne!(*reader.owner(), owner, "a lease has an owner token of its own");
    let other = reads(&c, 10 * SECOND).await;
    assert!(!waiting.is_finished(), "two read");
    let resource = Resource::lock("x").expect("a name");
    let seen = c.inspect(&resource).await.expect("a majority");
    assert_eq!(seen.holder.expect("held").as_str(), Owner::READERS);
    other.release().await.expect("all nodes answer");
    reader.ensure_held().expect("held");
    assert!(!waiting.is_finished(), "one reads");
    reader.release().await.expect("all nodes answer");
    let next = waiting.await.expect("no panic").expect("free now");
    next.release().await.expect("all nodes answer");
    for quorum in [a, b, c] {
        quorum.close().await;
    }
}

#[tokio::test]
async fn a_failed_downgrade_leaves_nothing_behind() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let over = a.lock("x").ttl(SECOND).auto_extend(false).acquire().await.expect("free");
    over.lost_token().cancelled().await;
    let error = over.downgrade().await.expect_err("it has ended");
    assert!(matches!(error, LeaseError::Lost(_)), "{error}");
    // The future of each downgrade is dropped before it completes. Afterwards, the nodes must store neither the
    // writer nor the reader.
    for polls in 0..3 {
        let writer = b.lock("x").wait(3 * SECOND).acquire().await.expect("free");
        let mut going = Box::pin(writer.downgrade());
        for _ in 0..polls {
            if futures_util::poll!(&mut going).is_ready() {
                break;
            }
        }
        drop(going);
    }
    drop(b.lock("x").wait(SECOND).acquire().await.expect("free at once, not after its TTL"));
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn an_acquisition_dropped_half_way_leaves_nothing_behind() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    a.met(5 * SECOND).await;
    for polls in 0..6 {
        let lock = a.read_lock("x");
        let mut attempt = Box::pin(lock.acquire());
        for _ in 0..polls {
            if futures_util::poll!(&mut attempt).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(attempt);
    }
    let next = b.lock("x").wait(SECOND).acquire().await.expect("free at once, not after its TTL");
    next.release().await.expect("all nodes answer");
    let held = reads(&a, 10 * SECOND).await;
    a.close().await;
    assert!(!held.is_valid(), "a closed quorum holds nothing");
    drop(b.lock("x").wait(SECOND).acquire().await.expect("free at once"));
    b.close().await;
}

#[tokio::test]
async fn bad_input_names_the_field() {
    let nodes = nodes();
    let a = quorum("a", &nodes);
    let long = a.read_lock("x").ttl(60 * SECOND).try_acquire().await.expect_err("above max_ttl");
    assert!(long.to_string().contains("ttl is 60s"), "{long}");
    let named = a.read_lock("x{y").try_acquire().await.expect_err("a brace");
    assert!(named.to_string().contains("brace"), "{named}");
    a.close().await;
}
