use quorate::node::Resource;

/// Builds the names of the keys of one deployment, which all have the deployment's prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn marker(&self) -> String {
        format!("{}node", self.prefix)
    }

    /// Returns a key under which nothing is ever stored. No other key has a brace directly after the prefix.
    pub(crate) fn never_stored(&self) -> String {
        format!("{}{{doctor}}", self.prefix)
    }

    /// Returns the key of the stamps. No resource has a key that begins with a brace.
    pub(crate) fn stamps(&self) -> String {
        format!("{{{}}}:stamps", self.marker())
    }

    /// Returns the key of a lock's holder. For a claim, returns the only key, which holds everything that is
    /// stored of the claim.
    pub(crate) fn lock<'a>(&'a self, resource: &'a Resource) -> [&'a str; 2] {
        [&self.prefix, resource.key()]
    }

    /// Returns the channel on which a server publishes releases of `resource`: the lock's key and `:freed`.
    /// The scripts build the same name.
    pub(crate) fn freed(&self, resource: &Resource) -> String {
        format!("{}{}:freed", self.prefix, resource.key())
    }

    /// Returns the channel to which every session with a waiter is subscribed. A script that releases leases
    /// first asks for the number of subscribers of this channel. If there are none, the script publishes
    /// nothing. The scripts build the same name.
    pub(crate) fn waiters(&self) -> String {
        format!("{}:waiters", self.marker())
    }

    pub(crate) fn fence<'a>(&'a self, resource: &'a Resource) -> [&'a str; 4] {
        ["{", &self.prefix, resource.key(), "}:fence"]
    }

    pub(crate) fn readers<'a>(&'a self, resource: &'a Resource) -> [&'a str; 4] {
        ["{", &self.prefix, resource.key(), "}:readers"]
    }

    pub(crate) fn queue<'a>(&'a self, resource: &'a Resource) -> [&'a str; 4] {
        ["{", &self.prefix, resource.key(), "}:queue"]
    }

    pub(crate) fn ledger(&self, group: &str) -> String {
        format!("{}ledger/{group}", self.prefix)
    }
}
