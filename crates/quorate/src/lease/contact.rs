use crate::{
    lease::{inner::QuorumInner, mode::Mode, params::LeaseParams},
    node::{Resource, ResourceKind},
};

/// The nodes that a round asks at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contact {
    /// A majority, and the others only if they are needed. Only for locks, in a round for one of them.
    MajorityFirst,
    /// All nodes.
    All,
}

impl Contact {
    /// Returns the nodes that a round leaves out at first.
    pub(super) fn spared(
        self,
        inner: &QuorumInner,
        resources: &[Resource],
        params: &LeaseParams,
    ) -> Vec<usize> {
        match resources {
            // The last release of several readers must reach the waiters, and a majority of the nodes has to report it:
            // readers ask all nodes.
            [resource]
                if self == Self::MajorityFirst
                    && !inner.config().ask_all_nodes
                    && params.mode == Mode::Exclusive
                    && resource.kind() == ResourceKind::Lock =>
            {
                inner.pool().spared(resource)
            }
            _ => Vec::new(),
        }
    }
}
