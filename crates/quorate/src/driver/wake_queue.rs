use crate::node::{Freed, Owner, Resource};
use std::collections::{BTreeMap, VecDeque};

/// How many releases of one resource are counted at a time, the oldest given up first: more are under way
/// only where nodes make them up.
const RELEASES_MAX: usize = 16;

/// Who of this process waits for what, and whom a release wakes. Pure; `W` rings a waiter.
///
/// A lease has been released once a majority of nodes have told so of *one* owner. Fewer prove nothing: attempts that
/// lost free what they were granted, on a minority, and one node may say anything. Each release wakes one
/// waiter, the longest there: of several that came at once none might win. Who is woken and then goes away
/// hands on what it was woken for.
#[derive(Debug)]
pub(crate) struct WakeQueue<W> {
    majority: usize,
    next: u64,
    places: BTreeMap<Resource, ResourceQueue<W>>,
}

#[derive(Debug)]
struct ResourceQueue<W> {
    /// In the order in which they came.
    waiters: VecDeque<Waiter<W>>,
    releases: VecDeque<Release>,
}

#[derive(Debug)]
struct Waiter<W> {
    id: u64,
    notify: W,
    woken: Option<Wake>,
}

/// What woke a waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wake {
    /// Who was freed.
    pub(crate) owner: Owner,
    /// How many workers were told: the median of what the nodes say.
    pub(crate) told: u32,
}

/// Who was freed, and where.
#[derive(Debug)]
struct Release {
    owner: Owner,
    /// The nodes, and how many workers each told.
    nodes: Vec<(usize, u32)>,
}

/// What is to be done once a waiter has gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeaveResult<W> {
    /// Ring it: it inherits a wake.
    pub(crate) wake: Option<W>,
    /// Nobody waits for the resource any more.
    pub(crate) last: bool,
}

impl<W: Clone> WakeQueue<W> {
    pub(crate) fn new(majority: usize) -> Self {
        Self { majority, next: 0, places: BTreeMap::new() }
    }

    /// Somebody begins to wait. Gives its number, and whether it is the first to wait for that.
    pub(crate) fn join(&mut self, resource: &Resource, notify: W) -> (u64, bool) {
        let id = self.next;
        self.next += 1;
        let first = !self.places.contains_key(resource);
        let place = self
            .places
            .entry(resource.clone())
            .or_insert_with(|| ResourceQueue { waiters: VecDeque::new(), releases: VecDeque::new() });
        place.waiters.push_back(Waiter { id, notify, woken: None });
        (id, first)
    }

    /// A node has told of a release. Gives who is to be rung.
    pub(crate) fn heard(&mut self, node: usize, freed: &Freed, told: u32) -> Option<W> {
        let place = self.places.get_mut(&freed.resource)?;
        let nodes = place.nodes_that_freed(&freed.owner);
        if nodes.iter().any(|(other, _)| *other == node) {
            // All readers are told as one owner: a node that tells again tells of later ones.
            if freed.owner.as_str() != Owner::READERS {
                return None;
            }
            nodes.clear();
        }
        nodes.push((node, told));
        // Not again for those that tell later.
        if nodes.len() != self.majority {
            return None;
        }
        let mut told: Vec<u32> = nodes.iter().map(|(_, told)| *told).collect();
        told.sort_unstable();
        let told = told[told.len() / 2];
        place.wake_one(Wake { owner: freed.owner.clone(), told })
    }

    /// What has woken `id` since it last asked, if anything has. Who attempts asks before, for the attempt finds
    /// what it was woken for.
    pub(crate) fn take_woken(&mut self, resource: &Resource, id: u64) -> Option<Wake> {
        let place = self.places.get_mut(resource)?;
        place.waiters.iter_mut().find(|waiter| waiter.id == id)?.woken.take()
    }

    /// `id` was let in beside others: gives the next that is to be rung.
    pub(crate) fn hand_on(&mut self, resource: &Resource, id: u64) -> Option<W> {
        let place = self.places.get_mut(resource)?;
        let next = place.waiters.iter_mut().find(|waiter| waiter.id != id && waiter.woken.is_none())?;
        next.woken = Some(Wake { owner: Owner::from_node(Owner::READERS), told: 1 });
        Some(next.notify.clone())
    }

    /// `id` waits no more.
    pub(crate) fn leave(&mut self, resource: &Resource, id: u64) -> LeaveResult<W> {
        let nothing = LeaveResult { wake: None, last: false };
        let Some(place) = self.places.get_mut(resource) else { return nothing };
        let Some(at) = place.waiters.iter().position(|waiter| waiter.id == id) else { return nothing };
        let woken = place.waiters.remove(at).and_then(|waiter| waiter.woken);
        let wake = woken.and_then(|wake| place.wake_one(wake));
        let last = place.waiters.is_empty();
        if last {
            self.places.remove(resource);
        }
        LeaveResult { wake, last }
    }
}

impl<W: Clone> ResourceQueue<W> {
    fn nodes_that_freed(&mut self, owner: &Owner) -> &mut Vec<(usize, u32)> {
        let at = self.releases.iter().position(|release| release.owner == *owner).unwrap_or_else(|| {
            if self.releases.len() == RELEASES_MAX {
                self.releases.pop_front();
            }
            self.releases.push_back(Release { owner: owner.clone(), nodes: Vec::new() });
            self.releases.len() - 1
        });
        &mut self.releases[at].nodes
    }

