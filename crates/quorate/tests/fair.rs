//! Tests that fair waiters acquire a lock in the order of the queue. They use memory nodes and the real clock.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a test awaits or aborts its tasks")]

mod common;

use common::{SECOND, nodes, quorum};
use quorate::{
    env::Env,
    lease::{Lease, ReadLease, TryAcquire},
    node::{
        Batch, Cause, Hello, MemoryNode, MemorySession, Node, NodeTime, Owner, PushSender, Reply, Request,
        Resource, Session,
    },
    quorum::Quorum,
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::task::JoinHandle;

const MS: Duration = Duration::from_millis(1);

/// The time for which a waiter that has died stays in the queue. With default settings, it is three times the
/// sum of 100 ms and two node timeouts.
const PLACE: Duration = Duration::from_millis(900);

/// A node that its worker cannot reach.
struct Unreachable(String);

impl Node for Unreachable {
    type Session = MemorySession;

    fn name(&self) -> &str {
        &self.0
    }

    async fn open(&self, _: PushSender) -> Result<(MemorySession, Hello), Cause> {
        Err(Cause::Unreachable("it is down".into()))
    }
}

/// Returns the quorum of a worker that reaches only the nodes with the indices `reached`.
fn reaching(worker: &str, nodes: &[MemoryNode], reached: &[usize]) -> Quorum {
    let mut builder = Quorum::builder().worker(worker).trust_new_nodes(true);
    for (number, node) in nodes.iter().enumerate() {
        builder = match reached.contains(&number) {
            true => builder.node(node.clone()),
            false => builder.node(Unreachable(node.name().to_owned())),
        };
    }
    builder.build().expect("a sound setup")
}

/// Waits for the lock in the queue, adds `name` to the list of acquires, and holds the lock for a moment.
fn takes_its_turn(
    quorum: &Quorum,
    name: &'static str,
    order: &Arc<Mutex<Vec<&'static str>>>,
) -> JoinHandle<()> {
    let (quorum, order) = (quorum.clone(), Arc::clone(order));
    tokio::spawn(async move {
        let lock = quorum.lock("x").fair(Duration::ZERO).wait(20 * SECOND);
        let lease = lock.acquire().await.expect("its turn comes");
        order.lock().expect("no panic").push(name);
        quorum.env().sleep(20 * MS).await;
        lease.release().await.expect("a majority answers");
    })
}

/// Returns the number of waiters in the queue of each node. To find this number, the function joins the queue
/// and leaves it at once.
async fn waiting(nodes: &[MemoryNode]) -> Vec<u32> {
    let resource = Resource::lock("x").expect("a name");
    let env = Env::system();
    let mut ahead = Vec::new();
    for node in nodes {
        let now = env.wall().as_micros();
        let ticket = Owner::from_node("who counts");
        let request = Request::Queue {
            resource: resource.clone(),
            ticket: ticket.clone(),
            at: now,
            now,
            tolerance: SECOND,
            ttl: 10 * MS,
            exclusive: true,
        };
        let leave = Request::LeaveQueue { resource: resource.clone(), ticket };
        match ask(node, vec![request, leave]).await.remove(0) {
            Reply::Queued { ahead: many } => ahead.push(many),
            other => panic!("{other:?}"),
        }
    }
    ahead
}

async fn ask(node: &MemoryNode, requests: Vec<Request>) -> Vec<Reply> {
    let (mut session, hello) = node.open(PushSender::channel().0).await.expect("a memory node");
    let stamp = hello.marker.unwrap_or_else(|| "".into());
    let batch = Batch { requests, not_after: NodeTime::from_micros(u64::MAX), stamp };
    session.send(batch).await.expect("a memory node").replies
}

/// Waits until the queue of each node has this number of waiters.
async fn until_waiting(nodes: &[MemoryNode], many: u32) {
    let env = Env::system();
    let give_up = env.now() + 10 * SECOND;
    loop {
        let seen = waiting(nodes).await;
        if seen.iter().all(|seen| *seen == many) {
            return;
        }
        assert!(env.now() < give_up, "{many} should wait: {seen:?}");
        env.sleep(5 * MS).await;
    }
}

async fn try_lock(quorum: &Quorum) -> Result<Lease, Option<Owner>> {
    match quorum.lock("x").try_acquire().await.expect("a quorum") {
        TryAcquire::Acquired(lease) => Ok(lease),
        TryAcquire::Contended { holder, .. } => Err(holder),
    }
}

#[tokio::test]
async fn fair_waiters_acquire_in_the_order_of_their_waits_and_the_queue_drains() {
    let nodes = nodes();
    let names = ["a", "b", "c", "d"];
    let workers: Vec<Quorum> = names.iter().map(|name| quorum(name, &nodes)).collect();
    let held = try_lock(&workers[0]).await.expect("free");
    let order = Arc::default();
    let mut tasks = Vec::new();
    for (number, name) in names.into_iter().enumerate() {
        tasks.push(takes_its_turn(&workers[number], name, &order));
        until_waiting(&nodes, number as u32 + 1).await;
    }
    held.release().await.expect("all nodes answer");
    // This worker does not wait. Its request is refused if the lock has a holder, or if the queue is not empty.
    // So it can acquire the lock only after all waiters.
    while tasks.iter().any(|task| !task.is_finished()) {
        if let Ok(lease) = try_lock(&workers[1]).await {
            assert_eq!(order.lock().expect("no panic").len(), names.len(), "every waiter acquired");
            drop(lease);
        }
        workers[1].env().sleep(5 * MS).await;
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(*order.lock().expect("no panic"), names);
    until_waiting(&nodes, 0).await;
    workers[2]
        .lock("x")
        .wait(SECOND)
        .acquire()
        .await
        .expect("as if there had been no queue")
        .release()
        .await
        .expect("ok");
    for worker in workers {
        worker.close().await;
    }
}

#[tokio::test]
async fn newcomers_learn_of_the_queue() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let held = try_lock(&a).await.expect("free");
    let waiter = {
        let b = b.clone();
        tokio::spawn(async move { b.lock("x").fair(Duration::ZERO).acquire().await.map(drop) })
    };
    until_waiting(&nodes, 1).await;
    // The aborted waiter leaves the queue. Then the test adds a waiter that never renews its entry, as if its
    // process had died. No other worker can acquire the lock before this entry expires.
    waiter.abort();
    let _ = waiter.await;
    until_waiting(&nodes, 0).await;
    put_place(&nodes, PLACE).await;
    held.release().await.expect("all nodes answer");
    let holder = try_lock(&a).await.expect_err("another waiter comes first");
    assert_eq!(holder.expect("a majority says so").as_str(), Owner::QUEUE);
    let late = a.lock("x").wait(50 * MS).acquire().await.expect_err("another waiter comes first");
    assert!(late.is_contended() && late.to_string().contains("others come first"), "{late}");
    a.close().await;
    b.close().await;
}

/// Adds a waiter to the queue of each node. The waiter never renews its entry, as if its process had died.
async fn put_place(nodes: &[MemoryNode], ttl: Duration) {
    let now = Env::system().wall().as_micros();
    for node in nodes {
        let place = Request::Queue {
            resource: Resource::lock("x").expect("a name"),
            ticket: Owner::sign("gone", 1, 1),
            at: now - 5_000_000,
            now,
            tolerance: SECOND,
            ttl,
            exclusive: true,
        };
        assert_eq!(ask(node, vec![place]).await, [Reply::Queued { ahead: 0 }]);
    }
}

#[tokio::test]
async fn a_head_that_stops_polling_is_dropped_in_time() {
    let nodes = nodes();
    let a = quorum("a", &nodes);
    drop(try_lock(&a).await.expect("free"));
    let env = a.env();
    let began = env.now();
    put_place(&nodes, PLACE).await;
    let lease = a.lock("x").fair(Duration::ZERO).wait(10 * SECOND).acquire().await.expect("in its turn");
    let waited = began.until(env.now());
    assert!(waited >= PLACE - 10 * MS, "passed after {waited:?}");
    assert!(waited <= PLACE + 2 * SECOND, "dropped only after {waited:?}");
    lease.release().await.expect("all nodes answer");
    a.close().await;
}

#[tokio::test]
async fn a_dropped_waiter_leaves_the_queue_at_once() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let held = try_lock(&a).await.expect("free");
    let lock = b.lock("x").fair(Duration::ZERO);
    {
        let mut waits = Box::pin(lock.acquire());
        let give_up = b.env().now() + 10 * SECOND;
        while waiting(&nodes).await.iter().any(|many| *many != 1) {
            assert!(b.env().now() < give_up, "it never got its place");
            let soon = b.env().now() + 5 * MS;
            assert!(b.env().before(soon, &mut waits).await.is_none(), "it is held");
        }
    }
    until_waiting(&nodes, 0).await;
    held.release().await.expect("all nodes answer");
    drop(try_lock(&a).await.expect("the queue is empty"));
    a.close().await;
    b.close().await;
}

