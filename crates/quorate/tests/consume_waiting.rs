//! Tests of consumers that receive the same messages. Each consumer keeps its copy of a message until the
//! worker that handles the message has finished. So no message is lost if that worker dies.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/cut.rs"]
mod cut;
#[path = "common/log.rs"]
mod log;

use common::{SECOND, nodes, quorum};
use cut::Cut;
use futures_util::{FutureExt, StreamExt, future::join_all, stream};
use log::Log;
use quorate::{
    claim::{
        Claim, ClaimOutcome, Claims,
        stream::{Consumed, Ended, Outcome, Received},
    },
    node::MemoryNode,
    quorum::Quorum,
};
use std::{
    future::{pending, ready},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

type Order = (String, ());

/// A time limit that a healthy run never reaches.
const IN_TIME: Duration = Duration::from_secs(60);

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("order-{number}")).collect()
}

fn orders(ids: &[String]) -> Vec<Order> {
    ids.iter().map(|id| (id.clone(), ())).collect()
}

async fn hold(claims: &Claims, ids: &[String]) -> Vec<Claim> {
    let mut held = Vec::new();
    for id in ids {
        match claims.claim(id).await {
            Ok(ClaimOutcome::Claimed(claim)) => held.push(claim),
            other => panic!("{id}: {other:?}"),
        }
    }
    held
}

#[tokio::test]
async fn messages_of_another_worker_are_handled_once_they_are_free() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let all = ids(200);
    let held = hold(&Claims::new(&b, "orders"), &all).await;
    let pulled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&pulled);
    let source = stream::iter(orders(&all)).inspect(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let consumer = Claims::new(&a, "orders").consume(source, |_| ready(Ok::<_, String>(())));
    let mut consumer = Box::pin(consumer.until(pending::<()>()));
    let env = a.env();
    let early = env.before(env.now() + SECOND, &mut consumer).await;
    assert!(early.is_none(), "messages ended while another worker handled them: {early:?}");
    let waiting = pulled.load(Ordering::SeqCst);
    assert!((16..200).contains(&waiting), "a full waiting room stops the source: {waiting} pulled");
    drop(held);
    let consumed = env.before(env.now() + IN_TIME, consumer).await.expect("in time").expect("timings");
    assert_eq!((consumed.handled, consumed.in_progress), (200, 0), "{consumed:?}");
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn waiting_messages_do_not_block_others_and_are_limited() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let all = ids(30);
    let held = hold(&Claims::new(&b, "orders"), &all[..5]).await;
    let pulled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&pulled);
    let source = stream::iter(orders(&all)).inspect(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let handled = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&handled);
    let consumer = Claims::new(&a, "orders").consume(source, move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        ready(Ok::<_, String>(()))
    });
    let mut consumer = Box::pin(consumer.concurrency(2).max_waiting(5).until(pending::<()>()));
    let env = a.env();
    let in_hand = || pulled.load(Ordering::SeqCst) - handled.load(Ordering::SeqCst);
    let settled = async {
        while in_hand() != 5 || handled.load(Ordering::SeqCst) == 0 {
            env.sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        early = &mut consumer => panic!("it ended while another worker handled messages: {early:?}"),
        settled = env.before(env.now() + IN_TIME, settled) => settled.expect("five wait"),
    }
    let early = env.before(env.now() + SECOND / 2, &mut consumer).await;
    assert!(early.is_none(), "messages ended while another worker handled them: {early:?}");
    assert!((5..=5 + 2).contains(&in_hand()), "five wait, and two at most are at work: {}", in_hand());
    drop(held);
    let consumed = env.before(env.now() + IN_TIME, consumer).await.expect("in time").expect("timings");
    assert_eq!((consumed.handled, consumed.in_progress), (30, 0), "{consumed:?}");
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn patience_begins_with_the_first_conflict_and_its_end_is_reported() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let (log, all) = (Log::default(), vec!["\u{202e}order-0".to_owned(), "order-1".to_owned()]);
    let _heard = log.warnings();
    let held = hold(&Claims::new(&b, "orders"), &all).await;
    let ended = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&ended);
    let began = a.env().now();
    let consumer = Claims::new(&a, "orders")
        .consume(stream::iter(orders(&all)), |_| ready(Ok::<_, String>(())))
        .concurrency(1)
        .max_waiting(1)
        .max_wait(SECOND)
        .on_end(move |end: &Ended<Order>| {
            reported.lock().expect("no panic").push((end.message.0.clone(), end.outcome.clone(), end.took));
        });
    let consumed = consumer.until(pending::<()>()).await.expect("timings");
    assert!(began.until(a.env().now()) >= SECOND * 2, "the second had no room before the first had ended");
    assert_eq!((consumed.in_progress, consumed.acked), (2, 0), "{consumed:?}");
    for (id, outcome, took) in &*ended.lock().expect("no panic") {
        assert!(matches!(outcome, Outcome::InProgress { .. }) && *took >= SECOND, "{id}: {outcome} {took:?}");
    }
    let lines = log.lines("left to its source: b handles it");
    assert_eq!(lines.len(), 2, "{log:?}");
    assert!(lines[0].contains(" order-0") && lines[1].contains("order-1"), "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("WARN") && !line.contains('\u{202e}')), "{lines:?}");
    drop(held);
    a.close().await;
    b.close().await;
}