    /// Who was woken before and has not attempted yet may not be running: another one then.
    fn wake_one(&mut self, wake: Wake) -> Option<W> {
        let waiter = self.waiters.iter_mut().find(|waiter| waiter.woken.is_none())?;
        waiter.woken = Some(wake);
        Some(waiter.notify.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str) -> Resource {
        Resource::lock(name).unwrap()
    }

    fn freed(owner: u64) -> Freed {
        Freed { resource: resource("r"), owner: Owner::sign("w", owner, 0) }
    }

    fn wake(owner: u64) -> Wake {
        Wake { owner: freed(owner).owner, told: 3 }
    }

    /// A bench of five nodes with these waiting for `r`.
    fn wake_queue(bells: &[char]) -> WakeQueue<char> {
        let mut wake_queue = WakeQueue::new(3);
        for (at, notify) in bells.iter().enumerate() {
            assert_eq!(wake_queue.join(&resource("r"), *notify), (at as u64, at == 0));
        }
        wake_queue
    }

    fn heard(wake_queue: &mut WakeQueue<char>, nodes: &[usize], owner: u64) -> Vec<char> {
        nodes.iter().filter_map(|node| wake_queue.heard(*node, &freed(owner), 2 + *node as u32)).collect()
    }

    #[test]
    fn readers_after_readers_are_told_as_one_owner_and_wake_each_time() {
        let mut wake_queue = wake_queue(&['a']);
        let readers = Freed { resource: resource("r"), owner: Owner::from_node(Owner::READERS) };
        for _ in 0..3 {
            let rung: Vec<char> = (0..5).filter_map(|node| wake_queue.heard(node, &readers, 1)).collect();
            assert_eq!(rung, ['a']);
            assert!(wake_queue.take_woken(&resource("r"), 0).is_some());
        }
    }

    #[test]
    fn who_is_let_in_beside_others_hands_on() {
        let mut wake_queue = wake_queue(&['a', 'b', 'c']);
        assert_eq!(wake_queue.hand_on(&resource("r"), 0), Some('b'));
        assert_eq!(wake_queue.hand_on(&resource("r"), 1), Some('a'), "who has been rung is rung once");
        assert_eq!(wake_queue.hand_on(&resource("r"), 1), Some('c'));
        assert_eq!(wake_queue.hand_on(&resource("r"), 1), None);
    }

    #[test]
    fn a_majority_that_freed_one_owner_wakes_one_waiter_once() {
        let mut wake_queue = wake_queue(&['a', 'b']);
        assert_eq!(heard(&mut wake_queue, &[0, 0, 1, 1, 0], 1), []);
        assert_eq!(heard(&mut wake_queue, &[4], 1), ['a']);
        assert_eq!(heard(&mut wake_queue, &[2, 3, 4], 1), [], "the rest tells nothing new");
        assert_eq!(wake_queue.take_woken(&resource("r"), 0), Some(wake(1)), "the median of 2, 3 and 6");
        assert_eq!(wake_queue.take_woken(&resource("r"), 0), None);
        assert_eq!(heard(&mut wake_queue, &[0, 1, 2], 2), ['a'], "the longest there, if it still waits");
    }

    #[test]
    fn releases_of_attempts_that_lost_add_up_to_nothing() {
        let mut wake_queue = wake_queue(&['a']);
        assert_eq!(heard(&mut wake_queue, &[0, 1], 1), []);
        assert_eq!(heard(&mut wake_queue, &[2, 3], 2), []);
        assert_eq!(heard(&mut wake_queue, &[4], 3), []);
    }

    #[test]
    fn one_node_that_makes_releases_up_wakes_nobody_and_fills_no_memory() {
        let mut wake_queue = wake_queue(&['a']);
        for owner in 0..100_000 {
            assert_eq!(wake_queue.heard(2, &freed(owner), u32::MAX), None);
        }
        assert!(wake_queue.places[&resource("r")].releases.len() <= RELEASES_MAX);
        assert_eq!(heard(&mut wake_queue, &[0, 1, 3], 7), ['a'], "what the others tell still counts");
        let elsewhere = Freed { resource: resource("s"), owner: Owner::sign("w", 0, 0) };
        assert_eq!((0..3).filter_map(|node| wake_queue.heard(node, &elsewhere, 1)).count(), 0);
        assert!(!wake_queue.places.contains_key(&resource("s")), "nobody waits for that");
    }

    #[test]
    fn who_is_woken_and_goes_hands_it_on_and_the_last_is_told() {
        let mut wake_queue = wake_queue(&['a', 'b', 'c']);
        assert_eq!(heard(&mut wake_queue, &[0, 1, 2], 1), ['a']);
        assert_eq!(wake_queue.leave(&resource("r"), 0), LeaveResult { wake: Some('b'), last: false });
        assert!(wake_queue.take_woken(&resource("r"), 1).is_some());
        assert_eq!(
            wake_queue.leave(&resource("r"), 1),
            LeaveResult { wake: None, last: false },
            "it attempted"
        );
        assert_eq!(wake_queue.leave(&resource("r"), 1), LeaveResult { wake: None, last: false }, "once");
        assert_eq!(heard(&mut wake_queue, &[0, 1, 2], 2), ['c']);
        assert_eq!(wake_queue.leave(&resource("r"), 2), LeaveResult { wake: None, last: true });
        assert!(wake_queue.places.is_empty(), "nothing is kept");
        assert_eq!(wake_queue.join(&resource("r"), 'd'), (3, true));
        assert_eq!(heard(&mut wake_queue, &[3], 2), [], "what was told before is forgotten");
    }

    #[test]
    fn who_was_woken_and_does_not_run_is_passed_by_at_the_next_release() {
        let mut wake_queue = wake_queue(&['a', 'b']);
        assert_eq!(heard(&mut wake_queue, &[0, 1, 2], 1), ['a']);
        assert_eq!(heard(&mut wake_queue, &[0, 1, 2], 2), ['b']);
        assert_eq!(heard(&mut wake_queue, &[0, 1, 2], 3), [], "both have been");
    }
}
