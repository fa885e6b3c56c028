use crate::node::NodeTime;

/// The memory that a node had when it gave a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NodeEpoch {
    /// Increases whenever the node may have lost its grants.
    pub epoch: u64,
    /// The number of the session with the node. A node's page cursor is valid within one session only: the server may have
    /// restarted in between, even if it remembers everything.
    pub session: u64,
    /// The time on the node's clock at which the memory began.
    pub since: NodeTime,
    /// The time on the node's clock from which its votes count.
    pub votes_from: NodeTime,
}
