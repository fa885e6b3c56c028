use crate::{
    config::majority,
    node::{Owner, ReleasedLease, Resource},
};
use std::collections::{BTreeMap, VecDeque};

/// The maximum number of releases of one resource that are counted at the same time. If there are more, the
/// oldest is dropped, which at worst delays a waiter. There are more only under heavy contention, or if a node
/// reports releases that did not happen.
const RELEASES_MAX: usize = 16;

/// The queues of this process's waiters, one for each resource. This type decides which waiter a release
/// wakes. The type performs no I/O: it returns a `W`, with which the caller notifies the waiter.
///
/// A lease counts as released once a majority of the nodes has reported a release by *one* owner. Fewer
/// reports prove nothing: an attempt that failed releases the grants that it had on a minority of the nodes,
/// and a single faulty node may report a release that did not happen. Each release wakes only one waiter: the
/// first in the order of [`WakeOrder`] that has not been woken yet. If several waiters attempted at once, they might
/// split the votes, and none would win. If a waiter was woken and then leaves, without the lease and without an answer that
/// names another holder, the next waiter is woken instead.
///
/// A lease on a bare majority is released only on the nodes of that majority, so a single lost report would
/// hide its release. If a waiter was refused by exactly a majority, its lease may be such a lease, so all reports but
/// one are enough: the nodes that reported and the nodes that never held the lease are a majority. If the lease was on
/// more nodes, the attempt that follows may come before its release on these. Then the lease refuses the attempt once
/// more, and the release wakes a waiter again as soon as a majority has reported it.
#[derive(Debug)]
pub(crate) struct WakeQueue<W> {
    nodes: usize,
    next: u64,
    queues: BTreeMap<Resource, ResourceQueue<W>>,
    majority_reported: bool,
}

/// The order in which releases wake the waiters of one resource. The waiters of equal order are woken as they arrived.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WakeOrder {
    /// For a waiter in the nodes' queues: the begin of its wait, in microseconds of its wall clock, and its ticket. The
    /// nodes grant the lease in this order, and while one such waiter exists, to no other.
    Queued(u64, Owner),
    Arrival,
}

#[derive(Debug)]
struct ResourceQueue<W> {
    /// The waiters, in the order in which they are woken.
    waiters: VecDeque<Waiter<W>>,
    releases: VecDeque<Release>,
    /// The number of releases that have been reported, each counted once.
    turns: u64,
}

#[derive(Debug)]
struct Waiter<W> {
    id: u64,
    order: WakeOrder,
    notify: W,
    wake: Option<Wake>,
    /// The wake that this waiter used last, until the waiter has acquired the lease or knows its new holder.
    used: Option<Wake>,
    /// The owner of a lease on a bare majority that refused the waiter's last attempt.
    refused_by: Option<Owner>,
}

/// The release that woke a waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wake {
    /// The former owner.
    pub(crate) owner: Owner,
    /// The median, over the nodes, of the number of sessions to which a node sent the report of the release.
    pub(crate) notified: u32,
}

/// The reports of one owner's release.
#[derive(Debug)]
struct Release {
    owner: Owner,
    /// The nodes that reported the release, each with the number of sessions that it notified.
    nodes: Vec<(usize, u32)>,
    /// The number of reports that had arrived when the release woke a waiter. 0 before.
    woken_by: usize,
    /// True if fewer reports than a majority had woken a waiter, and then a waiter was refused by the same lease.
    needs_majority: bool,
}

/// The actions that the caller must take after a waiter has left the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeaveResult<W> {
    /// The next waiter, which the caller must notify. Set if the waiter that left had been woken, and does not know
    /// the present holder.
    pub(crate) wake: Option<W>,
    /// True if the waiter that left was the last one for the resource.
    pub(crate) last: bool,
}

