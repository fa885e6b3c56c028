use super::connection::Connection;
use quorate::node::Resource;
use std::sync::{Arc, Weak};

/// The connections of a server, as the subscribers of released leases. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Listeners(Arc<[Weak<Connection>]>);

impl Listeners {
    pub(super) fn new(connections: &[Weak<Connection>]) -> Self {
        Self(connections.into())
    }

    /// Returns the number of connections on which a client waits for any resource.
    pub fn sessions(&self) -> usize {
        self.connections().filter(|connection| connection.listens_to_any()).count()
    }

    /// Returns the number of connections on which a client waits for `resource`.
    pub fn of(&self, resource: &Resource) -> usize {
        self.connections().filter(|connection| connection.listens(resource)).count()
    }

    fn connections(&self) -> impl Iterator<Item = Arc<Connection>> {
        self.0.iter().filter_map(Weak::upgrade)
    }
}
