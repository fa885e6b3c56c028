use super::*;
use crate::{
    config::{QuorumConfig, SharedSettings},
    node::{Cause, Incarnation},
};
use std::time::Duration;

const NOW: BootTime = BootTime::from_nanos(1_000_000_000);
const NODE_NOW: NodeTime = NodeTime::from_micros(1_700_000_000_000_000);

fn hello(node: usize, nodes: Option<&str>) -> Hello {
    let run_id: Arc<str> = format!("run of {node}").into();
    let marker = nodes.map(|nodes| Marker {
        run_id: Arc::clone(&run_id),
        data: "".into(),
        incarnation: Incarnation::default(),
        nodes: nodes.into(),
        settings: SharedSettings::of(&QuorumConfig::default()),
        since: NODE_NOW - Duration::from_secs(1000),
        votes_from: NODE_NOW - Duration::from_secs(900),
    });
    Hello {
        node_time: NODE_NOW,
        run_id,
        marker: marker.as_ref().map(Marker::to_text),
        data: None,
        stamps: BTreeMap::new(),
        uptime: Duration::from_secs(3600),
        version: "7".into(),
        replica: false,
        eviction: Some("noeviction".into()),
        durable: None,
        volatile: None,
        unable: None,
    }
}

/// A worker with the list `a,b,c`, and its node registry.
struct Worker {
    registry: Arc<NodeRegistry>,
    policy: Arc<TrustPolicy>,
}

impl Worker {
    fn new() -> Self {
        let names = ["a", "b", "c"].map(Arc::from);
        let policy =
            TrustPolicy { nodes: Marker::node_set(&names), config: QuorumConfig::default(), seed: 1 };
        Self { registry: Arc::new(NodeRegistry::new(&names)), policy: Arc::new(policy) }
    }

    /// Performs the first handshake with `node`. The node's marker names the node set `nodes`, or the node
    /// has no marker.
    fn connects(&self, node: usize, nodes: Option<&str>) -> NodeTrust {
        let mut node_trust = NodeTrust::new(node, Arc::clone(&self.policy), Arc::clone(&self.registry));
        node_trust.connected(NOW, hello(node, nodes), 0);
        assert!(node_trust.evaluate(NOW).is_none() || nodes.is_none());
        node_trust
    }

    fn cannot_reach(&self, node: usize) {
        self.registry.set_state(node, NodeState::Unreachable(Cause::TimedOut));
    }
}

/// Connects a worker with the list `a,b,c` to all three nodes, whose markers name the node sets `markers`.
/// Returns for each node whether the worker writes a marker to it, and the reason why the last node must
/// not vote.
fn connect_all(markers: [Option<&str>; 3]) -> ([bool; 3], Option<VoteRejection>) {
    let worker = Worker::new();
    let mut all = [0, 1, 2].map(|node| worker.connects(node, markers[node]));
    let marks = [0, 1, 2].map(|node| all[node].evaluate(NOW).is_some());
    (marks, all[2].objection(NOW))
}

/// A worker must not write a marker to a flushed node while another node's marker names another list. Without
/// this rule, two workers led at the same time (seed 347 of the simulation's fault plan `mistaken`). One
/// worker was started with only three of the five nodes, and two of the three had been flushed. That worker
/// wrote markers to those two nodes, and led with their votes. Another worker led with the votes of the other
/// nodes.
#[test]
fn a_worker_that_a_marker_contradicts_writes_no_marker_to_a_flushed_node() {
    let five = Some("a,b,c,d,e");
    let (marks, why) = connect_all([five, None, None]);
    assert_eq!(marks, [false; 3]);
    let text = why.unwrap().to_string();
    assert!(text.contains("while a contradicts it") && text.contains("[a,b,c,d,e]"), "{text}");
}

#[test]
fn a_new_node_gets_a_marker_if_no_marker_differs_or_a_majority_agrees() {
    let ours = Some("a,b,c");
    assert_eq!(connect_all([None, None, None]).0, [true; 3], "a new cluster");
    assert_eq!(connect_all([ours, ours, None]).0, [false, false, true]);
    assert_eq!(connect_all([Some("a,b"), ours, None]).0, [false; 3], "one differs, one agrees");
    assert_eq!(connect_all([Some("a,b"), None, ours]).0, [false; 3]);
    // A node whose marker names another set is refused, even if a majority agrees with this worker. After
    // the node is flushed, it gets a new marker.
    let worker = Worker::new();
    let (_a, _b) = (worker.connects(0, ours), worker.connects(1, ours));
    let mut c = worker.connects(2, Some("a,b"));
    assert!(c.evaluate(NOW).is_none() && c.objection(NOW).unwrap().is_permanent());
    c.marker_changed(NOW, NODE_NOW, None);
    assert!(c.evaluate(NOW).is_some());
}

