//! Tests that a round for a lock asks a majority of the nodes first. The tests use memory nodes that can be
//! stopped, and the real clock.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::SECOND;
use futures_util::future::join_all;
use quorate::{
    lease::Lease,
    node::{
        Batch, BatchReply, Cause, FencingToken, Hello, MemoryNode, MemorySession, Node, NodeTime, Owner,
        PushSender, Reply, Request, Resource, Session,
    },
    quorum::{Quorum, QuorumBuilder},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// A memory node that counts the attempts to acquire locks. A test can make the node fail.
#[derive(Clone)]
struct Watched {
    node: MemoryNode,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    /// While this is true, the node receives requests but sends no reply.
    stopped: watch::Sender<bool>,
    /// While this is true, each request breaks the connection.
    broken: AtomicBool,
    /// While this is true, each request that raises a counter breaks the connection.
    breaks_at_raise: AtomicBool,
    acquires: AtomicUsize,
    extends: AtomicUsize,
    releases: AtomicUsize,
}

struct WatchedSession {
    session: MemorySession,
    faults: Arc<Faults>,
}

impl Node for Watched {
    type Session = WatchedSession;

    fn name(&self) -> &str {
        self.node.name()
    }

    async fn open(&self, push_sender: PushSender) -> Result<(WatchedSession, Hello), Cause> {
        resumed(self.faults.stopped.subscribe()).await;
        if self.faults.broken.load(Ordering::Relaxed) {
            return Err(Cause::Unreachable("broken".into()));
        }
        let (session, hello) = self.node.open(push_sender).await?;
        Ok((WatchedSession { session, faults: Arc::clone(&self.faults) }, hello))
    }
}

impl Session for WatchedSession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let faults = &self.faults;
        let count =
            |kind: fn(&Request) -> bool| batch.requests.iter().filter(|request| kind(request)).count();
        faults
            .acquires
            .fetch_add(count(|request| matches!(request, Request::Acquire { .. })), Ordering::Relaxed);
        faults
            .extends
            .fetch_add(count(|request| matches!(request, Request::Extend { .. })), Ordering::Relaxed);
        faults
            .releases
            .fetch_add(count(|request| matches!(request, Request::Release { .. })), Ordering::Relaxed);
        let raises = count(|request| matches!(request, Request::Raise { .. })) > 0;
        let stopped = faults.stopped.subscribe();
        let broken = faults.broken.load(Ordering::Relaxed)
            || (raises && faults.breaks_at_raise.load(Ordering::Relaxed));
        let sent = (!broken).then(|| self.session.send(batch));
        async move {
            resumed(stopped).await;
            match sent {
                Some(sent) => sent.await,
                None => Err(Cause::Closed),
            }
        }
    }
}

/// Waits until the node is not stopped.
async fn resumed(mut stopped: watch::Receiver<bool>) {
    stopped.wait_for(|stopped| !stopped).await.expect("the node exists");
}

/// Five nodes, and one worker's quorum of them.
struct Stage {
    nodes: Vec<Watched>,
    quorum: Quorum,
}

impl Stage {
    /// Creates five nodes and a quorum of them, and waits until all nodes vote.
    async fn new(change: impl FnOnce(QuorumBuilder) -> QuorumBuilder) -> Self {
        let node = |node| Watched { node, faults: Arc::default() };
        let nodes: Vec<Watched> = common::nodes().into_iter().map(node).collect();
        let builder = Quorum::builder().worker("a").nodes(nodes.iter().cloned()).trust_new_nodes(true);
        let quorum = change(builder.node_timeout(4 * SECOND)).build().expect("a sound setup");
        assert!(quorum.met(10 * SECOND).await.iter().all(quorate::quorum::NodeStatus::votes));
        Self { nodes, quorum }
    }

    /// Returns another worker's quorum of the same nodes.
    fn other(&self) -> Quorum {
        let nodes: Vec<MemoryNode> = self.nodes.iter().map(|watched| watched.node.clone()).collect();
        common::quorum("b", &nodes)
    }

    /// Acquires the lock within three seconds. If a round waited for the node timeout, it would take four.
    async fn acquire(&self) -> Lease {
        let lock = self.quorum.lock("x");
        let env = self.quorum.env();
        let acquired = env.before(env.now() + 3 * SECOND, lock.acquire()).await;
        acquired.expect("without waiting for the node timeout").expect("a majority")
    }

    /// Acquires and releases the lock. Returns the nodes to which the acquire was sent.
    async fn cycle(&self) -> Vec<usize> {
        let before = self.counts(|faults| &faults.acquires);
        let lease = self.acquire().await;
        let env = self.quorum.env();
        let released = env.before(env.now() + 3 * SECOND, lease.release()).await;
        released.expect("at once").expect("a majority is free");
        let after = self.counts(|faults| &faults.acquires);
        (0..5).filter(|&node| before[node] < after[node]).collect()
    }

