//! Tests of markers on real servers: which worker writes the first marker of a node, and which workers the
//! marker excludes.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use quorate::{
    env::Env,
    internals::Marker,
    quorum::{NodeState, NodeStatus, QuarantineReason, Quorum, QuorumConfig, QuorumStatus, VoteRejection},
};
use quorate_testkit::redis::{RedisConfig, RedisServer};
use std::{path::Path, sync::Arc, time::Duration};

/// A time limit that a healthy run never reaches, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn servers(count: usize) -> Vec<RedisServer> {
    (0..count).map(|_| RedisServer::start().expect("a server")).collect()
}

fn quorum<'a>(servers: impl IntoIterator<Item = &'a RedisServer>, setup: QuorumConfig) -> Quorum {
    let urls = servers.into_iter().map(RedisServer::url);
    Quorum::redis(urls).expect("URLs").config(setup).build().expect("a sound setup")
}

fn trusting() -> QuorumConfig {
    QuorumConfig { trust_new_nodes: true, node_timeout: Duration::from_secs(1), ..QuorumConfig::default() }
}

/// Returns the number of nodes in the marker of `server`, or `None` if it has no marker.
fn marked_for(server: &RedisServer) -> Option<usize> {
    let text = server.command(&["GET", "quorate:node"]);
    Marker::parse(&text).ok().map(|marker| marker.nodes.split(',').count())
}

async fn until(quorum: &Quorum, what: &str, done: impl Fn(&[NodeStatus]) -> bool) -> QuorumStatus {
    let env = Env::system();
    let deadline = env.now() + PATIENCE;
    loop {
        let nodes = quorum.nodes();
        if done(&nodes) {
            return nodes;
        }
        assert!(env.now() < deadline, "timed out waiting for {what}: {nodes:?}");
        env.sleep(Duration::from_millis(5)).await;
    }
}

fn refused(nodes: &[NodeStatus]) -> usize {
    nodes.iter().filter(|node| matches!(&node.state, NodeState::Refused(_))).count()
}

/// Checks a worker whose list has five nodes, of which three form a deployment. In an earlier version, such a
/// worker could reach the two new nodes first and write its marker to them, so that the other workers could not
/// use these two.
#[tokio::test]
async fn a_worker_with_a_wrong_list_marks_no_new_node() {
    let servers = servers(5);
    let right = quorum(&servers[..3], trusting());
    right.ready(PATIENCE).await.expect("a majority votes");
    until(&right, "the third marker", |_| servers[..3].iter().all(|server| marked_for(server) == Some(3)))
        .await;
    right.close().await;
    for run in 0..12 {
        // Each run begins its list with another server, so that the handshakes begin in a different order.
        let list = (0..5).map(|at| &servers[(at + run) % 5]);
        let wrong = quorum(list, trusting());
        let nodes = until(&wrong, "the refusal", |nodes| refused(nodes) == 5).await;
        let contradicted = |node: &&NodeStatus| {
            matches!(&node.state, NodeState::Refused(VoteRejection::Contradicted { .. }))
        };
        assert_eq!(nodes.iter().filter(contradicted).count(), 2, "{nodes:?}");
        wrong.close().await;
        assert_eq!(servers.each_marked(), [Some(3), Some(3), Some(3), None, None], "run {run}");
    }
}

trait EachMarked {
    fn each_marked(&self) -> Vec<Option<usize>>;
}

impl EachMarked for Vec<RedisServer> {
    fn each_marked(&self) -> Vec<Option<usize>> {
        self.iter().map(marked_for).collect()
    }
}

/// Checks two workers with different lists that start at the same time. The first marker on a node stays. A
/// worker that finds another list in a node's marker reports both lists.
#[tokio::test]
async fn of_two_lists_that_race_for_new_nodes_each_node_accepts_one() {
    for _ in 0..5 {
        let servers = servers(3);
        let (three, two) = (quorum(&servers, trusting()), quorum(&servers[1..], trusting()));
        let (three_nodes, two_nodes) = tokio::join!(three.ready(PATIENCE), two.ready(PATIENCE));
        until(&three, "an end", |nodes| nodes.iter().all(|node| node.state != NodeState::Connecting)).await;
        assert!(!(three_nodes.is_ok() && two_nodes.is_ok()), "majorities of both lists share a node");
        for (quorum, size) in [(&three, 3), (&two, 2)] {
            for (node, server) in quorum.nodes().iter().zip(&servers[3 - size..]) {
                let ours = marked_for(server) == Some(size);
                assert!(ours || node.state != NodeState::Trusted, "{node:?}");
            }
        }
        three.close().await;
        two.close().await;
    }
}

