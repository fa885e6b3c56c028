//! Tests of balanced shards through the public interface, with memory nodes and the real clock.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/cut.rs"]
mod cut;
#[path = "common/log.rs"]
mod log;

use common::{SECOND, nodes, quorum};
use cut::Cut;
use log::Log;
use quorate::{
    AcquireError, LeaseLost, Quorum, Shards,
    env::ScopedTask,
    node::MemoryNode,
    shards::{Shard, ShardSet},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const MS: Duration = Duration::from_millis(1);

/// The works that are active: who works on each shard, and the largest token of each shard so far.
#[derive(Clone, Default)]
struct Books(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    active: BTreeMap<usize, String>,
    tokens: BTreeMap<usize, u64>,
    begun: usize,
}

/// The entry of one work, which ends when the work ends or is dropped.
struct Entry(Books, usize);

impl Books {
    /// Notes that `worker` works on `shard`. Panics if another work is active.
    fn begin(&self, worker: &str, shard: &Shard) -> Entry {
        let mut book = self.0.lock().expect("no panic");
        let (number, token) = (shard.number(), shard.unchecked_token().get());
        let other = book.active.insert(number, worker.into());
        assert_eq!(other, None, "{worker} works on the shard {number} too");
        let last = book.tokens.insert(number, token);
        assert!(last < Some(token), "{token} after {last:?}");
        book.begun += 1;
        drop(book);
        Entry(self.clone(), number)
    }

    fn begun(&self) -> usize {
        self.0.lock().expect("no panic").begun
    }

    fn of(&self, worker: &str) -> Vec<usize> {
        let book = self.0.lock().expect("no panic");
        book.active.iter().filter(|(_, owner)| *owner == worker).map(|(shard, _)| *shard).collect()
    }

    fn counts(&self) -> Vec<usize> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        self.0
            .lock()
            .expect("no panic")
            .active
            .values()
            .for_each(|who| *counts.entry(who.clone()).or_default() += 1);
        counts.into_values().collect()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Ok(mut book) = self.0.0.lock() {
            book.active.remove(&self.1);
        }
    }
}

/// Returns the set `orders` with 12 shards.
fn set(quorum: &Quorum) -> Shards {
    Shards::new(quorum, "orders", 12).ttl(SECOND)
}

/// A worker of the set `orders`.
struct Worker {
    quorum: Quorum,
    shards: Shards,
    stop: CancellationToken,
    off: Arc<AtomicBool>,
    run: ScopedTask<Result<(), AcquireError>>,
}

impl Worker {
    /// Starts a worker whose work ends at once when it is asked to stop, or `lag` later.
    fn start(
        name: &str,
        nodes: &[MemoryNode],
        books: &Books,
        shards: impl FnOnce(&Quorum) -> Shards,
        lag: Duration,
    ) -> Self {
        let off = Arc::new(AtomicBool::new(false));
        let builder = Quorum::builder().worker(name).nodes(nodes.iter().map(|node| Cut::new(node, &off)));
        let quorum = builder.trust_new_nodes(true).build().expect("a sound setup");
        let shards = shards(&quorum);
        let (stop, books, name, env) =
            (CancellationToken::new(), books.clone(), name.to_owned(), quorum.env().clone());
        let work = move |shard: Shard| {
            let (books, name, env) = (books.clone(), name.clone(), env.clone());
            async move {
                let entry = books.begin(&name, &shard);
                shard.step_down_token().cancelled().await;
                env.sleep(lag).await;
                drop(entry);
                Ok::<(), LeaseLost>(())
            }
        };
        let run = shards.run(work).until(stop.clone().cancelled_owned());
        let run = quorum.env().spawn_scoped(run);
        Self { quorum, shards, stop, off, run }
    }

    fn idle(name: &str, nodes: &[MemoryNode], books: &Books) -> Self {
        Self::start(name, nodes, books, set, Duration::ZERO)
    }

    /// Asks the worker to leave. Returns once it has left.
    async fn leave(self) {
        self.stop.cancel();
        self.run.await.expect("no panic").expect("a shutdown is Ok");
        assert_eq!(self.shards.owned().len(), 0);
        self.quorum.close().await;
        assert_eq!(self.quorum.env().tasks_alive(), 0);
    }