/// Tests two waiters that can reach only four of the five nodes.
#[tokio::test]
async fn with_one_node_down_both_waiters_acquire_in_turn() {
    let nodes = nodes();
    let up = [0, 1, 2, 3];
    let workers: Vec<Quorum> = ["h", "a", "b"].iter().map(|name| reaching(name, &nodes, &up)).collect();
    let held = try_lock(&workers[0]).await.expect("free");
    let order = Arc::default();
    let first = takes_its_turn(&workers[1], "a", &order);
    until_waiting(&nodes[..4], 1).await;
    let second = takes_its_turn(&workers[2], "b", &order);
    until_waiting(&nodes[..4], 2).await;
    held.release().await.expect("a majority answers");
    first.await.expect("no panic");
    second.await.expect("no panic");
    assert_eq!(*order.lock().expect("no panic"), ["a", "b"]);
    for worker in workers {
        worker.close().await;
    }
}

/// Tests a waiter that reaches only two of five nodes, and that began to wait before the other waiter. This
/// waiter is first in the queue of these two nodes, but cannot get a majority. So after a while it must let the
/// other waiter pass.
#[tokio::test]
async fn a_waiter_at_the_head_of_a_minority_steps_aside() {
    let nodes = nodes();
    let (cut_off, b) = (reaching("a", &nodes, &[0, 1]), reaching("b", &nodes, &[0, 1, 2, 3]));
    // A worker that reaches no majority cannot write markers. So the other worker first writes the markers of
    // all nodes.
    drop(try_lock(&b).await.expect("free"));
    let blocked = {
        let cut_off = cut_off.clone();
        tokio::spawn(async move { cut_off.lock("x").fair(Duration::ZERO).acquire().await.map(drop) })
    };
    until_waiting(&nodes[..2], 1).await;
    let lock = b.lock("x").fair(Duration::ZERO).wait(15 * SECOND);
    for _ in 0..3 {
        lock.acquire().await.expect("three of five").release().await.expect("a majority answers");
    }
    assert!(!blocked.is_finished(), "two of five are no majority");
    blocked.abort();
    let _ = blocked.await;
    cut_off.close().await;
    b.close().await;
}

