use crate::node::Resource;
use std::sync::Arc;

/// A key or a channel, in the parts of which its name consists.
pub(crate) type Key<'a> = [&'a str; 4];

/// Builds the names of the keys of one deployment, which all have the deployment's prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Arc<str>,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn marker(&self) -> Key<'_> {
        ["", &self.prefix, "node", ""]
    }

    /// Returns a key under which nothing is ever stored. No other key has a brace directly after the prefix.
    pub(crate) fn never_stored(&self) -> Key<'_> {
        ["", &self.prefix, "{doctor}", ""]
    }

    /// Returns the key of the stamps. No resource has a key that begins with a brace.
    pub(crate) fn stamps(&self) -> Key<'_> {
        ["{", &self.prefix, "node", "}:stamps"]
    }

    /// Returns the key of a lock's holder. For a claim, returns the only key, which holds everything that is
    /// stored of the claim.
    pub(crate) fn lock<'a>(&'a self, resource: &'a Resource) -> Key<'a> {
        ["", &self.prefix, resource.key(), ""]
    }

    /// Returns the channel on which a server publishes releases of `resource`: the lock's key and `:freed`.
    /// The scripts build the same name.
    pub(crate) fn freed<'a>(&'a self, resource: &'a Resource) -> Key<'a> {
        ["", &self.prefix, resource.key(), ":freed"]
    }

    /// Returns the channel to which every session with a waiter is subscribed. A script that releases leases
    /// first asks for the number of subscribers of this channel. If there are none, the script publishes
    /// nothing. The scripts build the same name.
    pub(crate) fn waiters(&self) -> Key<'_> {
        ["", &self.prefix, "node", ":waiters"]
    }

    pub(crate) fn fence<'a>(&'a self, resource: &'a Resource) -> Key<'a> {
        ["{", &self.prefix, resource.key(), "}:fence"]
    }

    pub(crate) fn readers<'a>(&'a self, resource: &'a Resource) -> Key<'a> {
        ["{", &self.prefix, resource.key(), "}:readers"]
    }

    pub(crate) fn queue<'a>(&'a self, resource: &'a Resource) -> Key<'a> {
        ["{", &self.prefix, resource.key(), "}:queue"]
    }

    pub(crate) fn ledger<'a>(&'a self, group: &'a str) -> Key<'a> {
        ["", &self.prefix, "ledger/", group]
    }
}
