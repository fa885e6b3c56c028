use quorate::redis::{RedisNode, RedisSession};
use quorate::{
    env::{BootTime, Env},
    lease::{AcquireError, Lease, Lock, TryAcquire},
    node::{Cause, FencingToken, Hello, Node, PushSender},
    quorum::{NodeState, NodeStatus, QuarantineReason, Quorum, QuorumBuilder, QuorumConfig, VoteRejection},
};
use quorate_testkit::{
    proxy::{Directions, Proxy},
    redis::{RedisCluster, RedisConfig, RedisServer},
};
use quorate_tests::support::{Key, PATIENCE, keys};
use std::{ops::Range, sync::Mutex, time::Duration};

/// The TTL of all leases on most benches, which is also the `max_ttl` there.
pub(crate) const TTL: Duration = Duration::from_secs(2);

/// A TTL that is long enough to distinguish a released key from an expired one, even on a busy machine.
const LONG_TTL: Duration = Duration::from_secs(10);

/// The time that a node may take to answer. It is longer than the default, because the machine may be busy.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(250);

/// The time between two checks of a condition.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Five servers that an operator has trusted.
pub(crate) struct Bench {
    pub(crate) servers: RedisCluster,
    durable: bool,
    ttl: Duration,
}

/// One worker. It has a quorum, and possibly a proxy of its own to each server.
pub(crate) struct Worker {
    pub(crate) quorum: Quorum,
    pub(crate) roads: Vec<Proxy>,
    ttl: Duration,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(&RedisConfig::new(), false).await
    }

    /// Starts servers and workers with the long TTL, which [`Bench::freed`] needs.
    pub(crate) async fn of_long_leases() -> Self {
        Self::of(&RedisConfig::new(), false, LONG_TTL).await
    }

    /// Starts servers with the configuration `config`. `durable` is the workers' setting of this
    /// name.
    pub(crate) async fn with(config: &RedisConfig, durable: bool) -> Self {
        Self::of(config, durable, TTL).await
    }

    async fn of(config: &RedisConfig, durable: bool, ttl: Duration) -> Self {
        let servers = RedisCluster::start_with(5, config).unwrap_or_else(|error| panic!("{error}"));
        let bench = Self { servers, durable, ttl };
        let quorum = bench.builder("operator").nodes(bench.nodes()).build().expect("a sound setup");
        let give_up = quorum.env().now() + PATIENCE;
        // On a busy machine the worker may not be connected to every server yet. So the request is repeated.
        while let Err(error) = quorum.trust_nodes().await {
            assert!(quorum.env().now() < give_up, "{error}");
            quorum.env().sleep(LOOK_EVERY).await;
        }
        quorum.close().await;
        bench
    }

    /// Returns a worker without proxies, once it trusts all servers.
    pub(crate) async fn worker(&self, name: &str) -> Worker {
        let worker = self.newcomer(name);
        worker.trusts(5).await;
        worker
    }

    /// Returns a worker without proxies. Does not wait until it trusts the servers.
    pub(crate) fn newcomer(&self, name: &str) -> Worker {
        let quorum = self.builder(name).nodes(self.nodes()).build().expect("a sound setup");
        Worker { quorum, roads: Vec::new(), ttl: self.ttl }
    }

    /// Returns a worker with proxies of its own, whose faults affect no other worker.
    pub(crate) async fn worker_on_roads(&self, name: &str) -> Worker {
        self.worker_on_roads_with(name, |setup| setup).await
    }

    pub(crate) async fn worker_on_roads_with(
        &self,
        name: &str,
        tune: impl FnOnce(QuorumConfig) -> QuorumConfig,
    ) -> Worker {
        let roads: Vec<Proxy> =
            self.servers.iter().map(|server| Proxy::before(server).expect("a port")).collect();
        let nodes = self.servers.iter().zip(&roads).map(|(server, road)| Road {
            to: RedisNode::parse(&server.url()).expect("a URL"),
            over: RedisNode::parse(&road.url()).expect("a URL"),
        });
        let builder = Quorum::builder().config(tune(self.config(name))).nodes(nodes);
        let worker = Worker { quorum: builder.build().expect("a sound setup"), roads, ttl: self.ttl };
        worker.trusts(5).await;
        worker
    }

    pub(crate) fn config(&self, worker: &str) -> QuorumConfig {
        QuorumConfig {
            worker: worker.into(),
            max_ttl: self.ttl,
            node_timeout: NODE_TIMEOUT,
            durable: self.durable,
            ..QuorumConfig::default()
        }
    }

    fn builder(&self, worker: &str) -> QuorumBuilder {
        Quorum::builder().config(self.config(worker))
    }

    fn nodes(&self) -> impl Iterator<Item = RedisNode> {
        self.servers.iter().map(|server| RedisNode::parse(&server.url()).expect("a URL"))
    }

    pub(crate) fn is_stored(&self, index: usize, key: &str) -> bool {
        self.servers[index].command(&["EXISTS", key]) == "1"
    }

    /// Returns the indices of the servers that store the key of the lock.
    pub(crate) fn holders_of(&self, lock: &str) -> Vec<usize> {
        let key = format!("quorate:{lock}");
        (0..self.servers.len()).filter(|&index| self.is_stored(index, &key)).collect()
    }

    /// Waits until no server has a key of the lock, and checks that the keys were released and have not
    /// expired. For this, the bench must have [long leases](Bench::of_long_leases).
    pub(crate) async fn freed(&self, lock: &str) {
        self.freed_on(0..self.servers.len(), lock).await;
    }

    /// Checks the same as [`Self::freed`], but only for these nodes.
    pub(crate) async fn freed_on(&self, nodes: Range<usize>, lock: &str) {
        assert_eq!(self.ttl, LONG_TTL, "a busy machine may sleep for a shorter lease's time");
        let key = format!("quorate:{lock}");
        let mut left = vec![i64::MAX; nodes.len()];
        eventually("lock freed", || {
            let mut stands = false;
            for (index, left) in nodes.clone().zip(&mut left) {
                let now: i64 = self.servers[index].command(&["PTTL", &key]).parse().expect("milliseconds");
                if now >= 0 {
                    (stands, *left) = (true, now);
                }
            }
            (!stands).then_some(())
        })
        .await;
        assert!(left.iter().all(|&left| left > 100), "freed only by the end of its time: {left:?} ms left");
    }

    /// Checks that no lease is left behind. Every key of a lease must expire within one TTL, and soon no
    /// server may store such a key. (Markers, ledgers and fencing counters stay.)
    pub(crate) async fn clean(&self) {
        eventually("servers without keys of leases", || {
            let left: usize = self.servers.iter().map(|server| leases_on(server, self.ttl)).sum();
            (left == 0).then_some(())
        })
        .await;
    }
}

