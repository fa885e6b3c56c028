use crate::{
    env::BootTime,
    node::Cause,
    trust::{QuarantineReason, VoteRejection},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// The largest number of different causes that are logged for one node before the node votes again.
const LOGGED_MAX: usize = 16;

/// The state of one node, as this worker sees it.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeState {
    /// The first handshake is under way.
    Connecting,
    /// The node votes.
    Trusted,
    /// The node is reachable, and votes once this worker's boot clock shows `until`.
    Quarantined {
        /// The end of the quarantine.
        until: BootTime,
        /// The reason for the quarantine.
        why: VoteRejection,
    },
    /// The node is reachable, but its votes must not count.
    Refused(VoteRejection),
    /// There is no connection to the node.
    Unreachable(Cause),
}

/// The status of one node, as this worker sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStatus {
    /// The node's name: its address, without secrets.
    pub name: Arc<str>,
    /// The node's state. [`NodeStatus::votes`] and [`NodeStatus::reason`] describe it.
    #[doc(hidden)]
    pub state: NodeState,
    /// The server's version, once a handshake has reported it.
    pub version: Option<Arc<str>>,
    /// The duration of the last round trip.
    pub round_trip: Option<Duration>,
    /// An estimate of the 99th percentile of the round trips: their smoothed mean and four mean deviations.
    pub round_trip_p99: Option<Duration>,
}

impl NodeStatus {
    /// Returns whether the node votes.
    pub fn votes(&self) -> bool {
        self.state == NodeState::Trusted
    }

    /// Returns the reason why the node does not vote, as text. `None` if it votes.
    pub fn reason(&self) -> Option<String> {
        Some(match &self.state {
            NodeState::Trusted => return None,
            NodeState::Connecting => "no handshake yet".to_owned(),
            NodeState::Quarantined { why, .. } | NodeState::Refused(why) => why.to_string(),
            NodeState::Unreachable(cause) => cause.to_string(),
        })
    }

    /// Returns whether the node is not connected, or its first handshake is under way.
    pub fn is_away(&self) -> bool {
        matches!(self.state, NodeState::Connecting | NodeState::Unreachable(_))
    }

    /// Returns the end of the node's quarantine on this worker's boot clock. From then on the node votes,
    /// without any action of an operator. Returns `None` if the node is not in quarantine.
    pub fn quarantined_until(&self) -> Option<BootTime> {
        match self.state {
            NodeState::Quarantined { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Returns whether only an operator can make the node vote.
    pub fn is_permanent(&self) -> bool {
        match &self.state {
            NodeState::Trusted | NodeState::Connecting => false,
            NodeState::Quarantined { why, .. } | NodeState::Refused(why) => why.is_permanent(),
            NodeState::Unreachable(cause) => cause.is_permanent(),
        }
    }
}

/// Returns whether the node is in quarantine because it has no marker yet.
pub(super) fn is_new(state: &NodeState) -> bool {
    let NodeState::Quarantined { why: VoteRejection::Quarantined { reason, .. }, .. } = state else {
        return false;
    };
    *reason == QuarantineReason::Unmarked
}

/// Logs the state of a node, unless the same cause was logged since the node last voted. So a node whose
/// state changes back and forth is logged once for each cause. If new nodes are in quarantine, the first of
/// them is logged as a warning that says how to skip the wait. The other new nodes are logged at INFO.
pub(super) fn log_state(name: &str, state: &NodeState, is_first_new: bool, logged: &mut BTreeSet<String>) {
    let cause = match state {
        NodeState::Connecting | NodeState::Unreachable(Cause::Stopped) => return,
        NodeState::Trusted => {
            logged.clear();
            return tracing::info!(node = name, "node votes");
        }
        // Only the reason is compared. The full text of `why` contains the remaining time of the quarantine,
        // which differs each time, so the text would always look new.
        NodeState::Quarantined { why: VoteRejection::Quarantined { reason, .. }, .. } => {
            format!("{reason:?}")
        }
        NodeState::Quarantined { why, .. } | NodeState::Refused(why) => why.to_string(),
        NodeState::Unreachable(cause) => cause.to_string(),
    };
    if logged.len() >= LOGGED_MAX || !logged.insert(cause) {
        return;
    }
    match state {
        NodeState::Quarantined { why: VoteRejection::Quarantined { remaining, .. }, .. } if is_first_new => {
            tracing::warn!(
                node = name,
                "new nodes do not vote for {remaining:.0?}, since a new node cannot be distinguished from one that lost its memory; if \
                 no worker has used them before, skip this with `quorate nodes trust`, Quorum::trust_nodes, or (for \
                 development and tests) trust_new_nodes"
            );
        }
        NodeState::Quarantined { why, .. } if is_new(state) => {
            tracing::info!(node = name, "node does not vote yet: {why}");
        }
        NodeState::Quarantined { why, .. } => tracing::warn!(node = name, "node does not vote yet: {why}"),
        NodeState::Refused(why) => tracing::error!(node = name, "node has no vote: {why}"),
        NodeState::Unreachable(cause) => tracing::warn!(node = name, "node is unreachable: {cause}"),
        NodeState::Connecting | NodeState::Trusted => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_noted_once_until_the_node_votes() {
        let mut logged = BTreeSet::new();
        let away = NodeState::Unreachable(Cause::TimedOut);
        let waits = |seconds| NodeState::Quarantined {
            until: BootTime::default(),
            why: VoteRejection::Quarantined {
                reason: QuarantineReason::Unmarked,
                remaining: Duration::from_secs(seconds),
            },
        };
        log_state("a", &waits(30), true, &mut logged);
        log_state("a", &away, false, &mut logged);
        log_state("a", &waits(20), true, &mut logged);
        assert_eq!(logged.len(), 2, "the time that remains makes no other cause");
        log_state("a", &NodeState::Trusted, false, &mut logged);
        assert!(logged.is_empty());
        assert!(is_new(&waits(1)) && !is_new(&away));
    }
}