impl<W: Clone> WakeQueue<W> {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes, next: 0, queues: BTreeMap::new(), majority_reported: false }
    }

    /// Adds a waiter. Returns its id, and whether it is the only waiter for the resource.
    pub(crate) fn join(&mut self, resource: &Resource, order: WakeOrder, notify: W) -> (u64, bool) {
        let id = self.next;
        self.next += 1;
        let first = !self.queues.contains_key(resource);
        let queue = self.queues.entry(resource.clone()).or_insert_with(|| ResourceQueue {
            waiters: VecDeque::new(),
            releases: VecDeque::new(),
            turns: 0,
        });
        let at = queue.waiters.partition_point(|waiter| waiter.order <= order);
        queue.waiters.insert(at, Waiter { id, order, notify, wake: None, used: None, refused_by: None });
        (id, first)
    }

    /// Counts a node's report of a release. The node sent the report to `notified` sessions. Returns the waiter to be
    /// notified.
    pub(crate) fn on_release(&mut self, node: usize, freed: &ReleasedLease, notified: u32) -> Option<W> {
        let (all, few) = (majority(self.nodes), self.enough_of_a_bare_majority());
        let queue = self.queues.get_mut(&freed.resource)?;
        let refused =
            |waiter: &Waiter<W>| waiter.wake.is_none() && waiter.refused_by.as_ref() == Some(&freed.owner);
        let may_be_bare = queue.waiters.iter().any(refused);
        let release = queue.release(&freed.owner);
        if release.nodes.iter().any(|(other, _)| *other == node) {
            // All readers share one owner name. So a second report of the same node is about the release of
            // later readers, and begins a new count.
            if freed.owner.as_str() != Owner::READERS {
                return None;
            }
            (release.nodes, release.woken_by) = (Vec::new(), 0);
        }
        release.nodes.push((node, notified));
        self.majority_reported |= release.nodes.len() >= all;
        // A release that woke a waiter too early wakes one a second time, and is still one turn.
        let is_counted = release.needs_majority;
        let wake = release.wake_after(release.needed(may_be_bare, all, few))?;
        queue.turns += u64::from(!is_counted);
        queue.wake_one(wake)
    }

    /// Records that the last attempt of the waiter `id` was refused by a lease of `owner` on `held_on` nodes. Returns
    /// the waiter to be notified, if enough nodes have reported the release of this lease by now.
    pub(crate) fn refused_by(
        &mut self,
        resource: &Resource,
        id: u64,
        holder: Option<(&Owner, usize)>,
    ) -> Option<W> {
        let (all, few) = (majority(self.nodes), self.enough_of_a_bare_majority());
        let is_bare = |(owner, on): &(&Owner, usize)| {
            *on == all && owner.as_str() != Owner::READERS && owner.as_str() != Owner::QUEUE
        };
        let owner = holder.filter(is_bare).map(|(owner, _)| owner.clone());
        let queue = self.queues.get_mut(resource)?;
        let waiter = queue.waiters.iter_mut().find(|waiter| waiter.id == id)?;
        waiter.refused_by.clone_from(&owner);
        if holder.is_some() {
            waiter.used = None;
        }
        let release = queue.releases.iter_mut().find(|release| Some(&release.owner) == owner.as_ref())?;
        if (1..all).contains(&release.woken_by) {
            (release.woken_by, release.needs_majority) = (0, true);
        }
        let wake = release.wake_after(release.needed(true, all, few))?;
        queue.wake_one(wake)
    }

    /// Returns the number of nodes that must report the release of a lease on a bare majority. The number is
    /// one less than a majority if possible. But it is always so large that these nodes and the nodes that
    /// never held the lease are a majority.
    fn enough_of_a_bare_majority(&self) -> usize {
        let held_on = majority(self.nodes);
        (held_on - 1).max(2 * held_on - self.nodes)
    }

    /// Removes and returns the wake of the waiter `id`, if the waiter was woken. A waiter that begins an
    /// attempt also calls this, since the attempt itself finds out whether the resource is free.
    pub(crate) fn take_wake(&mut self, resource: &Resource, id: u64) -> Option<Wake> {
        let waiter = self.waiter(resource, id)?;
        let wake = waiter.wake.take()?;
        waiter.used = Some(wake.clone());
        Some(wake)
    }

    /// Notes that the waiter `id` has acquired the lease. Its wake has served its purpose, and is not passed on.
    pub(crate) fn won(&mut self, resource: &Resource, id: u64) {
        if let Some(waiter) = self.waiter(resource, id) {
            (waiter.wake, waiter.used) = (None, None);
        }
    }

    /// Returns whether a majority of the nodes has ever reported one release of a resource with waiters. This proves
    /// that the nodes can send such reports.
    pub(crate) fn releases_are_reported(&self) -> bool {
        self.majority_reported
    }

    /// Returns the number of releases of the resource that have been reported while this process had waiters for it. Each
    /// is the turn of one waiter.
    pub(crate) fn turns(&self, resource: &Resource) -> u64 {
        self.queues.get(resource).map_or(0, |queue| queue.turns)
    }

    fn waiter(&mut self, resource: &Resource, id: u64) -> Option<&mut Waiter<W>> {
        self.queues.get_mut(resource)?.waiters.iter_mut().find(|waiter| waiter.id == id)
    }

    /// Wakes another waiter, since the waiter `id` acquired a lease that other readers may share. Returns the
    /// waiter to be notified.
    pub(crate) fn wake_next(&mut self, resource: &Resource, id: u64) -> Option<W> {
        let queue = self.queues.get_mut(resource)?;
        let next = queue.waiters.iter_mut().find(|waiter| waiter.id != id && waiter.wake.is_none())?;
        next.wake = Some(Wake { owner: Owner::from_node(Owner::READERS), notified: 1 });
        Some(next.notify.clone())
    }

    /// Removes the waiter `id`.
    pub(crate) fn leave(&mut self, resource: &Resource, id: u64) -> LeaveResult<W> {
        let nothing = LeaveResult { wake: None, last: false };
        let Some(queue) = self.queues.get_mut(resource) else { return nothing };
        let Some(at) = queue.waiters.iter().position(|waiter| waiter.id == id) else { return nothing };
        let inherited = queue.waiters.remove(at).and_then(|waiter| waiter.wake.or(waiter.used));
        let wake = inherited.and_then(|wake| queue.wake_one(wake));
        let last = queue.waiters.is_empty();
        if last {
            self.queues.remove(resource);
        }
        LeaveResult { wake, last }
    }
}