/// A worker must try every node before it writes a first marker. Without this rule, a worker reached two new
/// nodes first and wrote markers to them. Only then did it reach the node whose marker differs.
#[test]
fn no_new_node_gets_a_marker_before_every_node_was_tried() {
    let worker = Worker::new();
    let (mut b, mut c) = (worker.connects(1, None), worker.connects(2, None));
    assert!(
        b.evaluate(NOW).is_none() && c.evaluate(NOW).is_none(),
        "a majority, but the handshake with a is under way"
    );
    assert!(b.is_unknown() && b.awaits_others(), "voting requests wait");
    let _a = worker.connects(0, Some("a,x,y"));
    assert!(b.evaluate(NOW).is_none() && c.evaluate(NOW).is_none());
    assert!(matches!(b.objection(NOW), Some(VoteRejection::Contradicted { .. })));
}

#[test]
fn a_reached_majority_is_enough_if_the_others_are_unreachable_and_less_is_not() {
    let worker = Worker::new();
    worker.cannot_reach(0);
    let mut b = worker.connects(1, None);
    assert!(b.evaluate(NOW).is_none() && b.is_unknown());
    worker.cannot_reach(2);
    assert!(b.evaluate(NOW).is_none() && b.awaits_others());
    assert_eq!(b.objection(NOW), Some(VoteRejection::TooFewMet { met: 1, needed: 2 }));
    assert!(matches!(b.admission(NOW), Admission::Refused(VoteRejection::TooFewMet { .. })));
    // The quarantine is measured on the node's clock. The quarantine begins when the marker is written.
    let mut c = worker.connects(2, None);
    let later = NOW + Duration::from_secs(5);
    let marking = b.evaluate(later).expect("a majority has been reached");
    let quarantine = QuorumConfig::default().quarantine();
    assert!(marking.marker.since >= NODE_NOW + Duration::from_secs(5));
    assert_eq!(marking.marker.votes_from, marking.marker.since + quarantine);
    assert_eq!(marking.from, later + quarantine);
    assert!(c.evaluate(later).is_some());
    // A node that was reached once still counts as reached after its connection broke.
    c.disconnected();
    b.marker_written(later, marking);
    b.marker_changed(later, NODE_NOW, None);
    assert!(b.evaluate(later).is_some());
}

#[test]
fn a_restarted_node_gets_a_new_marker_at_once() {
    let worker = Worker::new();
    let mut a = NodeTrust::new(0, Arc::clone(&worker.policy), Arc::clone(&worker.registry));
    a.connected(NOW, Hello { run_id: "another run".into(), ..hello(0, Some("a,b,c")) }, 0);
    assert!(a.evaluate(NOW).is_some(), "its marker names this worker's list");
}

#[test]
fn two_names_of_one_server_count_as_one_reached_node() {
    let worker = Worker::new();
    worker.cannot_reach(2);
    let mut a = worker.connects(0, None);
    let mut twin = NodeTrust::new(1, Arc::clone(&worker.policy), Arc::clone(&worker.registry));
    twin.connected(NOW, hello(0, None), 0);
    assert!(twin.evaluate(NOW).is_none() && a.evaluate(NOW).is_none());
    assert!(a.awaits_others());
}

/// Returns a worker of a durable quorum that has reached all three nodes. They store the stamp `seen` of node 0.
fn durable_worker(seen: u64) -> Worker {
    let names = ["a", "b", "c"].map(Arc::from);
    let config = QuorumConfig { durable: true, ..QuorumConfig::default() };
    let policy = TrustPolicy { nodes: Marker::node_set(&names), config, seed: 1 };
    let worker = Worker { registry: Arc::new(NodeRegistry::new(&names)), policy: Arc::new(policy) };
    for node in [1, 2] {
        let mut other = NodeTrust::new(node, Arc::clone(&worker.policy), Arc::clone(&worker.registry));
        other.connected(NOW, durable_hello(node, &[("a", seen)]), 0);
        assert!(other.evaluate(NOW).is_none() && other.stores_stamps());
    }
    worker
}

/// Returns the handshake of a durable node that has this worker's marker and stores `stamps`.
fn durable_hello(node: usize, stamps: &[(&str, u64)]) -> Hello {
    let hello = hello(node, Some("a,b,c"));
    let marker = Marker::parse(hello.marker.as_deref().unwrap()).unwrap();
    let settings = SharedSettings::of(&QuorumConfig { durable: true, ..QuorumConfig::default() });
    let stamps = stamps.iter().map(|(name, count)| ((*name).into(), *count)).collect();
    let marker = Some(Marker { settings, ..marker }.to_text());
    Hello { marker, stamps, durable: Some(true), ..hello }
}

/// Returns the handshake of node 0 after a restart, with the stamp `own`.
fn restarted(own: u64) -> Hello {
    Hello { run_id: "another run".into(), ..durable_hello(0, &[("a", own)]) }
}

