use crate::{
    lease::{inner::QuorumInner, mode::Mode, params::LeaseParams},
    node::{Resource, ResourceKind},
};

/// The nodes that a round asks at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contact {
    /// A majority. The others are asked only if they are needed. This is possible only in a round for a single
    /// lock.
    MajorityFirst,
    /// All nodes.
    All,
}

impl Contact {
    /// Returns the nodes that a round does not ask at first.
    pub(super) fn spared(
        self,
        inner: &QuorumInner,
        resources: &[Resource],
        params: &LeaseParams,
    ) -> Vec<usize> {
        match resources {
            // Readers ask all nodes. When the last of several readers releases the lock, a majority of the
            // nodes must report the release to the waiters. If the readers had different majorities, too few
            // nodes might report it.
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
