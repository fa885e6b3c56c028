//! The node lists of workers. In most seeds every worker has the same list. In seeds in which the node set is
//! replaced, there is an old list and a new one.

use super::scenario::NODES;
use std::sync::Arc;

/// The node list of a worker's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeList {
    /// True if this is the new list of a seed in which the node set is replaced.
    pub is_new: bool,
    /// The indices of the servers.
    servers: Arc<[usize]>,
}

impl Default for NodeList {
    /// Returns the list of the servers `n0` to `n4`.
    fn default() -> Self {
        Self { is_new: false, servers: (0..NODES).collect() }
    }
}

impl NodeList {
    /// Returns a list of the servers with these indices.
    pub fn new(is_new: bool, servers: impl IntoIterator<Item = usize>) -> Self {
        Self { is_new, servers: servers.into_iter().collect() }
    }

    /// Returns the indices of the servers.
    pub fn servers(&self) -> &[usize] {
        &self.servers
    }

    /// Returns the number of these servers that is a majority.
    pub fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    /// Returns `true` if the server with this index is in the list.
    pub fn has(&self, server: usize) -> bool {
        self.servers.contains(&server)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = Arc<str>> {
        self.servers.iter().map(|server| name(*server).into())
    }
}

pub(super) fn name(server: usize) -> String {
    format!("n{server}")
}