#[tokio::test]
async fn a_new_cluster_starts_while_a_minority_of_its_nodes_is_down() {
    let mut servers = servers(3);
    servers[2].kill();
    let first = quorum(&servers, trusting());
    first.ready(PATIENCE).await.expect("a majority is enough");
    let lease = first.lock("x").acquire().await.expect("a lease");
    lease.release().await.expect("released");
    servers[1].kill();
    first.close().await;
    servers[0].flushall();
    // The worker reaches one of three nodes, which is not a majority. So it must not write a marker until
    // another node is connected.
    let next = quorum(&servers, trusting());
    let nodes = until(&next, "the wait", |nodes| refused(nodes) == 1).await;
    let alone = NodeState::Refused(VoteRejection::TooFewMet { met: 1, needed: 2 });
    assert_eq!(nodes[0].state, alone, "{nodes:?}");
    let error = next.lock("x").try_acquire().await.expect_err("no quorum");
    assert!(!error.is_permanent() && error.to_string().contains("1 of the 2 nodes"), "{error}");
    assert_eq!(marked_for(&servers[0]), None);
    servers[2].restart().expect("it starts again");
    next.lock("x")
        .wait(PATIENCE)
        .acquire()
        .await
        .expect("two of three are met")
        .release()
        .await
        .expect("released");
    next.close().await;
}

#[tokio::test]
async fn a_worker_whose_shared_settings_differ_is_refused_with_both_values() {
    let servers = servers(3);
    let right = quorum(&servers, trusting());
    right.ready(PATIENCE).await.expect("a majority votes");
    let second = Duration::from_secs(1);
    for (field, theirs, ours, setup) in [
        ("max_ttl", "30s", "20s", QuorumConfig { max_ttl: 20 * second, ..trusting() }),
        ("max_clock_offset", "1s", "3s", QuorumConfig { max_clock_offset: 3 * second, ..trusting() }),
        ("clock_step_allowance", "200ms", "1s", QuorumConfig { clock_step_allowance: second, ..trusting() }),
        ("drift_rate", "0.01", "0.05", QuorumConfig { drift_rate: 0.05, ..trusting() }),
        // `durable` is missing from this table. With it, the worker would refuse these servers because of their
        // settings, before it compares the markers.
        ("trust_new_nodes", "true", "false", QuorumConfig { trust_new_nodes: false, ..trusting() }),
    ] {
        let other = quorum(&servers, setup);
        let error = other.lock("x").acquire().await.expect_err("refused");
        let text = error.to_string();
        assert!(error.is_permanent(), "{text}");
        assert!(
            text.contains(&format!("its marker says {field} {theirs}, this worker's is {ours}")),
            "{text}"
        );
        assert!(text.contains(&format!("give every worker the same {field}")), "{text}");
        other.close().await;
    }
    right.lock("x").acquire().await.expect("the other workers continue").release().await.expect("released");
    right.close().await;
}