impl<W: Clone> ResourceQueue<W> {
    fn release(&mut self, owner: &Owner) -> &mut Release {
        let at = self.releases.iter().position(|release| release.owner == *owner).unwrap_or_else(|| {
            if self.releases.len() == RELEASES_MAX {
                self.releases.pop_front();
            }
            self.releases.push_back(Release {
                owner: owner.clone(),
                nodes: Vec::new(),
                woken_by: 0,
                needs_majority: false,
            });
            self.releases.len() - 1
        });
        &mut self.releases[at]
    }

    /// Wakes the first waiter that has not been woken yet. A waiter that was woken but has not begun its
    /// attempt is passed over, because its task may be stuck.
    fn wake_one(&mut self, wake: Wake) -> Option<W> {
        let waiter = self.waiters.iter_mut().find(|waiter| waiter.wake.is_none())?;
        waiter.wake = Some(wake);
        Some(waiter.notify.clone())
    }
}

impl Release {
    /// Returns the number of reports that wake a waiter: `few` if the lease may have been on a bare majority, and
    /// no attempt has shown that it was on more nodes, or else a majority, `all`.
    fn needed(&self, may_be_bare: bool, all: usize, few: usize) -> usize {
        if may_be_bare && !self.needs_majority { few } else { all }
    }

