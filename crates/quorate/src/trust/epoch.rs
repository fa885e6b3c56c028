use crate::node::NodeTime;

/// Which memory of a node a vote is given under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NodeEpoch {
    /// Changes whenever the node may have forgotten what it granted.
    pub epoch: u64,
    /// Which session with the node it came on. What a node says of where to go on means nothing on another: the server
    /// may have been restarted, though it remembers all.
    pub session: u64,
    /// When the memory began, by the node's clock.
    pub since: NodeTime,
    /// From when it votes, by the node's clock.
    pub votes_from: NodeTime,
}
