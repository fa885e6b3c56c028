use crate::{
    config::majority,
    trust::{NodeState, NodeStatus},
};
use std::{ops::Deref, slice, vec};

/// The state of each node, in the order of the node list, as this worker last saw it. Dereferences to a slice
/// of [`NodeStatus`].
#[derive(Clone, Debug, PartialEq)]
pub struct QuorumStatus(Vec<NodeStatus>);

impl QuorumStatus {
    pub(crate) fn new(nodes: Vec<NodeStatus>) -> Self {
        Self(nodes)
    }

    /// Returns whether a majority of the nodes votes.
    pub fn has_majority(&self) -> bool {
        self.voting() >= self.needed()
    }

    /// Returns the number of nodes that vote.
    pub fn voting(&self) -> usize {
        self.0.iter().filter(|node| node.state == NodeState::Trusted).count()
    }

    /// Returns the number of nodes that make a majority.
    pub fn needed(&self) -> usize {
        majority(self.0.len())
    }

    /// Returns whether the first handshake with any node is still under way.
    pub(crate) fn is_connecting(&self) -> bool {
        self.0.iter().any(|node| node.state == NodeState::Connecting)
    }
}

impl From<QuorumStatus> for Vec<NodeStatus> {
    fn from(status: QuorumStatus) -> Self {
        status.0
    }
}

impl Deref for QuorumStatus {
    type Target = [NodeStatus];

    fn deref(&self) -> &[NodeStatus] {
        &self.0
    }
}

impl IntoIterator for QuorumStatus {
    type Item = NodeStatus;
    type IntoIter = vec::IntoIter<NodeStatus>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a QuorumStatus {
    type Item = &'a NodeStatus;
    type IntoIter = slice::Iter<'a, NodeStatus>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Cause;

    #[test]
    fn a_majority_of_voting_nodes_is_required() {
        let node = |state: &NodeState| NodeStatus {
            name: "a".into(),
            state: state.clone(),
            version: None,
            round_trip: None,
            round_trip_p99: None,
        };
        let (votes, away) = (NodeState::Trusted, NodeState::Unreachable(Cause::TimedOut));
        let status =
            |states: &[&NodeState]| QuorumStatus::new(states.iter().map(|state| node(state)).collect());
        assert!(status(&[&votes, &votes, &away]).has_majority());
        assert!(!status(&[&votes, &votes, &away, &away]).has_majority(), "two of four");
        assert!(!status(&[]).has_majority());
        let five = status(&[&votes, &away, &NodeState::Connecting, &away, &away]);
        assert_eq!((five.voting(), five.needed(), five.is_connecting()), (1, 3, true));
    }
}