    /// Returns the wake for one waiter, once `needed` nodes have reported the release. Later reports of the
    /// same release wake no other waiter.
    fn wake_after(&mut self, needed: usize) -> Option<Wake> {
        if self.woken_by > 0 || self.nodes.len() < needed {
            return None;
        }
        self.woken_by = self.nodes.len();
        let mut counts: Vec<u32> = self.nodes.iter().map(|(_, notified)| *notified).collect();
        counts.sort_unstable();
        Some(Wake { owner: self.owner.clone(), notified: counts[counts.len() / 2] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str) -> Resource {
        Resource::lock(name).unwrap()
    }

    fn freed(owner: u64) -> ReleasedLease {
        ReleasedLease { resource: resource("r"), owner: Owner::sign("w", owner, 0) }
    }

    fn wake(owner: u64) -> Wake {
        Wake { owner: freed(owner).owner, notified: 3 }
    }

    /// Returns a wake queue over five nodes, with `waiters` waiting for the resource `r`.
    fn wake_queue(waiters: &[char]) -> WakeQueue<char> {
        let mut wake_queue = WakeQueue::new(5);
        for (at, notify) in waiters.iter().enumerate() {
            assert_eq!(wake_queue.join(&resource("r"), WakeOrder::Arrival, *notify), (at as u64, at == 0));
        }
        wake_queue
    }

    fn report(wake_queue: &mut WakeQueue<char>, nodes: &[usize], owner: u64) -> Vec<char> {
        nodes
            .iter()
            .filter_map(|node| wake_queue.on_release(*node, &freed(owner), 2 + *node as u32))
            .collect()
    }

    #[test]
    fn waiters_in_the_nodes_queues_are_woken_in_their_order_there_and_before_all_others() {
        let mut wake_queue = WakeQueue::new(5);
        let queued = |at| WakeOrder::Queued(at, freed(at).owner);
        let orders =
            [(WakeOrder::Arrival, 'a'), (queued(7), 'b'), (queued(3), 'c'), (WakeOrder::Arrival, 'd')];
        for (order, notify) in orders {
            wake_queue.join(&resource("r"), order, notify);
        }
        let woken: Vec<char> = (0..4).flat_map(|owner| report(&mut wake_queue, &[0, 1, 2], owner)).collect();
        assert_eq!(woken, ['c', 'b', 'a', 'd']);
    }

    #[test]
    fn later_readers_have_the_same_owner_and_each_release_wakes_a_waiter() {
        let mut wake_queue = wake_queue(&['a']);
        let readers = ReleasedLease { resource: resource("r"), owner: Owner::from_node(Owner::READERS) };
        for _ in 0..3 {
            let notified: Vec<char> =
                (0..5).filter_map(|node| wake_queue.on_release(node, &readers, 1)).collect();
            assert_eq!(notified, ['a']);
            assert!(wake_queue.take_wake(&resource("r"), 0).is_some());
        }
    }

    #[test]
    fn a_waiter_that_shares_the_lease_wakes_the_next() {
        let mut wake_queue = wake_queue(&['a', 'b', 'c']);
        assert_eq!(wake_queue.wake_next(&resource("r"), 0), Some('b'));
        assert_eq!(wake_queue.wake_next(&resource("r"), 1), Some('a'), "each waiter is woken once");
        assert_eq!(wake_queue.wake_next(&resource("r"), 1), Some('c'));
        assert_eq!(wake_queue.wake_next(&resource("r"), 1), None);
    }

    #[test]
    fn a_majority_that_reports_one_owner_wakes_one_waiter_once() {
        let mut wake_queue = wake_queue(&['a', 'b']);
        assert_eq!(report(&mut wake_queue, &[0, 0, 1, 1, 0], 1), [] as [char; 0] as [char; 0]);
        assert_eq!(report(&mut wake_queue, &[4], 1), ['a']);
        assert_eq!(
            report(&mut wake_queue, &[2, 3, 4], 1),
            [] as [char; 0] as [char; 0],
            "the other reports add nothing"
        );
        assert_eq!(wake_queue.take_wake(&resource("r"), 0), Some(wake(1)), "the median of 2, 3 and 6");
        assert_eq!(wake_queue.take_wake(&resource("r"), 0), None);
        assert_eq!(report(&mut wake_queue, &[0, 1, 2], 2), ['a'], "the longest waiter, if it still waits");
    }

    #[test]
    fn the_release_of_a_bare_majority_may_lose_one_report() {
        let holder = freed(1).owner;
        let mut wake_queue = wake_queue(&['a', 'b']);
        assert_eq!(wake_queue.refused_by(&resource("r"), 1, Some((&holder, 3))), None);
        assert_eq!(report(&mut wake_queue, &[0], 1), [] as [char; 0] as [char; 0], "one node proves nothing");
        assert_eq!(
            report(&mut wake_queue, &[2, 4], 1),
            ['a'],
            "two of three wake the longest waiter, and no other"
        );
        assert!(wake_queue.take_wake(&resource("r"), 0).is_some());
        let next = freed(2).owner;
        assert_eq!(
            report(&mut wake_queue, &[0, 1], 2),
            [] as [char; 0],
            "the attempt is not yet known to have been refused"
        );
        assert_eq!(wake_queue.refused_by(&resource("r"), 0, Some((&next, 3))), Some('a'));
        assert_eq!(report(&mut wake_queue, &[2], 2), [] as [char; 0] as [char; 0]);
        let everywhere = freed(3).owner;
        assert_eq!(wake_queue.refused_by(&resource("r"), 1, Some((&everywhere, 5))), None);
        assert_eq!(
            report(&mut wake_queue, &[0, 1], 3),
            [] as [char; 0],
            "a lease on all nodes is free on three of them at the earliest"
        );
        assert_eq!(report(&mut wake_queue, &[2], 3), ['b']);
        let needed = |nodes| WakeQueue::<char>::new(nodes).enough_of_a_bare_majority();
        assert_eq!([1, 2, 3, 4, 5, 7].map(needed), [1, 2, 1, 2, 2, 3]);
    }

    #[test]
    fn a_waiter_that_was_woken_too_early_is_woken_again() {
        let mut wake_queue = wake_queue(&['a']);
        let holder = freed(1).owner;
        let refuse = |wake_queue: &mut WakeQueue<char>| {
            let _ = wake_queue.take_wake(&resource("r"), 0);
            wake_queue.refused_by(&resource("r"), 0, Some((&holder, 3)))
        };
        assert_eq!(refuse(&mut wake_queue), None);
        assert_eq!(report(&mut wake_queue, &[0, 1], 1), ['a'], "the lease may be on three nodes only");
        assert_eq!(refuse(&mut wake_queue), None, "it was on more: its release has reached two of them");
        assert_eq!(report(&mut wake_queue, &[2], 1), ['a'], "now on three");
        assert_eq!(refuse(&mut wake_queue), None, "a majority has woken it: the lease is not free elsewhere");
        assert_eq!(report(&mut wake_queue, &[3, 4], 1), [] as [char; 0] as [char; 0]);

        let mut wake_queue = WakeQueue::new(3);
        wake_queue.join(&resource("r"), WakeOrder::Arrival, 'a');
        let refuse = |wake_queue: &mut WakeQueue<char>| {
            let _ = wake_queue.take_wake(&resource("r"), 0);
            wake_queue.refused_by(&resource("r"), 0, Some((&holder, 2)))
        };
        assert_eq!(refuse(&mut wake_queue), None);
        assert_eq!(report(&mut wake_queue, &[0, 1], 1), ['a'], "the second report comes during the attempt");
        assert_eq!(refuse(&mut wake_queue), Some('a'));
    }

    #[test]
    fn releases_of_several_lost_attempts_are_not_added_up() {
        let mut wake_queue = wake_queue(&['a']);
        assert_eq!(report(&mut wake_queue, &[0, 1], 1), [] as [char; 0] as [char; 0]);
        assert_eq!(report(&mut wake_queue, &[2, 3], 2), [] as [char; 0] as [char; 0]);
        assert_eq!(report(&mut wake_queue, &[4], 3), [] as [char; 0] as [char; 0]);
    }

    #[test]
    fn a_node_that_invents_releases_wakes_no_waiter_and_uses_little_memory() {
        let mut wake_queue = wake_queue(&['a']);
        for owner in 0..100_000 {
            assert_eq!(wake_queue.on_release(2, &freed(owner), u32::MAX), None);
        }
        assert!(wake_queue.queues[&resource("r")].releases.len() <= RELEASES_MAX);
        assert_eq!(report(&mut wake_queue, &[0, 1, 3], 7), ['a'], "the reports of the others still count");
        let elsewhere = ReleasedLease { resource: resource("s"), owner: Owner::sign("w", 0, 0) };
        assert_eq!((0..3).filter_map(|node| wake_queue.on_release(node, &elsewhere, 1)).count(), 0);
        assert!(!wake_queue.queues.contains_key(&resource("s")), "there is no waiter for it");
    }

    #[test]
    fn a_woken_waiter_that_leaves_passes_its_wake_on_and_the_last_is_reported() {
        let mut wake_queue = wake_queue(&['a', 'b', 'c']);
        assert_eq!(report(&mut wake_queue, &[0, 1, 2], 1), ['a']);
        assert_eq!(wake_queue.leave(&resource("r"), 0), LeaveResult { wake: Some('b'), last: false });
        assert!(wake_queue.take_wake(&resource("r"), 1).is_some());
        let newer = freed(9).owner;
        assert_eq!(wake_queue.refused_by(&resource("r"), 1, Some((&newer, 5))), None);
        assert_eq!(
            wake_queue.leave(&resource("r"), 1),
            LeaveResult { wake: None, last: false },
            "its attempt used the wake, and found a new holder"
        );
        assert_eq!(
            wake_queue.leave(&resource("r"), 1),
            LeaveResult { wake: None, last: false },
            "it has left already"
        );
        assert_eq!(report(&mut wake_queue, &[0, 1, 2], 2), ['c']);
        assert_eq!(wake_queue.leave(&resource("r"), 2), LeaveResult { wake: None, last: true });
        assert!(wake_queue.queues.is_empty(), "nothing is kept");
        assert_eq!(wake_queue.join(&resource("r"), WakeOrder::Arrival, 'd'), (3, true));
        assert_eq!(
            report(&mut wake_queue, &[3], 2),
            [] as [char; 0] as [char; 0],
            "earlier reports are forgotten"
        );
    }

    #[test]
    fn a_wake_is_passed_on_by_a_waiter_whose_attempt_found_no_holder() {
        for found in [None, Some(false), Some(true)] {
            let mut wake_queue = wake_queue(&['a', 'b']);
            let holder = freed(1).owner;
            assert_eq!(wake_queue.refused_by(&resource("r"), 0, Some((&holder, 3))), None);
            assert_eq!(report(&mut wake_queue, &[0, 1], 1), ['a'], "two reports are enough of three");
            assert!(wake_queue.take_wake(&resource("r"), 0).is_some());
            match found {
                // The attempt is cancelled.
                None => {}
                // The votes are split.
                Some(false) => assert_eq!(wake_queue.refused_by(&resource("r"), 0, None), None),
                Some(true) => wake_queue.won(&resource("r"), 0),
            }
            let next = (found != Some(true)).then_some('b');
            assert_eq!(wake_queue.leave(&resource("r"), 0), LeaveResult { wake: next, last: false });
            assert_eq!(
                report(&mut wake_queue, &[2, 3, 4], 1),
                [] as [char; 0] as [char; 0],
                "one release wakes one waiter at a time"
            );
            if found.is_none() {
                assert!(wake_queue.take_wake(&resource("r"), 1).is_some());
                let again = wake_queue.refused_by(&resource("r"), 1, Some((&holder, 3)));
                assert_eq!(again, Some('b'), "the lease was on more nodes, which have released it by now");
            }
        }
    }

    #[test]
    fn only_a_majority_shows_that_the_nodes_report_releases() {
        let mut wake_queue = wake_queue(&['a']);
        let holder = freed(1).owner;
        assert_eq!(wake_queue.refused_by(&resource("r"), 0, Some((&holder, 3))), None);
        assert_eq!(report(&mut wake_queue, &[0, 1], 1), ['a']);
        assert!(!wake_queue.releases_are_reported());
        assert_eq!(report(&mut wake_queue, &[2], 1), [] as [char; 0] as [char; 0]);
        assert!(wake_queue.releases_are_reported());
    }

    #[test]
    fn the_next_release_wakes_another_waiter_if_the_first_has_not_run() {
        let mut wake_queue = wake_queue(&['a', 'b']);
        assert_eq!(report(&mut wake_queue, &[0, 1, 2], 1), ['a']);
        assert_eq!(report(&mut wake_queue, &[0, 1, 2], 2), ['b']);
        assert_eq!(
            report(&mut wake_queue, &[0, 1, 2], 3),
            [] as [char; 0] as [char; 0],
            "both have been woken"
        );
    }
}
