use crate::node::{Listen, Resource};
use std::collections::{BTreeSet, VecDeque};

/// Which releases one node is to tell of, and what of that its session has not been told yet.
#[derive(Debug, Default)]
pub(crate) struct ListenSet {
    all: BTreeSet<Resource>,
    /// In order. Empty while there is no session: a new one is told everything.
    untold: VecDeque<Listen>,
}

impl ListenSet {
    /// Takes up a wish; the session, where there is one, is to be told of it.
    pub(crate) fn note(&mut self, listen: Listen, is_up: bool) {
        let changed = match &listen {
            Listen::Begin(resource) => self.all.insert(resource.clone()),
            Listen::End(resource) => self.all.remove(resource),
        };
        if changed && is_up {
            self.untold.push_back(listen);
        }
    }

    /// A new session knows of nothing.
    pub(crate) fn met(&mut self) {
        self.untold = self.all.iter().cloned().map(Listen::Begin).collect();
    }

    /// The session is over.
    pub(crate) fn parted(&mut self) {
        self.untold.clear();
    }

    /// What the session is to be told next.
    pub(crate) fn next_untold(&mut self) -> Option<Listen> {
        self.untold.pop_front()
    }

    /// Whether anybody here waits for `resource`: what else a node pushes is noise.
    pub(crate) fn has(&self, resource: &Resource) -> bool {
        self.all.contains(resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(listening: &mut ListenSet) -> Vec<Listen> {
        std::iter::from_fn(|| listening.next_untold()).collect()
    }

    #[test]
    fn a_session_is_told_of_every_change_and_a_new_one_of_everything() {
        let [a, b] = ["a", "b"].map(|name| Resource::lock(name).unwrap());
        let mut listening = ListenSet::default();
        listening.note(Listen::Begin(b.clone()), false);
        assert_eq!(told(&mut listening), [], "nobody to tell");
        listening.met();
        listening.note(Listen::Begin(a.clone()), true);
        listening.note(Listen::Begin(a.clone()), true);
        assert_eq!(told(&mut listening), [Listen::Begin(b.clone()), Listen::Begin(a.clone())]);
        listening.note(Listen::End(b.clone()), true);
        listening.note(Listen::End(b.clone()), true);
        assert!(listening.has(&a) && !listening.has(&b));
        listening.parted();
        assert_eq!(told(&mut listening), [], "the session that was to be told is gone");
        listening.met();
        assert_eq!(told(&mut listening), [Listen::Begin(a)]);
    }
}