/// Checks the marker of an older version, which has no setting except `max_ttl`. A worker of this version
/// cannot compare its other settings with such a marker.
#[tokio::test]
async fn a_marker_of_an_older_version_is_refused_with_the_fix() {
    let servers = servers(3);
    let old = "quorate-marker 1\nrun=abc\nnodes=a,b,c\nmax_ttl_ms=30000\nsince_us=1\nvotes_us=2";
    servers.iter().for_each(|server| drop(server.command(&["SET", "quorate:node", old])));
    let quorum = quorum(&servers, trusting());
    let text = quorum.lock("x").acquire().await.expect_err("refused").to_string();
    for part in ["format version 1", "reads 3", "stop it and delete the marker on each node", "quorate:node"]
    {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    quorum.close().await;
    servers.iter().for_each(|server| drop(server.command(&["DEL", "quorate:node"])));
    let again = Arc::new(self::quorum(&servers, trusting()));
    again.ready(PATIENCE).await.expect("new nodes");
    again.close().await;
}

/// Returns the reasons for which nodes are in quarantine, in the order of the nodes.
fn quarantines(nodes: &[NodeStatus]) -> Vec<Option<QuarantineReason>> {
    let reason = |node: &NodeStatus| match &node.state {
        NodeState::Quarantined { why: VoteRejection::Quarantined { reason, .. }, .. } => Some(*reason),
        _ => None,
    };
    nodes.iter().map(reason).collect()
}

/// Returns the stamp of the node `of` that `on` stores.
fn stamp(on: &RedisServer, of: &RedisServer) -> u64 {
    let name = format!("redis://{}/0", of.address());
    on.command(&["HGET", "{quorate:node}:stamps", &name]).parse().unwrap_or_default()
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

/// Durable servers vote at once after a restart. Two of three that were put back from a backup did so too, and a second
/// worker acquired a lock that was held. The third server, and a worker that lives, know that their data was newer.
#[tokio::test]
async fn durable_servers_that_are_put_back_from_a_backup_are_quarantined() {
    let start = || RedisServer::start_with(RedisConfig::new().append_only()).expect("a server");
    let mut servers: Vec<_> = (0..3).map(|_| start()).collect();
    if servers[0].version().is_redis_before(7, 0) {
        return; // It has one append-only file in place of a directory.
    }
    let setup = || QuorumConfig { durable: true, ..trusting() };
    let all_vote = |nodes: &[NodeStatus]| nodes.iter().all(NodeStatus::votes);
    let told = |servers: &[RedisServer], more_than: u64| {
        let others_know = |of: usize| (0..3).all(|on| stamp(&servers[on], &servers[of]) > more_than);
        others_know(0) && others_know(1)
    };
    let first = quorum(&servers, setup());
    until(&first, "the first stamps", |nodes| all_vote(nodes) && told(&servers, 0)).await;
    first.close().await;
    let newest = (0..3).map(|of| stamp(&servers[of], &servers[of])).max().expect("three");
    let backup = |server: &RedisServer| (server.dir().join("backup"), server.dir().join("appendonlydir"));
    for server in &servers[..2] {
        let (copy, data) = backup(server);
        copy_dir(&data, &copy);
    }
    let living = quorum(&servers, setup());
    until(&living, "the stamps after the backup", |nodes| all_vote(nodes) && told(&servers, newest)).await;
    let lease = living.lock("x").acquire().await.expect("all nodes vote");
    for server in &mut servers {
        let (copy, data) = backup(server);
        if copy.exists() {
            server.wipe().expect("no data");
            copy_dir(&copy, &data);
        }
        server.restart().expect("a server");
    }
    let lost = Some(QuarantineReason::RolledBack);
    let nodes = until(&living, "the loss, in a worker that lives", |nodes| {
        let waits = nodes.iter().filter(|node| node.quarantined_until().is_some()).count();
        waits == 2 && nodes[2].votes()
    })
    .await;
    assert!(quarantines(&nodes).contains(&lost), "the other reason is Marked at most: {nodes:?}");
    assert!(!lease.is_valid(), "two of its three grants are lost");
    living.close().await;
    // The same for a worker that knows nothing: it asks the third server.
    for server in &mut servers[..2] {
        let (copy, data) = backup(server);
        server.wipe().expect("no data");
        copy_dir(&copy, &data);
        server.restart().expect("a server");
    }
    let new = quorum(&servers, setup());
    let nodes =
        until(&new, "the loss, in a new worker", |nodes| quarantines(nodes) == [lost, lost, None]).await;
    let text = nodes[0].reason().expect("a reason");
    assert!(text.contains("was it restored from a backup?"), "{text}");
    new.close().await;
}

/// Makes `server` a replica of `master`, and waits until it has its data.
fn replicate(server: &RedisServer, master: &RedisServer) {
    master.command(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    server.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let env = Env::system();
    let deadline = env.now() + PATIENCE;
    while !server.command(&["INFO", "replication"]).contains("master_link_status:up") {
        assert!(env.now() < deadline, "timed out waiting for the replica");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Seen in reports of fail-back: a server became the replica of an old copy of itself and was promoted again. Its process
/// and its run id were the same, and it voted at once.
#[tokio::test]
async fn a_server_that_took_over_the_data_of_another_is_quarantined_without_a_restart() {
    let (server, old) = (RedisServer::start().expect("a server"), RedisServer::start().expect("a server"));
    let servers = [server];
    let first = quorum(&servers, trusting());
    first.lock("x").acquire().await.expect("a new node").release().await.expect("released");
    first.close().await;
    let marker = || Marker::parse(&servers[0].command(&["GET", "quorate:node"])).expect("a marker");
    let before = marker();
    // The first replica changes the id of the data, and not the data.
    replicate(&old, &servers[0]);
    old.command(&["REPLICAOF", "NO", "ONE"]);
    let second = quorum(&servers, trusting());
    second.lock("x").acquire().await.expect("the memory is the same").release().await.expect("released");
    second.close().await;
    let same = marker();
    assert!(same.data != before.data && same.incarnation == before.incarnation && same.since == before.since);
    replicate(&servers[0], &old);
    servers[0].command(&["REPLICAOF", "NO", "ONE"]);
    let third = quorum(&servers, trusting());
    until(&third, "the quarantine", |nodes| quarantines(nodes) == [Some(QuarantineReason::Copied)]).await;
    third.close().await;
    let after = marker();
    assert!(after.run_id == before.run_id && after.incarnation != before.incarnation);
    assert!(after.since > before.since, "its old fencing counters count as lost");
}
