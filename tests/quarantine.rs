//! Tests that a node that has lost its data does not grant a lease that another worker still holds.
//!
//! The tests produce the case in which plain Redlock fails. A lease is stored on three of five servers,
//! because the other two were unreachable. The holder of the lease dies. One of the three servers restarts
//! empty, and the two unreachable servers return. Now three servers have no record of a lease that has not
//! ended.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::redis::RedisNode;
use quorate::{
    env::WallTime,
    lease::{Lease, TryAcquire},
    quorum::{NodeState, Quorum},
};
use quorate_testkit::redis::RedisServer;
use quorate_tests::support::{Nodes, PATIENCE, Program, now, until};
use std::time::Duration;

/// The TTL of the leases, and `max_ttl`. It is long enough for two nodes to return well before the lease ends.
const TTL: Duration = Duration::from_secs(4);

/// A lease on the nodes 0 to 2 of five, whose holder is dead. The nodes 3 and 4 are unreachable at first.
struct Orphan {
    nodes: Nodes,
    /// The times at which the keys of the lease expire on the nodes 1 and 2. The earlier time comes first.
    ends: [WallTime; 2],
    token: u64,
    _program: Program,
}

impl Orphan {
    fn new() -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
        let config = program.write("quorate.toml", "max_ttl = \"4s\"\n");
        let nodes = Nodes::admitted(5, &program, &["--config", &config]);
        nodes[3].pause();
        nodes[4].pause();
        let list = nodes.list();
        let script = "echo $QUORATE_FENCING_TOKEN; exec sleep 1000";
        let exec = ["exec", "--config", &config, "--nodes", &list, "--lock", "x", "--ttl", "4s"];
        let holder = program.start([&exec[..], &["--", "sh", "-c", script]].concat());
        let token = until("word from the holder's command", PATIENCE, || holder.stdout().trim().parse().ok());
        holder.kill();
        holder.wait(PATIENCE);
        let mut ends = [1, 2].map(|index: usize| expiry(&nodes[index]));
        ends.sort_unstable();
        assert!(now().until(ends[0]) > TTL / 2, "the holder was killed late in its lease");
        Self { nodes, ends, token, _program: program }
    }

    /// Tries to acquire the lock until it is granted. Checks that it was not granted while the dead holder's
    /// lease was valid.
    async fn contend(&self, quorum: &Quorum) -> Lease {
        let lock = quorum.lock("x").ttl(TTL);
        let (mut tries, mut in_danger) = (0, 0);
        loop {
            let attempt = lock.try_acquire().await;
            let after = now();
            if let Ok(TryAcquire::Acquired(lease)) = attempt {
                // Two nodes still store the dead holder's lease, and one is in quarantine. So a majority needs
                // one of the two nodes, and is possible only after its key has expired.
                assert!(after >= self.ends[0], "granted {:?} too soon", after.until(self.ends[0]));
                assert!(in_danger > 0, "none of {tries} attempts met the two nodes that were away");
                assert!(lease.unchecked_token().get() > self.token);
                return lease;
            }
            let late = self.ends[1].until(after);
            assert!(late < Duration::from_secs(3), "free for {late:?} and not granted: {attempt:?}");
            tries += 1;
            in_danger += usize::from(is_dangerous(quorum));
            quorum.env().sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Returns the time at which the key of the lock expires, by the server's clock.
fn expiry(server: &RedisServer) -> WallTime {
    WallTime::from_micros(server.expires_at("quorate:x") * 1000)
}

/// Returns whether the dangerous situation exists: the two nodes that were unreachable vote, and the node that
/// lost its data does not vote yet. These three nodes do not know of the lease, and would be a majority. Only
/// the quarantine of one of them prevents this majority.
fn is_dangerous(quorum: &Quorum) -> bool {
    let states: Vec<_> = quorum.nodes().into_iter().map(|node| node.state).collect();
    let votes = |index: usize| states[index] == NodeState::Trusted;
    matches!(states[0], NodeState::Quarantined { .. }) && votes(3) && votes(4)
}

fn quorum(nodes: &Nodes) -> Quorum {
    let redis = nodes.urls().into_iter().map(|url| RedisNode::parse(&url).expect("a URL"));
    let builder = Quorum::builder().nodes(redis).max_ttl(TTL);
    builder.build().expect("a sound setup")
}

/// Makes node 0 lose its data by `forget`. Then checks two quorums that acquire the lock: one that has observed
/// the loss, and a new one.
async fn second_holder_waits(forget: impl FnOnce(&mut RedisServer)) {
    let mut orphan = Orphan::new();
    let witness = quorum(&orphan.nodes);
    let met = witness.ready(PATIENCE).await.expect("a majority votes");
    assert_eq!(met.iter().filter(|node| node.state == NodeState::Trusted).count(), 3, "{met:?}");
    forget(&mut orphan.nodes[0]);
    orphan.nodes[3].resume();
    orphan.nodes[4].resume();
    let newcomer = quorum(&orphan.nodes);
    // One of the two quorums acquires the lock first, and the other one after its release.
    let both = async |quorum: &Quorum| {
        let lease = orphan.contend(quorum).await;
        let granted = now();
        lease.release().await.expect("a majority answers");
        granted
    };
    let (first, second) = tokio::join!(both(&witness), both(&newcomer));
    let soon = orphan.ends[1].until(first.min(second));
    assert!(soon < Duration::from_secs(2), "the lock was free for {soon:?} before it was granted");
    witness.close().await;
    newcomer.close().await;
}

#[tokio::test]
async fn a_server_that_restarted_empty_gives_nothing_twice() {
    second_holder_waits(|server| server.restart().expect("it starts again")).await;
}

#[tokio::test]
async fn a_flushed_server_gives_nothing_twice() {
    second_holder_waits(|server| server.flushall()).await;
}

/// Shows that two workers hold the lease if an operator ends the quarantine too early. So the tests above would
/// fail without the quarantine.
#[tokio::test]
async fn without_quarantine_there_are_two_holders() {
    let orphan = Orphan::new();
    orphan.nodes[0].flushall();
    orphan.nodes[3].resume();
    orphan.nodes[4].resume();
    let reckless = quorum(&orphan.nodes);
    reckless.ready(PATIENCE).await.expect("nodes 1, 2, 3 and 4 vote");
    reckless.trust_nodes().await.expect("node 0 is admitted");
    let lease = reckless.lock("x").ttl(TTL).wait(PATIENCE).acquire().await.expect("a quorum");
    let granted = now();
    assert!(granted < orphan.ends[0], "granted only {:?} after the end", orphan.ends[0].until(granted));
    drop(lease);
    reckless.close().await;
}
