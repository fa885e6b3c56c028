use crate::node::{Listen, Resource};
use std::collections::{BTreeSet, VecDeque};

/// The resources for whose releases callers wait, and the changes of this set that the node's session has not
/// been sent yet.
#[derive(Debug, Default)]
pub(crate) struct ListenSet {
    resources: BTreeSet<Resource>,
    /// Changes to send to the session, in order. Empty without a session, since a new session subscribes to all
    /// resources again.
    changes: VecDeque<Listen>,
}

impl ListenSet {
    /// Adds or removes a resource. If a session is open, queues the change for it.
    pub(crate) fn change(&mut self, listen: Listen, is_up: bool) {
        let changed = match &listen {
            Listen::Begin(resource) => self.resources.insert(resource.clone()),
            Listen::End(resource) => self.resources.remove(resource),
        };
        if changed && is_up {
            self.changes.push_back(listen);
        }
    }

    /// Queues the changes by which a new session subscribes to every resource.
    pub(crate) fn connected(&mut self) {
        self.changes = self.resources.iter().cloned().map(Listen::Begin).collect();
    }

    /// Drops the changes for a session that has ended.
    pub(crate) fn disconnected(&mut self) {
        self.changes.clear();
    }

    pub(crate) fn next_change(&mut self) -> Option<Listen> {
        self.changes.pop_front()
    }

    /// Returns whether a caller waits for `resource`. Reports about any other resource are ignored.
    pub(crate) fn contains(&self, resource: &Resource) -> bool {
        self.resources.contains(resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(listening: &mut ListenSet) -> Vec<Listen> {
        std::iter::from_fn(|| listening.next_change()).collect()
    }

    #[test]
    fn a_session_gets_every_change_and_a_new_session_gets_every_resource() {
        let [a, b] = ["a", "b"].map(|name| Resource::lock(name).unwrap());
        let mut listening = ListenSet::default();
        listening.change(Listen::Begin(b.clone()), false);
        assert_eq!(changes(&mut listening), [], "there is no session");
        listening.connected();
        listening.change(Listen::Begin(a.clone()), true);
        listening.change(Listen::Begin(a.clone()), true);
        assert_eq!(changes(&mut listening), [Listen::Begin(b.clone()), Listen::Begin(a.clone())]);
        listening.change(Listen::End(b.clone()), true);
        listening.change(Listen::End(b.clone()), true);
        assert!(listening.contains(&a) && !listening.contains(&b));
        listening.disconnected();
        assert_eq!(changes(&mut listening), [], "the session has ended");
        listening.connected();
        assert_eq!(changes(&mut listening), [Listen::Begin(a)]);
    }
}