/// A worker that a test can kill. The kill first disconnects the worker from its nodes, so that the worker
/// releases no claim.
struct Worker {
    quorum: Quorum,
    cut: Arc<AtomicBool>,
    killed: Arc<Notify>,
}

impl Worker {
    fn new(name: &str, nodes: &[MemoryNode]) -> Self {
        let cut = Arc::new(AtomicBool::new(false));
        let nodes = nodes.iter().map(|node| Cut::new(node, &cut));
        let quorum = Quorum::builder().worker(name).nodes(nodes).trust_new_nodes(true).build();
        Self { quorum: quorum.expect("a sound setup"), cut, killed: Arc::default() }
    }

    fn kill(&self) {
        self.cut.store(true, Ordering::SeqCst);
        self.killed.notify_one();
    }

    /// Consumes the messages until all of them are done. Returns `None` if the worker is killed first.
    async fn consume(
        &self,
        all: &[String],
        handled: &AtomicUsize,
        begun: Arc<AtomicUsize>,
    ) -> Option<Consumed> {
        let env = self.quorum.env().clone();
        let handler = move |_: Received<Order>| {
            let env = env.clone();
            begun.fetch_add(1, Ordering::SeqCst);
            async move {
                env.sleep(Duration::from_millis(2)).await;
                Ok::<_, String>(())
            }
        };
        let claims = Claims::new(&self.quorum, "orders").ttl(SECOND * 2);
        let consumer =
            claims.consume(stream::iter(orders(all)), handler).concurrency(8).until(pending::<()>());
        let consumed = tokio::select! { biased;
            () = self.killed.notified() => None,
            consumed = consumer => Some(consumed.expect("timings")),
        };
        handled.fetch_add(1, Ordering::SeqCst);
        consumed
    }
}

/// Delivers every message once to each of four workers. Two of the workers are killed while they handle
/// messages. Returns the number of messages that are not done at the end.
async fn lost_in_a_run(run: usize) -> usize {
    const MESSAGES: usize = 400;
    let (nodes, all, begun) = (nodes(), ids(MESSAGES), Arc::new(AtomicUsize::new(0)));
    let workers: Vec<Worker> = (0..4).map(|number| Worker::new(&format!("w-{number}"), &nodes)).collect();
    let ended = AtomicUsize::new(0);
    let consumers = join_all(workers.iter().map(|worker| worker.consume(&all, &ended, Arc::clone(&begun))));
    let kills = async {
        for (worker, after) in workers.iter().zip([MESSAGES / 8 + run % 50, MESSAGES / 3 + run % 70]) {
            while begun.load(Ordering::SeqCst) < after && ended.load(Ordering::SeqCst) == 0 {
                workers[3].quorum.env().sleep(Duration::from_millis(1)).await;
            }
            worker.kill();
        }
    };
    let env = workers[3].quorum.env();
    let both = env.before(env.now() + IN_TIME, async { tokio::join!(consumers, kills).0 }).await;
    let consumed = both.expect("in time");
    assert!(consumed[..2].iter().all(Option::is_none), "killed: {consumed:?}");
    assert!(consumed[2..].iter().flatten().all(|consumed| consumed.in_progress == 0), "{consumed:?}");
    let claims = Claims::new(&workers[3].quorum, "orders");
    let outcomes = claims.claim_many(all.iter().map(String::as_str)).await.expect("timings");
    let lost = outcomes.iter().filter(|(_, outcome)| !matches!(outcome, Ok(ClaimOutcome::Done(_)))).count();
    drop(outcomes);
    join_all(workers.iter().map(|worker| worker.quorum.close())).await;
    lost
}

#[tokio::test]
async fn no_message_is_lost_by_killed_workers_without_redelivery() {
    let runs = std::env::var("QUORATE_CONSUME_RUNS").ok();
    let runs = runs.map_or(2, |runs| runs.parse().expect("QUORATE_CONSUME_RUNS is a number of runs"));
    for run in 0..runs {
        let lost = lost_in_a_run(run).boxed().await;
        assert_eq!(lost, 0, "run {run} of {runs}");
    }
    println!("{runs} runs, nothing lost");
}

/// A message that its source delivers only once, so the default patience has no limit. Another message, whose source
/// redelivers it, ends after the default of 30 s: the default is read, and not waited for.
#[tokio::test]
async fn the_default_patience_depends_on_the_source() {
    let quorum = quorum("a", &nodes());
    let claims = Claims::new(&quorum, "orders");
    let handle = |_| ready(Ok::<_, String>(()));
    let once = claims.consume(stream::iter(orders(&ids(1))), handle);
    assert!(format!("{once:?}").contains(&format!("max_wait: {:?}", Duration::MAX)), "{once:?}");
    let acked = stream::iter([("order-1", (), || ready(Ok::<(), String>(())))]);
    let again = claims.consume(acked, |_| ready(Ok::<_, String>(())));
    assert!(format!("{again:?}").contains("max_wait: 30s"), "{again:?}");
    assert!(format!("{:?}", again.max_wait(SECOND)).contains("max_wait: 1s"));
    quorum.close().await;
}
