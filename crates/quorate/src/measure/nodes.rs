use super::facade::{Gauge, Metric};
use crate::env::BootTime;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const VOTING: Metric = Metric::number("quorate_nodes_voting", "Number of nodes that vote.");
const REQUIRED: Metric =
    Metric::number("quorate_nodes_required", "Number of nodes that must vote for a quorum.");
const UP: Metric = Metric::number("quorate_node_up", "1 if there is a connection to the node, otherwise 0.");
const QUARANTINED: Metric =
    Metric::number("quorate_node_quarantined", "1 if the node is in quarantine and does not vote yet.");
const ROUND_TRIP: Metric =
    Metric::seconds("quorate_node_round_trip_seconds", "Duration of the last round trip to the node.");
const CLOCK_OFFSET: Metric = Metric::seconds(
    "quorate_node_clock_offset_seconds",
    "Difference between the clock of the node and the clock of the quorum; 0 until it is known.",
);
/// The time between two computations of a node's clock offset. A node replies thousands of times a second, and
/// each computation reads the clocks of all nodes.
const OFFSET_EVERY: Duration = Duration::from_secs(1);

/// The state of one node, for its gauges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeReport {
    pub(crate) up: bool,
    pub(crate) quarantined: bool,
    pub(crate) votes: bool,
}

/// The gauges of a quorum's nodes.
#[derive(Debug)]
pub(crate) struct NodeMeasures {
    voting: Gauge,
    nodes: Vec<NodeGauges>,
}

#[derive(Debug)]
struct NodeGauges {
    up: Gauge,
    quarantined: Gauge,
    round_trip: Gauge,
    clock_offset: Gauge,
    /// The time on the boot clock, in nanoseconds, at which the clock offset is computed again.
    offset_due: AtomicU64,
}

impl NodeMeasures {
    pub(crate) fn new(names: &[Arc<str>], required: usize) -> Self {
        let node = |name: &Arc<str>| {
            let labels = [("node", &**name)];
            NodeGauges {
                up: UP.gauge(&labels),
                quarantined: QUARANTINED.gauge(&labels),
                round_trip: ROUND_TRIP.gauge(&labels),
                clock_offset: CLOCK_OFFSET.gauge(&labels),
                offset_due: AtomicU64::new(0),
            }
        };
        REQUIRED.gauge(&[]).set_count(required);
        Self { voting: VOTING.gauge(&[]), nodes: names.iter().map(node).collect() }
    }

    /// Reports the states of all nodes, in the order of the node list.
    pub(crate) fn states(&self, reports: impl Iterator<Item = NodeReport>) {
        if cfg!(not(feature = "metrics")) {
            return;
        }
        let mut voting = 0;
        for (gauges, report) in self.nodes.iter().zip(reports) {
            gauges.up.set_flag(report.up);
            gauges.quarantined.set_flag(report.quarantined);
            voting += usize::from(report.votes);
        }
        self.voting.set_count(voting);
    }

    pub(crate) fn round_trip(&self, node: usize, time: Duration) {
        if let Some(gauges) = self.nodes.get(node) {
            gauges.round_trip.set_duration(time);
        }
    }

    /// Reports the offset of a node's clock, in microseconds, at most once a second. `offset` returns `None`
    /// while the offset is unknown.
    pub(crate) fn clock_offset(&self, node: usize, now: BootTime, offset: impl FnOnce() -> Option<i128>) {
        if cfg!(not(feature = "metrics")) {
            return;
        }
        let Some(gauges) = self.nodes.get(node) else { return };
        if now.as_nanos() < gauges.offset_due.load(Ordering::Relaxed) {
            return;
        }
        if let Some(micros) = offset() {
            gauges.offset_due.store((now + OFFSET_EVERY).as_nanos(), Ordering::Relaxed);
            gauges.clock_offset.set(micros as f64 / 1e6);
        }
    }
}