/// Returns the number of leases on `server`, and checks that each of them ends within a TTL. A key of a plain acquire ends a
/// TTL after the deadline of its request, so up to a node timeout later: the longest of these workers.
fn leases_on(server: &RedisServer, ttl: Duration) -> usize {
    let stands = |key: &Key| match &*key.name {
        "quorate:node" => None,
        name if name.starts_with("quorate:ledger/") || key.kind != "string" => None,
        name if name.starts_with("quorate:claim/") => key.claimed,
        name => name.starts_with("quorate:").then_some(key.left),
    };
    let most = i64::try_from((ttl + NODE_TIMEOUT * 3 / 2).as_millis()).expect("small");
    keys(server)
        .iter()
        .filter_map(|key| stands(key).map(|left| (key, left)))
        .inspect(|(key, left)| assert!((0..=most).contains(left), "{} stands for {left} ms yet", key.name))
        .count()
}

impl Worker {
    pub(crate) fn lock(&self, name: &str) -> Lock {
        self.quorum.lock(name).ttl(self.ttl).wait(PATIENCE)
    }

    /// Tries to acquire the lock until it is granted, and returns the lease. Fails after [`PATIENCE`].
    #[track_caller]
    pub(crate) fn must_acquire(&self, name: &str) -> impl Future<Output = Lease> {
        let lock = self.lock(name);
        async move { lock.acquire().await.unwrap_or_else(|error| panic!("{error}")) }
    }

    /// Makes one attempt to acquire the lock, which must fail. Returns the error of the attempt, or `None` if
    /// another worker holds the lock.
    pub(crate) async fn must_not_acquire(&self, name: &str) -> Option<AcquireError> {
        match self.lock(name).try_acquire().await {
            Ok(TryAcquire::Acquired(lease)) => panic!("acquired: {lease:?}"),
            Ok(TryAcquire::Contended { .. }) => None,
            Err(error) => Some(error),
        }
    }

    /// Waits until this worker counts the grants of this number of nodes. It counts those of a node whose clock is far off,
    /// too, though it shows the node as one without a vote.
    pub(crate) async fn trusts(&self, count: usize) {
        eventually(&format!("trust in {count} nodes"), || {
            let nodes = self.quorum.nodes();
            let trusted =
                nodes.iter().filter(|node| node.state == NodeState::Trusted || far_off(&node.state));
            (trusted.count() >= count).then_some(())
        })
        .await;
    }