    /// Ends the worker as SIGKILL does: nothing that it sends from now on arrives.
    fn kill(self) {
        self.off.store(true, Ordering::Relaxed);
    }
}

/// Waits until `done` returns true, for `within` at most. Returns how long it took.
async fn until(quorum: &Quorum, within: Duration, what: &str, done: impl Fn() -> bool) -> Duration {
    let (env, began) = (quorum.env(), quorum.env().now());
    while !done() {
        assert!(began.until(env.now()) < within, "not within {within:?}: {what}");
        env.sleep(5 * MS).await;
    }
    began.until(env.now())
}

#[tokio::test]
async fn a_worker_that_joins_gets_its_share_and_one_that_leaves_hands_it_over() {
    let (nodes, books) = (nodes(), Books::default());
    let a = Worker::idle("a", &nodes, &books);
    until(&a.quorum, SECOND, "a owns all", || books.counts() == [12]).await;
    let b = Worker::idle("b", &nodes, &books);
    let took = until(&a.quorum, SECOND, "two shares", || books.counts() == [6, 6]).await;
    assert_eq!(books.begun(), 18, "six shards moved");
    let c = Worker::idle("c", &nodes, &books);
    until(&a.quorum, SECOND, "three shares", || books.counts() == [4, 4, 4]).await;
    assert_eq!(books.begun(), 22, "four shards moved");
    let seen = ShardSet::read(&a.quorum, "orders").await.expect("a majority").expect("a set");
    assert_eq!((seen.owned(), seen.leader.as_deref()), (12, Some("a")));
    assert!(seen.workers.iter().all(|worker| (worker.assigned, worker.lives, worker.count) == (4, true, 12)));
    assert!(seen.shards.iter().all(|shard| shard.owner == shard.assigned && shard.token.is_some()));
    assert_eq!(ShardSet::names(&a.quorum).await.expect("a majority"), [Arc::<str>::from("orders")]);
    let quorum = quorum("reader", &nodes);
    assert_eq!(ShardSet::read(&quorum, "payments").await.expect("a majority"), None);
    // The one that leaves is the leader.
    let began = quorum.env().now();
    a.leave().await;
    until(&quorum, SECOND, "two shares again", || books.counts() == [6, 6]).await;
    let left = began.until(quorum.env().now());
    assert!(
        left < 500 * MS,
        "the share of a worker that left was owned after {left:?}, a join took {took:?}"
    );
    b.leave().await;
    until(&quorum, SECOND, "one is left", || books.counts() == [12]).await;
    c.leave().await;
    assert_eq!(books.counts(), [] as [usize; 0]);
    quorum.close().await;
}

#[tokio::test]
async fn the_work_of_a_shard_ends_within_the_grace_before_another_worker_gets_it() {
    let (nodes, books) = (nodes(), Books::default());
    let slow = |name, lag| Worker::start(name, &nodes, &books, |quorum| set(quorum).grace(300 * MS), lag);
    let a = slow("a", 100 * MS);
    until(&a.quorum, SECOND, "a owns all", || books.counts() == [12]).await;
    let began = a.quorum.env().now();
    let b = slow("b", SECOND * 60);
    until(&a.quorum, SECOND, "two shares", || books.counts() == [6, 6]).await;
    assert!(began.until(a.quorum.env().now()) >= 100 * MS);
    // The work of b does not end by itself.
    let began = b.quorum.env().now();
    b.leave().await;
    until(&a.quorum, SECOND, "a owns all again", || books.of("a").len() == 12).await;
    let took = began.until(a.quorum.env().now());
    assert!((300 * MS..800 * MS).contains(&took), "{took:?}");
    a.leave().await;
}

