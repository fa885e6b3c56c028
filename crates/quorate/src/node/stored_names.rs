//! Lists the names that nodes store, for an operator who does not know them.

use crate::{node::Resource, setting_error::SettingError};
use std::{collections::BTreeSet, sync::Arc};

/// The kind of names to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesQuery {
    of: Kind,
    begin: Arc<str>,
    most: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Locks,
    /// The lock whose name is the beginning, and the locks below it.
    OneLock,
    Claims,
}

/// Some of the names that a node stores. A name may be listed although its lease has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredNames {
    /// The keys of the resources, without the prefix.
    pub keys: BTreeSet<Arc<str>>,
    /// True if the node stores more names than the query permits.
    pub is_cut: bool,
}

impl NamesQuery {
    /// Lists at most `most` locks and leaderships.
    pub fn locks(most: usize) -> Self {
        Self { of: Kind::Locks, begin: "".into(), most }
    }

    /// Lists the lock or leadership called `name`, and at most `most` locks below it, such as its slots: `name/slot-1`.
    pub fn one_lock(name: &str, most: usize) -> Self {
        Self { of: Kind::OneLock, begin: name.into(), most }
    }

    /// Lists at most `most` messages of the set of claims called `set`.
    ///
    /// # Errors
    /// [`SettingError`] if the name of the set cannot be used.
    pub fn claims(set: &str, most: usize) -> Result<Self, SettingError> {
        Resource::claim(set, "x")?;
        Ok(Self { of: Kind::Claims, begin: format!("claim/{set}/").into(), most })
    }

    /// Returns the text with which every listed key begins.
    pub fn begin(&self) -> &str {
        &self.begin
    }

    /// Returns the resource of a key that a node stores; `None` if the query does not list it.
    pub fn resource(&self, key: &str) -> Option<Resource> {
        let below = key.strip_prefix(&*self.begin)?;
        match self.of {
            Kind::Claims => {
                return Resource::stored_claim(self.begin.strip_prefix("claim/")?.trim_end_matches('/'), key);
            }
            Kind::OneLock if !below.is_empty() && !below.starts_with('/') => return None,
            Kind::OneLock | Kind::Locks => {}
        }
        let found = match key.strip_prefix("election/") {
            Some(group) => Resource::election(group),
            None => Resource::lock(key),
        };
        // A key of another program or of a ledger is not the name of a resource.
        found.ok()
    }

    /// Adds a key to the names that were found. Returns false once no more names are permitted.
    pub fn add(&self, names: &mut StoredNames, key: &str) -> bool {
        if self.resource(key).is_some() && !names.keys.contains(key) {
            if names.keys.len() >= self.most {
                names.is_cut = true;
                return false;
            }
            names.keys.insert(key.into());
        }
        true
    }

    /// Returns the resources that any of the nodes stores, and whether there may be more of them.
    pub fn merge(&self, nodes: &[StoredNames]) -> (Vec<Resource>, bool) {
        let keys: BTreeSet<&Arc<str>> = nodes.iter().flat_map(|node| &node.keys).collect();
        let is_cut = nodes.iter().any(|node| node.is_cut) || keys.len() > self.most;
        (keys.into_iter().take(self.most).filter_map(|key| self.resource(key)).collect(), is_cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(query: &NamesQuery, keys: &[&str]) -> StoredNames {
        let mut names = StoredNames::default();
        for key in keys {
            if !query.add(&mut names, key) {
                break;
            }
        }
        names
    }

    fn keys(names: &StoredNames) -> Vec<&str> {
        names.keys.iter().map(|key| &**key).collect()
    }

    #[test]
    fn locks_and_leaderships_are_listed_and_other_keys_are_not() {
        let stored = [
            "backup",
            "a/b",
            "election/billing",
            "claim/orders/1",
            "ledger/billing",
            "node",
            "resign/election/billing",
            "{x}:fence",
            "{x}:queue",
            "line\nend",
            "",
        ];
        let names = found(&NamesQuery::locks(9), &stored);
        assert_eq!((keys(&names), names.is_cut), (vec!["a/b", "backup", "election/billing"], false));
        let names = found(&NamesQuery::one_lock("a", 2), &["ab", "b", "a", "a/b", "election/a", "a b"]);
        assert_eq!((keys(&names), names.is_cut), (vec!["a", "a/b"], false));
    }

    #[test]
    fn the_messages_of_one_set_are_listed() {
        let query = NamesQuery::claims("orders", 9).unwrap();
        assert_eq!(query.begin(), "claim/orders/");
        let stored = [
            "claim/orders/1",
            "claim/orders/a/b",
            "claim/orders2/1",
            "claim/orders/",
            "backup",
            "claim/g{runs}/1",
        ];
        assert_eq!(keys(&found(&query, &stored)), ["claim/orders/1", "claim/orders/a/b"]);
        assert!(NamesQuery::claims("a/b", 9).is_err());
    }

    #[test]
    fn a_query_is_limited_and_the_nodes_are_merged() {
        let query = NamesQuery::locks(2);
        let one = found(&query, &["a", "b", "a", "b"]);
        assert_eq!((keys(&one), one.is_cut), (vec!["a", "b"], false));
        let cut = found(&query, &["a", "b", "c"]);
        assert_eq!((keys(&cut), cut.is_cut), (vec!["a", "b"], true));
        let names = |merged: (Vec<Resource>, bool)| {
            (merged.0.iter().map(|found| found.key().to_owned()).collect::<Vec<_>>(), merged.1)
        };
        let other = found(&query, &["b", "c"]);
        assert_eq!(
            names(query.merge(std::slice::from_ref(&one))),
            (vec!["a".to_owned(), "b".to_owned()], false)
        );
        assert_eq!(names(query.merge(&[one, other])), (vec!["a".to_owned(), "b".to_owned()], true));
        assert_eq!(query.merge(&[]), (Vec::new(), false));
    }
}
