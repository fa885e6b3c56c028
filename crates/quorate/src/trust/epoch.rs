use crate::node::{Incarnation, NodeTime};

/// The memory epoch of a node to which a vote belongs. When a node may have lost its grants, a new epoch
/// begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NodeEpoch {
    /// A number that increases whenever the node may have lost its grants.
    pub epoch: u64,
    /// The number of the session with the node. A cursor into a ledger's pages is valid within one session
    /// only: between two sessions the server may have restarted, even if it has lost nothing.
    pub session: u64,
    /// The id of the memory, as the node's marker has it.
    pub incarnation: Incarnation,
    /// The time on the node's clock at which the epoch began.
    pub since: NodeTime,
    /// The time on the node's clock from which its votes count.
    pub votes_from: NodeTime,
}
