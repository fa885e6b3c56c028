use super::*;
use crate::{
    config::{QuorumConfig, SharedSettings},
    node::Cause,
};
use std::time::Duration;

const NOW: BootTime = BootTime::from_nanos(1_000_000_000);
const NODE_NOW: NodeTime = NodeTime::from_micros(1_700_000_000_000_000);

fn hello(node: usize, nodes: Option<&str>) -> Hello {
    let run_id: Arc<str> = format!("run of {node}").into();
    let marker = nodes.map(|nodes| Marker {
        run_id: Arc::clone(&run_id),
        nodes: nodes.into(),
        settings: SharedSettings::of(&QuorumConfig::default()),
        since: NODE_NOW - Duration::from_secs(1000),
        votes_from: NODE_NOW - Duration::from_secs(900),
    });
    Hello {
        node_time: NODE_NOW,
        run_id,
        marker: marker.as_ref().map(Marker::to_text),
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
        let policy = TrustPolicy { nodes: Marker::node_set(&names), config: QuorumConfig::default() };
        Self { registry: Arc::new(NodeRegistry::new(&names)), policy: Arc::new(policy) }
    }

    /// Performs the first handshake with `node`. The node's marker names the node set `nodes`, or the node
    /// has no marker.
    fn connects(&self, node: usize, nodes: Option<&str>) -> NodeTrust {
        let mut node_trust = NodeTrust::new(node, Arc::clone(&self.policy), Arc::clone(&self.registry));
        node_trust.connected(NOW, hello(node, nodes));
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
    a.connected(NOW, Hello { run_id: "another run".into(), ..hello(0, Some("a,b,c")) });
    assert!(a.evaluate(NOW).is_some(), "its marker names this worker's list");
}

#[test]
fn two_names_of_one_server_count_as_one_reached_node() {
    let worker = Worker::new();
    worker.cannot_reach(2);
    let mut a = worker.connects(0, None);
    let mut twin = NodeTrust::new(1, Arc::clone(&worker.policy), Arc::clone(&worker.registry));
    twin.connected(NOW, hello(0, None));
    assert!(twin.evaluate(NOW).is_none() && a.evaluate(NOW).is_none());
    assert!(a.awaits_others());
}