#[tokio::test]
async fn a_stream_of_readers_does_not_starve_a_fair_writer() {
    let nodes = nodes();
    let (reader, writer) = (quorum("r", &nodes), quorum("w", &nodes));
    let stop = tokio_util::sync::CancellationToken::new();
    let reading = {
        let (reader, stop) = (reader.clone(), stop.clone());
        tokio::spawn(async move {
            // Each read lease begins before the previous one ends. So the lock is never free as long as the
            // nodes accept new readers.
            let (mut last, mut times): (Option<ReadLease>, u32) = (None, 0);
            while !stop.is_cancelled() {
                match reader.read_lock("x").try_acquire().await.expect("a quorum") {
                    TryAcquire::Acquired(lease) => drop(last.replace(lease)),
                    TryAcquire::Contended { .. } => drop(last.take()),
                }
                times += u32::from(last.is_some());
                reader.env().sleep(10 * MS).await;
            }
            times
        })
    };
    let give_up = writer.env().now() + 10 * SECOND;
    let read = |holder: Option<Owner>| holder.is_some_and(|by| by.as_str() == Owner::READERS);
    while !try_lock(&writer).await.is_err_and(read) {
        assert!(writer.env().now() < give_up, "no reader holds the lock");
    }
    let plain = writer.lock("x").wait(500 * MS).acquire().await.expect_err("it is never free");
    assert!(plain.is_contended(), "{plain}");
    let fair = writer.lock("x").fair(100 * MS).wait(15 * SECOND);
    for _ in 0..3 {
        fair.acquire().await.expect("its turn comes").release().await.expect("all nodes answer");
    }
    stop.cancel();
    assert!(reading.await.expect("no panic") > 3, "they read as well");
    writer.close().await;
    reader.close().await;
}

#[tokio::test]
async fn waiting_readers_acquire_together() {
    let nodes = nodes();
    let (w, r, s) = (quorum("w", &nodes), quorum("r", &nodes), quorum("s", &nodes));
    let held = try_lock(&w).await.expect("free");
    let both_in = Arc::new(tokio::sync::Barrier::new(2));
    let tasks: Vec<_> = [r.clone(), s.clone()]
        .into_iter()
        .map(|quorum| {
            let both_in = Arc::clone(&both_in);
            tokio::spawn(async move {
                let lock = quorum.read_lock("x").fair(Duration::ZERO).wait(10 * SECOND);
                let lease = lock.acquire().await.expect("its turn comes");
                both_in.wait().await;
                lease.release().await.expect("all nodes answer");
            })
        })
        .collect();
    until_waiting(&nodes, 2).await;
    held.release().await.expect("all nodes answer");
    for task in tasks {
        task.await.expect("no panic");
    }
    for quorum in [w, r, s] {
        quorum.close().await;
    }
}