/// Seen with real servers: two of three durable servers were restored from a backup while a lock was held. Both voted
/// at once, and a second worker acquired the lock.
#[test]
fn a_durable_node_whose_stamp_another_node_has_seen_grow_has_lost_its_memory() {
    for (own, is_lost) in [(8, true), (9, false), (10, false)] {
        let worker = durable_worker(9);
        let mut a = NodeTrust::new(0, Arc::clone(&worker.policy), Arc::clone(&worker.registry));
        a.connected(NOW, restarted(own), 0);
        let marking = a.evaluate(NOW).unwrap();
        assert_eq!(marking.begins_memory(), is_lost, "{own}");
        assert_eq!(marking.reason == QuarantineReason::RolledBack, is_lost);
        a.marker_written(NOW, marking);
        assert_eq!(a.is_withheld(), is_lost);
        assert!(a.evaluate(NOW).is_none(), "the loss is handled once");
    }
}

#[test]
fn a_restarted_durable_node_is_compared_with_every_node_that_can_be_reached() {
    let names = ["a", "b", "c"].map(Arc::from);
    let worker = Worker { registry: Arc::new(NodeRegistry::new(&names)), ..durable_worker(9) };
    let connects = |node: usize, hello: Hello| {
        let mut trust = NodeTrust::new(node, Arc::clone(&worker.policy), Arc::clone(&worker.registry));
        trust.connected(NOW, hello, 0);
        trust
    };
    let mut a = connects(0, restarted(8));
    assert!(a.evaluate(NOW).is_none() && a.is_unknown() && a.awaits_others());
    worker.cannot_reach(1);
    worker.cannot_reach(2);
    assert!(a.evaluate(NOW).is_none() && a.may_change_soon());
    assert_eq!(a.objection(NOW), Some(VoteRejection::Uncompared { met: 1, needed: 2 }));
    let mut c = connects(2, durable_hello(2, &[("a", 9)]));
    assert!(c.evaluate(NOW).is_none());
    assert!(a.evaluate(NOW).unwrap().begins_memory(), "c has seen 9");
}

#[test]
fn a_worker_remembers_the_stamps_that_it_has_seen() {
    let worker = durable_worker(0);
    let mut a = NodeTrust::new(0, Arc::clone(&worker.policy), Arc::clone(&worker.registry));
    a.connected(NOW, durable_hello(0, &[("a", 5)]), 0);
    assert!(a.evaluate(NOW).is_none() && a.stores_stamps());
    let epoch = worker.registry.epoch(0);
    a.stamps_read(NOW, NODE_NOW, &[("a".into(), 6)].into(), 6);
    assert!(a.evaluate(NOW).is_none() && worker.registry.epoch(0) == epoch);
    // The data was replaced under an open session.
    a.stamps_read(NOW, NODE_NOW, &[("a".into(), 3)].into(), 7);
    assert!(a.take_lost_memory() && worker.registry.epoch(0) > epoch, "its grants no longer count");
    let marking = a.evaluate(NOW).unwrap();
    assert_eq!(marking.reason, QuarantineReason::RolledBack);
    // Another worker has noticed the same, and its marker begins a new memory.
    let theirs = Marker { incarnation: Incarnation::draw(2, "x", NODE_NOW), ..marking.marker.clone() };
    a.marker_changed(NOW, NODE_NOW, Some(theirs.to_text()));
    assert!(a.evaluate(NOW).is_none() && a.is_withheld());
    // The server comes back with the same run id, as from a snapshot of the whole machine.
    a.disconnected();
    a.connected(NOW, durable_hello(0, &[("a", 4)]), worker.registry.stamp(0));
    assert_eq!(a.evaluate(NOW).unwrap().reason, QuarantineReason::RolledBack);
}

/// A handshake begins, another worker increases the node's stamp and reports it to the other nodes, and they answer first.
#[test]
fn a_stamp_that_grew_after_the_handshake_is_no_loss() {
    let worker = durable_worker(5);
    let mut a = NodeTrust::new(0, Arc::clone(&worker.policy), Arc::clone(&worker.registry));
    a.connected(NOW, durable_hello(0, &[("a", 4)]), 4);
    assert!(a.evaluate(NOW).is_none() && !a.is_withheld());
    // After a restart, the other worker has replaced the marker before it increased the stamp.
    let mut restart = NodeTrust::new(0, Arc::clone(&worker.policy), Arc::clone(&worker.registry));
    restart.connected(NOW, restarted(4), 4);
    assert!(restart.evaluate(NOW).unwrap().begins_memory());
    let kept = Marker::parse(restarted(4).marker.as_deref().unwrap()).unwrap();
    let kept = Marker { run_id: "another run".into(), ..kept };
    restart.marker_changed(NOW, NODE_NOW, Some(kept.to_text()));
    assert!(restart.evaluate(NOW).is_none() && !restart.is_withheld());
}
