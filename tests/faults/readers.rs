//! Tests of readers, writers and fair waiters on real servers, with other Redlock clients, crashes, and stopped
//! or flushed servers.

#![allow(clippy::disallowed_methods, reason = "a test awaits or aborts its tasks")]

use super::bench::{Bench, TTL, Worker, eventually};
use quorate::{
    lease::{Lock, ReadLease, TryAcquire},
    node::Owner,
};
use quorate_tests::support::PATIENCE;
use std::time::Duration;

const READERS: &str = "{quorate:x}:readers";
const QUEUE: &str = "{quorate:x}:queue";

/// The script by which other Redlock clients release a lock. The script deletes the key only if the key has
/// the client's value.
const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

fn reader(worker: &Worker) -> Lock<ReadLease> {
    worker.quorum.read_lock("x").ttl(worker.quorum.config().max_ttl).wait(PATIENCE)
}

async fn reads(worker: &Worker) -> ReadLease {
    reader(worker).acquire().await.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the number of servers that store this number of readers.
fn servers_with(bench: &Bench, readers: usize) -> usize {
    bench.servers.iter().filter(|server| server.command(&["ZCARD", READERS]) == readers.to_string()).count()
}

/// Checks that the servers store no key of a lock, a reader or a queue.
async fn clean(bench: &Bench) {
    eventually("servers without readers and queues", || {
        let left = |key: &str| (0..5).any(|index| bench.is_stored(index, key));
        (!left(READERS) && !left(QUEUE)).then_some(())
    })
    .await;
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_keep_other_redlock_clients_out_and_the_other_way_round() {
    let bench = Bench::of_long_leases().await;
    let (a, b) = (bench.worker("a").await, bench.worker("b").await);
    let (one, two) = (reads(&a).await, reads(&b).await);
    eventually("two readers on all five", || (servers_with(&bench, 2) == 5).then_some(())).await;
    let set = |index: usize| {
        bench.servers[index].command(&["SET", "quorate:x", "other", "NX", "PX", "60000"]) == "OK"
    };
    let release = |index: usize| bench.servers[index].command(&["EVAL", RELEASE, "1", "quorate:x", "other"]);
    for index in 0..5 {
        assert!(!set(index), "another client got in beside readers on node {index}");
        assert_eq!(release(index), "0", "and its release freed them");
        let ends = |key| bench.servers[index].expires_at(key);
        assert_eq!(ends("quorate:x"), ends(READERS), "the lock ends with its readers");
    }
    one.release().await.expect("all answer");
    assert!(!set(0), "one still reads");
    two.release().await.expect("all answer");
    eventually("free lock", || bench.holders_of("x").is_empty().then_some(())).await;
    for index in 0..3 {
        assert!(set(index), "there is no reader");
    }
    match reader(&a).try_acquire().await.expect("a quorum") {
        TryAcquire::Acquired(_) => panic!("a reader beside another client"),
        TryAcquire::Contended { holder, .. } => assert_eq!(holder.expect("a majority").as_str(), "other"),
    }
    (0..3).for_each(|index| assert_eq!(release(index), "1"));
    reads(&a).await.release().await.expect("all answer");
    clean(&bench).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_is_extended_and_comes_to_stand_where_it_was_missing() {
    let bench = Bench::new().await;
    let (a, b) = (bench.worker("a").await, bench.worker("b").await);
    bench.servers[4].pause();
    let lease = reads(&a).await;
    assert!(b.must_not_acquire("x").await.is_none(), "readers hold it");
    bench.servers[4].resume();
    eventually("the reader on all five", || (servers_with(&bench, 1) == 5).then_some(())).await;
    let until = a.now() + TTL + TTL / 2;
    while a.now() < until {
        lease.ensure_held().expect("extended");
        a.quorum.env().sleep(Duration::from_millis(20)).await;
    }
    lease.release().await.expect("a majority answers");
    b.serves("x").await;
    clean(&bench).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crashed_reader_is_gone_with_its_time_and_those_who_go_on_stay() {
    let bench = Bench::new().await;
    let (dies, stays, writer) =
        (bench.worker_on_roads("a").await, bench.worker("b").await, bench.worker("w").await);
    let (lost, kept) = (reads(&dies).await, reads(&stays).await);
    eventually("two readers on all five", || (servers_with(&bench, 2) == 5).then_some(())).await;
    dies.crash();
    drop(lost);
    eventually("one reader on all five", || {
        let live = |server: &quorate_testkit::redis::RedisServer| {
            let now = server.command(&["TIME"]);
            let now = now.lines().next().and_then(|seconds| seconds.parse::<u64>().ok()).expect("seconds");
            server.command(&["ZCOUNT", READERS, &format!("{}", (now + 1) * 1000), "+inf"]) == "1"
        };
        bench.servers.iter().all(live).then_some(())
    })
    .await;
    assert!(writer.must_not_acquire("x").await.is_none(), "one reads on");
    kept.ensure_held().expect("held");
    kept.release().await.expect("all answer");
    writer.serves("x").await;
    clean(&bench).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_is_flushed_ends_the_reader_before_anybody_writes() {
    let bench = Bench::new().await;
    let (a, writer) = (bench.worker("a").await, bench.worker("w").await);
    let lease = reads(&a).await;
    (0..3).for_each(|index| bench.servers[index].flushall());
    let give_up = writer.now() + PATIENCE;
    let lock = writer.lock("x");
    let next = loop {
        if let Ok(TryAcquire::Acquired(next)) = lock.try_acquire().await {
            assert!(!lease.is_valid(), "a writer beside a reader with {:?} left", lease.remaining());
            break next;
        }
        assert!(writer.now() < give_up, "never free");
        writer.quorum.env().sleep(Duration::from_millis(5)).await;
    };
    next.release().await.expect("a majority answers");
    clean(&bench).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_reads_on_though_a_minority_does_not_hear_of_it() {
    let bench = Bench::new().await;
    let (a, b) = (bench.worker("a").await, bench.worker("b").await);
    let writer = a.must_acquire("x").await;
    let lost = writer.lost_token().clone();
    eventually("the writer on all five", || (bench.holders_of("x").len() == 5).then_some(())).await;
    bench.servers[0].pause();
    bench.servers[1].pause();
    let lease = writer.downgrade().await.unwrap_or_else(|error| panic!("{error}"));
    assert!(lost.is_cancelled());
    let other = reads(&b).await;
    assert!(b.must_not_acquire("x").await.is_none(), "readers hold it");
    bench.servers[0].resume();
    bench.servers[1].resume();
    eventually("both readers on all five", || (servers_with(&bench, 2) == 5).then_some(())).await;
    lease.ensure_held().expect("held");
    lease.release().await.expect("a majority answers");
    other.release().await.expect("a majority answers");
    b.serves("x").await;
    clean(&bench).await;
}

/// Checks two fair waiters while one of five nodes is stopped. Both acquire the lock, in the order in which
/// they began to wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_server_stopped_both_who_wait_in_turn_get_it() {
    let bench = Bench::new().await;
    let workers = [bench.worker("h").await, bench.worker("a").await, bench.worker("b").await];
    bench.servers[4].pause();
    let held = workers[0].must_acquire("x").await;
    let (order, mut got) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    for (before, name) in [(1, "a"), (2, "b")] {
        let (lock, order) = (workers[before].lock("x").fair(Duration::ZERO), order.clone());
        tasks.push(tokio::spawn(async move {
            let lease = lock.acquire().await.unwrap_or_else(|error| panic!("{error}"));
            order.send(name).expect("the receiver is read");
            lease.release().await.expect("a majority answers");
        }));
        eventually("place in the queue", || {
            let stands = |index: usize| bench.servers[index].command(&["ZCARD", QUEUE]) == before.to_string();
            (0..4).all(stands).then_some(())
        })
        .await;
    }
    let told = workers[0].must_not_acquire("x").await;
    assert!(told.is_none(), "contended");
    held.release().await.expect("a majority answers");
    for task in tasks {
        task.await.expect("both get it");
    }
    assert_eq!((got.recv().await, got.recv().await), (Some("a"), Some("b")));
    bench.servers[4].resume();
    workers[0].serves("x").await;
    clean(&bench).await;
}

/// Checks a queue whose first waiter has died. The dead waiter blocks other waiters only until its entry in
/// the queue expires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crashed_head_is_dropped_in_time() {
    let bench = Bench::new().await;
    let (holder, dies, next) =
        (bench.worker("h").await, bench.worker_on_roads("a").await, bench.worker("b").await);
    let held = holder.must_acquire("x").await;
    let lock = dies.lock("x").fair(Duration::ZERO);
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    eventually("place in the queue", || {
        (0..5).all(|index| bench.servers[index].command(&["ZCARD", QUEUE]) == "1").then_some(())
    })
    .await;
    dies.crash();
    waiting.abort();
    let _ = waiting.await;
    held.release().await.expect("all answer");
    let told = match next.quorum.lock("x").ttl(TTL).try_acquire().await.expect("a quorum") {
        TryAcquire::Acquired(_) => None, // The machine was so busy that its time is over already.
        TryAcquire::Contended { holder, .. } => holder,
    };
    assert!(told.is_none_or(|by| by.as_str() == Owner::QUEUE));
    let began = next.now();
    next.lock("x").fair(Duration::ZERO).acquire().await.expect("its turn").release().await.expect("ok");
    // The entry of the dead waiter expires after three times the sum of 100 ms and two node timeouts of 250
    // ms. The rest of the limit is for a busy machine.
    let waited = began.until(next.now());
    assert!(waited < Duration::from_millis(1800) + Duration::from_secs(3), "dropped after {waited:?}");
    clean(&bench).await;
}
