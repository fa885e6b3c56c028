use super::facade::{Gauge, Metric};
use std::sync::Arc;

const COMPLETE: Metric = Metric::number(
    "quorate_ledger_copy_complete",
    "1 if the node's copy of the group's ledger is complete, otherwise 0; 0 on a follower.",
);
const MISSING: Metric = Metric::number(
    "quorate_ledger_copy_missing_records",
    "Number of records that the leader still has to write to the node's copy; 0 on a follower, and while the leader does not \
     know the copy.",
);

/// The gauges of the copies that the nodes have of a group's ledger. Clones are the same gauges.
#[derive(Clone, Debug, Default)]
pub(crate) struct CopyMeasures(Arc<[(Gauge, Gauge)]>);

impl CopyMeasures {
    /// Creates the gauges of a group, with one pair for each of these nodes.
    pub(crate) fn new(group: &str, nodes: &[Arc<str>]) -> Self {
        let gauges = |node: &Arc<str>| {
            let labels = [("group", group), ("node", &**node)];
            (COMPLETE.gauge(&labels), MISSING.gauge(&labels))
        };
        Self(nodes.iter().filter(|_| cfg!(feature = "metrics")).map(gauges).collect())
    }

    /// Reports whether each copy is complete, and how many records it lacks, in the order of the nodes.
    pub(crate) fn set(&self, copies: impl IntoIterator<Item = (bool, usize)>) {
        for ((complete, missing), copy) in self.0.iter().zip(copies) {
            complete.set_flag(copy.0);
            missing.set_count(copy.1);
        }
    }

    /// Sets the gauges to zero, when this process no longer leads.
    pub(crate) fn reset(&self) {
        self.set(self.0.iter().map(|_| (false, 0)));
    }
}