    /// Repeats [`Stage::cycle`] until `is_done` returns true for the nodes that it asked. On a busy machine, a
    /// round may ask more nodes than it needs.
    async fn cycle_until(&self, is_done: impl Fn(&[usize]) -> bool) -> Vec<usize> {
        for _ in 0..10_000 {
            let asked = self.cycle().await;
            if is_done(&asked) {
                return asked;
            }
            tokio::task::yield_now().await;
        }
        panic!("in none of 10,000 cycles");
    }

    fn counts(&self, of: fn(&Faults) -> &AtomicUsize) -> Vec<usize> {
        self.nodes.iter().map(|node| of(&node.faults).load(Ordering::Relaxed)).collect()
    }

    /// Returns the number of nodes that store the lease.
    async fn stored_on(&self, lease: &Lease) -> usize {
        let seen = self.quorum.inspect(lease.resource()).await.expect("a majority");
        seen.named.iter().find(|(owner, _)| owner == lease.owner()).map_or(0, |(_, count)| *count)
    }

    async fn wait_until_spread(&self, lease: &Lease) {
        self.until("the lease is extended to all nodes", async || self.stored_on(lease).await == 5).await;
    }

    /// Waits until the condition is true. Fails after a minute.
    async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let env = self.quorum.env();
        let reached = async {
            while !condition().await {
                env.sleep(Duration::from_millis(5)).await;
            }
        };
        env.before(env.now() + 60 * SECOND, reached).await.expect(what);
    }
}

#[tokio::test]
async fn a_lock_asks_the_same_majority_each_time_and_releases_it_there() {
    let stage = Stage::new(|builder| builder).await;
    let first = stage.cycle_until(|asked| asked.len() == 3).await;
    let released = stage.counts(|faults| &faults.releases);
    // On a busy machine, one of the first nodes may be late for a while. Later rounds then ask it last. So the
    // test repeats the rounds until the order is the first one again.
    stage.cycle_until(|again| *again == *first).await;
    stage.quorum.close().await;
    let (asked, extended) = (stage.counts(|faults| &faults.acquires), stage.counts(|faults| &faults.extends));
    let all = stage.counts(|faults| &faults.releases);
    assert!(first.iter().all(|&node| all[node] > released[node]));
    let sent = |node: usize| asked[node] + extended[node];
    assert!((0..5).all(|node| all[node] <= sent(node)), "no node releases what it was not asked for");
}

#[tokio::test]
async fn a_lock_may_ask_all_nodes() {
    let stage = Stage::new(|builder| builder.ask_all_nodes(true)).await;
    for _ in 0..20 {
        stage.acquire().await.release().await.expect("a majority");
    }
    stage.quorum.close().await;
    assert_eq!(stage.counts(|faults| &faults.acquires), [20; 5]);
}

#[tokio::test]
async fn several_locks_slots_and_readers_ask_all_nodes() {
    let stage = Stage::new(|builder| builder).await;
    let several = stage.quorum.locks(["p", "q"]).acquire_all().await.expect("free");
    let (_, slot) = stage.quorum.slots("s", 1).acquire_any().await.expect("free");
    stage.quorum.close().await;
    assert_eq!(stage.counts(|faults| &faults.acquires), [3; 5]);
    drop((several, slot));
}

#[tokio::test]
async fn a_stopped_node_is_asked_last_until_it_is_prompt_again() {
    let stage = Stage::new(|builder| builder).await;
    let asked = stage.cycle_until(|asked| asked.len() == 3).await;
    let stopped = asked[1];
    stage.nodes[stopped].faults.stopped.send_replace(true);
    // The first acquire takes a little longer, because it waits for the stopped node. Later acquires do not ask
    // this node first.
    let others = |without: &[usize]| asked.iter().all(|node| *node == stopped || without.contains(node));
    stage.cycle_until(|without| without.len() == 3 && !without.contains(&stopped) && others(without)).await;
    stage.nodes[stopped].faults.stopped.send_replace(false);
    stage.until("the node is asked first again", async || stage.cycle().await == asked).await;
    stage.quorum.close().await;
}

#[tokio::test]
async fn a_node_that_fails_is_replaced_at_once() {
    let stage = Stage::new(|builder| builder).await;
    let asked = stage.cycle_until(|asked| asked.len() == 3).await;
    stage.nodes[asked[0]].faults.broken.store(true, Ordering::Relaxed);
    let lease = stage.acquire().await;
    assert!(stage.stored_on(&lease).await >= 3);
    lease.release().await.expect("a majority is free");
    stage.quorum.close().await;
}