#[tokio::test]
async fn the_shards_of_a_killed_leader_are_owned_by_others_and_theirs_stay() {
    let (nodes, books) = (nodes(), Books::default());
    let [a, b, c] = ["a", "b", "c"].map(|name| Worker::idle(name, &nodes, &books));
    until(&a.quorum, 2 * SECOND, "three shares", || books.counts() == [4, 4, 4]).await;
    let mut workers = BTreeMap::from([("a", a), ("b", b), ("c", c)]);
    let reader = quorum("reader", &nodes);
    let seen = ShardSet::read(&reader, "orders").await.expect("a majority").expect("a set");
    let leader = seen.leader.expect("a leader");
    let before = books.begun();
    workers.remove(&*leader).expect("one of three").kill();
    let took = until(&reader, 2 * SECOND, "two shares", || books.counts() == [6, 6]).await;
    assert!(took < 2 * SECOND, "{took:?}");
    assert_eq!(books.begun() - before, 4, "only the shards of the dead worker moved");
    for (_, worker) in workers {
        worker.leave().await;
    }
    reader.close().await;
}

#[tokio::test]
async fn work_that_fails_begins_again_on_the_same_worker() {
    let (nodes, log) = (nodes(), Log::default());
    let _captured = log.warnings();
    let failures = Arc::new(AtomicUsize::new(0));
    let books = Books::default();
    let quorum_a = quorum("a", &nodes);
    let shards = Shards::new(&quorum_a, "orders", 2).ttl(SECOND).restart_backoff(10 * MS, 20 * MS);
    let counted = Arc::clone(&failures);
    let work = move |shard: Shard| {
        let failed = Arc::clone(&counted);
        async move {
            match (shard.number(), failed.fetch_add(usize::from(shard.number() == 0), Ordering::SeqCst)) {
                (0, 1) => panic!("a panic of the work"),
                (0, failed) if failed < 6 => Err(format!("failure {failed}")),
                (0, _) => Ok(()),
                _ => {
                    shard.step_down_token().cancelled().await;
                    Ok(())
                }
            }
        }
    };
    let stop = CancellationToken::new();
    let run = quorum_a.env().spawn_scoped(shards.run(work).until(stop.clone().cancelled_owned()));
    until(&quorum_a, SECOND, "the work fails", || failures.load(Ordering::SeqCst) > 0).await;
    let token = shards.owned().first().expect("the shard 0").unchecked_token();
    until(&quorum_a, 2 * SECOND, "it fails again", || failures.load(Ordering::SeqCst) > 7).await;
    assert_eq!(shards.owned().first().map(Shard::unchecked_token), Some(token), "the shard did not move");
    let lines = log.lines("the work failed");
    assert_eq!(lines.len(), 6, "{lines:?}");
    assert!(lines[0].contains("failure 0") && lines[1].contains("panic: a panic of the work"), "{lines:?}");
    // The failing shard stays where it is when a worker joins.
    let two = |quorum: &Quorum| Shards::new(quorum, "orders", 2).ttl(SECOND);
    let b = Worker::start("b", &nodes, &books, two, Duration::ZERO);
    until(&quorum_a, 2 * SECOND, "b gets one", || books.counts() == [1]).await;
    assert_eq!(books.of("b"), [1]);
    b.leave().await;
    stop.cancel();
    run.await.expect("no panic").expect("a shutdown is Ok");
    quorum_a.close().await;
}