    /// Waits until `so` returns true for the state of the node at `index`.
    pub(crate) async fn sees(&self, index: usize, what: &str, so: impl Fn(&NodeState) -> bool) -> NodeStatus {
        eventually(&format!("{what} node {index}"), || {
            let node = self.quorum.nodes()[index].clone();
            so(&node.state).then_some(node)
        })
        .await
    }

    pub(crate) fn now(&self) -> BootTime {
        self.quorum.env().now()
    }

    /// Checks that the quorum works, by acquiring and releasing a lock that was not used before.
    pub(crate) async fn serves(&self, name: &str) {
        let lease = self.must_acquire(name).await;
        lease.release().await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Checks, again and again for this time, that the lease is valid.
    pub(crate) async fn keeps(&self, lease: &Lease, time: Duration) {
        let until = self.now() + time;
        while self.now() < until {
            assert!(lease.is_valid(), "lost, {:?} before the end", self.now().until(until));
            self.quorum.env().sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the lease has ended. Checks that it is not valid, and that the step-down was signalled.
    pub(crate) async fn sees_the_end(&self, lease: &Lease) {
        let over = self.quorum.env().before(self.now() + PATIENCE, lease.lost_token().cancelled()).await;
        assert!(over.is_some(), "the lease is not lost in {PATIENCE:?}");
        assert!(
            lease.step_down_token().is_cancelled() && !lease.is_valid() && lease.fencing_token().is_err()
        );
    }

    /// Removes all faults from the worker's network.
    pub(crate) fn heal(&self) {
        self.roads.iter().for_each(Proxy::heal);
    }

    /// Ends the worker like a crash. Its network is cut first, so that no release arrives.
    pub(crate) fn crash(self) {
        for road in &self.roads {
            road.refuse();
            road.cut(Directions::Both);
            road.sever();
        }
        drop(self.quorum);
    }
}

/// Tries to acquire the lock of `held` until it is granted, and ignores errors. Fails if `held` is still valid
/// when the lock is granted.
pub(crate) async fn take_over(worker: &Worker, held: &Lease) -> Lease {
    let lock = worker.lock(held.resource().key());
    let give_up = worker.now() + PATIENCE;
    loop {
        let attempt = lock.try_acquire().await;
        if let Ok(TryAcquire::Acquired(lease)) = attempt {
            assert!(!held.is_valid(), "two hold it: {:?} left to the first", held.remaining());
            assert!(
                lease.unchecked_token() > held.unchecked_token(),
                "{:?} after {:?}",
                lease.unchecked_token(),
                held.unchecked_token()
            );
            return lease;
        }
        assert!(worker.now() < give_up, "never free: {attempt:?}");
        worker.quorum.env().sleep(Duration::from_millis(5)).await;
    }
}

/// Returns whether the node must not vote because its clock stepped.
pub(crate) fn jumped(state: &NodeState) -> bool {
    let NodeState::Quarantined { why: VoteRejection::Quarantined { reason, .. }, .. } = state else {
        return false;
    };
    *reason == QuarantineReason::Jumped
}

/// Returns whether the node is shown as one without a vote because its clock is far off.
pub(crate) fn far_off(state: &NodeState) -> bool {
    matches!(state, NodeState::Refused(VoteRejection::Clock { .. }))
}

/// Calls `look` again and again until it returns a value. Fails after [`PATIENCE`].
pub(crate) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let env = Env::system();
    let give_up = env.now() + PATIENCE;
    loop {
        let late = env.now() >= give_up;
        match look() {
            Some(found) => return found,
            None if late => panic!("no {what} in {PATIENCE:?}"),
            None => env.sleep(LOOK_EVERY).await,
        }
    }
}

/// A store that is protected by fencing tokens. It refuses a write if it has seen a larger token than that of
/// the write.
#[derive(Default)]
pub(crate) struct Sink(Mutex<Option<FencingToken>>);

impl Sink {
    pub(crate) fn write(&self, token: FencingToken) -> Result<(), FencingToken> {
        let mut highest = self.0.lock().expect("no writer panics");
        match *highest {
            Some(seen) if seen > token => Err(seen),
            _ => {
                *highest = Some(token);
                Ok(())
            }
        }
    }
}

/// A server that a worker reaches through a proxy. The node has the name of the server, and not that of the
/// proxy.
struct Road {
    to: RedisNode,
    over: RedisNode,
}

impl Node for Road {
    type Session = RedisSession;

    fn name(&self) -> &str {
        self.to.name()
    }

    async fn open(&self, push_sender: PushSender) -> Result<(RedisSession, Hello), Cause> {
        self.over.open(push_sender).await
    }
}