#[tokio::test]
async fn a_node_that_does_not_raise_its_counter_is_replaced() {
    let stage = Stage::new(|builder| builder).await;
    let asked = stage.cycle_until(|asked| asked.len() == 3).await;
    let behind = asked[2];
    // This node misses a grant, so its counter of fencing tokens is behind those of the other nodes.
    stage.nodes[behind].faults.broken.store(true, Ordering::Relaxed);
    stage.cycle_until(|asked| !asked.contains(&behind)).await;
    let token = stage.acquire().await.unchecked_token();
    stage.nodes[behind].faults.breaks_at_raise.store(true, Ordering::Relaxed);
    stage.nodes[behind].faults.broken.store(false, Ordering::Relaxed);
    // The driver first waits until the requests of the old session have expired. Only then does it open a new
    // session.
    stage.until("the node votes", async || stage.quorum.nodes()[behind].votes()).await;
    stage.cycle_until(|asked| asked.contains(&behind)).await;
    for _ in 0..20 {
        let lease = stage.acquire().await;
        assert!(lease.unchecked_token() > token && stage.stored_on(&lease).await >= 3);
        lease.release().await.expect("a majority is free");
    }
    stage.quorum.close().await;
}

#[tokio::test]
async fn a_lease_that_is_still_held_is_extended_to_all_nodes() {
    let stage = Stage::new(|builder| builder).await;
    stage.cycle_until(|asked| asked.len() == 3).await;
    let checks = Arc::new(AtomicUsize::new(0));
    let checked = Arc::clone(&checks);
    let check = move || checked.fetch_add(1, Ordering::Relaxed) > 100;
    let lock = stage.quorum.lock("x").ttl(10 * SECOND).max_hold(5 * SECOND).renew_while(check);
    let lease = lock.acquire().await.expect("free");
    stage.wait_until_spread(&lease).await;
    assert_eq!(checks.load(Ordering::Relaxed), 0, "the spread is no renewal");
    lease.release().await.expect("a majority");
    stage.quorum.close().await;
    let resource = Resource::lock("x").expect("a name");
    let other = stage.other();
    let seen = other.inspect(&resource).await.expect("a majority");
    assert!(seen.named.is_empty(), "it was released wherever it was extended: {seen:?}");
    other.close().await;
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_release_of_a_bare_majority() {
    let stage = Stage::new(|builder| builder).await;
    let other = stage.other();
    assert!(other.met(10 * SECOND).await.has_majority());
    for _ in 0..50 {
        let lease = stage.acquire().await;
        let lock = other.lock("x");
        let waiting = other.env().spawn_scoped(async move { lock.acquire().await });
        tokio::task::yield_now().await;
        lease.release().await.expect("a majority");
        waiting.await.expect("no panic").expect("released").release().await.expect("a majority");
    }
    stage.quorum.close().await;
    other.close().await;
}

/// A worker that has waited for a lock beside others asks one node first. One node proves nothing, so a key that
/// only this node stores must not keep the worker from the lock.
#[tokio::test]
async fn a_key_on_one_node_does_not_block_a_worker_that_has_waited() {
    let stage = Stage::new(|builder| builder).await;
    let others: Vec<Quorum> = (0..6).map(|_| stage.other()).collect();
    for other in &others {
        assert!(other.met(10 * SECOND).await.has_majority());
    }
    let lease = others[0].lock("x").acquire().await.expect("a majority");
    let turn = |quorum: &Quorum| {
        let lock = quorum.lock("x").wait(60 * SECOND);
        async move { lock.acquire().await.expect("its turn").release().await.expect("a majority") }
    };
    // Five workers wait, and the first release wakes all of them.
    let turns = join_all(others[1..].iter().map(turn));
    let release = async {
        stage.quorum.env().sleep(Duration::from_millis(100)).await;
        lease.release().await.expect("a majority");
    };
    tokio::join!(turns, release);
    for (number, node) in stage.nodes.iter().enumerate() {
        let owner = Owner::sign("gone", number as u64, 1);
        let resource = Resource::lock("x").expect("a name");
        let stale = Request::Acquire {
            resource: resource.clone(),
            owner: owner.clone(),
            ttl: 30 * SECOND,
            propose: FencingToken::new(stage.quorum.env().wall().as_micros()),
            tolerance: SECOND,
            keep: 60 * SECOND,
            ticket: None,
        };
        assert!(matches!(ask(&node.node, stale).await, Reply::Granted { .. }));
        let lease = others[1].lock("x").wait(Duration::ZERO).acquire().await;
        lease.expect("four nodes are free").release().await.expect("a majority");
        ask(&node.node, Request::Release { resource, owner }).await;
    }
    stage.quorum.close().await;
    for other in others {
        other.close().await;
    }
}

async fn ask(node: &MemoryNode, request: Request) -> Reply {
    let (mut session, hello) = node.open(PushSender::channel().0).await.expect("a memory node");
    let stamp = hello.marker.unwrap_or_else(|| "".into());
    let batch = Batch { requests: vec![request], not_after: NodeTime::from_micros(u64::MAX), stamp };
    let reply = session.send(batch).await.expect("a memory node").replies;
    reply.into_iter().next().expect("one reply")
}