#[tokio::test]
async fn a_worker_with_another_number_waits_until_the_others_have_ended() {
    let (nodes, books, new) = (nodes(), Books::default(), Books::default());
    let log = Log::default();
    let _captured = log.warnings();
    let a = Worker::idle("a", &nodes, &books);
    until(&a.quorum, SECOND, "a owns all", || books.counts() == [12]).await;
    let other = Quorum::builder()
        .worker("b")
        .nodes(nodes.iter().cloned())
        .trust_new_nodes(true)
        .build()
        .expect("sound");
    let shards = Shards::new(&other, "orders", 5).ttl(SECOND);
    let (stop, noted) = (CancellationToken::new(), new.clone());
    let work = move |shard: Shard| {
        let (books, noted) = (books.clone(), noted.clone());
        async move {
            assert_eq!(books.counts(), [] as [usize; 0], "shards of both numbers are owned");
            assert_eq!(shard.count(), 5);
            let _entry = noted.begin("b", &shard);
            shard.step_down_token().cancelled().await;
            Ok::<(), LeaseLost>(())
        }
    };
    let run = other.env().spawn_scoped(shards.run(work).until(stop.clone().cancelled_owned()));
    let text = "count is 5, and the other workers of the set (a) have 12; this worker owns no shard until they have ended";
    until(&other, 2 * SECOND, "a warning", || log.lines(text).len() == 1).await;
    let seen = ShardSet::read(&other, "orders").await.expect("a majority").expect("a set");
    assert_eq!((seen.shards.len(), seen.workers.len(), seen.workers[1].assigned), (12, 2, 0));
    a.leave().await;
    until(&other, 2 * SECOND, "the new shards", || new.counts() == [5]).await;
    let seen = ShardSet::read(&other, "orders").await.expect("a majority").expect("a set");
    assert_eq!((seen.shards.len(), seen.owned()), (5, 5));
    stop.cancel();
    run.await.expect("no panic").expect("a shutdown is Ok");
    other.close().await;
}

#[tokio::test]
async fn shards_follow_the_weights() {
    let (nodes, books) = (nodes(), Books::default());
    let a = Worker::start("a", &nodes, &books, |quorum| set(quorum).weight(3), Duration::ZERO);
    let b = Worker::idle("b", &nodes, &books);
    until(&a.quorum, 2 * SECOND, "9 and 3", || books.counts() == [9, 3]).await;
    a.leave().await;
    until(&b.quorum, SECOND, "the rest", || books.counts() == [12]).await;
    b.leave().await;
}

#[tokio::test]
async fn a_worker_that_was_cut_off_joins_again() {
    let (nodes, books) = (nodes(), Books::default());
    let [a, b] = ["a", "b"].map(|name| Worker::idle(name, &nodes, &books));
    until(&a.quorum, 2 * SECOND, "two shares", || books.counts() == [6, 6]).await;
    b.off.store(true, Ordering::Relaxed);
    until(&a.quorum, 3 * SECOND, "a owns all", || books.counts() == [12]).await;
    b.off.store(false, Ordering::Relaxed);
    until(&a.quorum, 5 * SECOND, "two shares again", || books.counts() == [6, 6]).await;
    a.leave().await;
    b.leave().await;
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_errors_and_a_set_runs_once_on_a_quorum() {
    let quorum = quorum("a", &nodes());
    let work = |_: Shard| async { Ok::<(), LeaseLost>(()) };
    let refused = |shards: Shards| async move {
        match shards.run(work).until(std::future::pending::<()>()).await {
            Err(AcquireError::Setting(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let none = refused(Shards::new(&quorum, "orders", 0)).await;
    assert_eq!(none, "count is 0, not between 1 and 4096; give it 1 to 4096");
    assert!(refused(Shards::new(&quorum, "orders", 4_097)).await.starts_with("count is 4097"));
    assert!(refused(Shards::new(&quorum, "orders", 1).weight(0)).await.starts_with("weight is 0"));
    assert!(refused(Shards::new(&quorum, "a{b", 1)).await.starts_with("the shard set is \"a{b\""));
    assert!(refused(Shards::new(&quorum, "a", 1).ttl(SECOND * 3600)).await.starts_with("ttl is 3600s"));
    let (shards, stop) = (Shards::new(&quorum, "orders", 1), CancellationToken::new());
    let first = quorum.env().spawn_scoped(shards.run(work).until(stop.clone().cancelled_owned()));
    until(&quorum, SECOND, "it runs", || !shards.owned().is_empty()).await;
    let second = refused(shards.clone()).await;
    assert!(
        second.starts_with("the shard set is \"orders\", which is already running on this quorum"),
        "{second}"
    );
    stop.cancel();
    first.await.expect("no panic").expect("a shutdown is Ok");
    shards.run(work).until(std::future::ready(())).await.expect("it may run again");
    quorum.close().await;
    let closed = shards.run(work).await;
    assert!(matches!(closed, Err(AcquireError::Closed)), "{closed:?}");
}
