use crate::{
    config::majority,
    env::BootTime,
    node::{Cause, FencingToken, Owner, Reply},
    trust::NodeEpoch,
    vote::{Answer, NodeOutcome, Vote},
};
use std::{fmt::Debug, mem, time::Duration};

/// The result of a round, as far as the counted votes decide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The round may still be won or lost.
    Open,
    /// A majority has granted.
    Won,
    /// So many nodes did not grant that a majority can no longer be reached.
    Lost,
}

/// The grant of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The node's fencing counter, as its replies in this round show it.
    pub counter: FencingToken,
    /// The time on the boot clock just before the request was sent.
    pub sent: BootTime,
    /// The memory epoch of the node when it was asked.
    pub memory: NodeEpoch,
}

/// Data that a round collects from the replies, besides the votes. A round that needs none uses `()`.
pub trait RoundData: Clone + Debug {
    /// Collects the data in the reply of one node. A later reply of the same node replaces an earlier one.
    fn collect(&mut self, node: usize, reply: &Reply);

    /// Returns whether a reply has ended the round. The round is then lost, even if a majority grants.
    fn ends_round(&self) -> bool;
}

impl RoundData for () {
    fn collect(&mut self, _: usize, _: &Reply) {}

    fn ends_round(&self) -> bool {
        false
    }
}

/// Counts the votes of one round. The tally performs no I/O and reads no clock.
#[derive(Clone, Debug)]
pub struct Tally<D = ()> {
    slots: Vec<Slot>,
    data: D,
}

#[derive(Clone, Debug)]
enum Slot {
    /// The node has not been asked yet. It is asked only if the other nodes cannot decide the round, or are
    /// late.
    Spared,
    Pending,
    Granted(Grant),
    /// The node did not grant. `may_hold` is true if the node may nevertheless have set the key, or may still
    /// set it.
    Against {
        outcome: NodeOutcome,
        may_hold: bool,
    },
}

impl Tally {
    /// Creates the tally of a round over `nodes` nodes. It has no votes yet.
    pub fn new(nodes: usize) -> Self {
        Self::with_data(nodes, ())
    }
}

impl<D: RoundData> Tally<D> {
    /// Creates the tally of a round over `nodes` nodes that also collects `data`.
    pub fn with_data(nodes: usize, data: D) -> Self {
        Self { slots: vec![Slot::Pending; nodes], data }
    }

    /// Moves the votes out, and leaves a tally that must not be used any more.
    pub(crate) fn take(&mut self) -> Self {
        Self { slots: mem::take(&mut self.slots), data: self.data.clone() }
    }

    /// Notes that the round does not ask `nodes` at first.
    pub fn spare(&mut self, nodes: &[usize]) {
        nodes.iter().for_each(|&node| self.slots[node] = Slot::Spared);
    }

    /// Iterates over the nodes that have not been asked.
    pub fn spared(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().enumerate().filter(|(_, slot)| matches!(slot, Slot::Spared)).map(|(node, _)| node)
    }

    /// Returns whether the node has not been asked.
    pub fn is_spared(&self, node: usize) -> bool {
        matches!(self.slots[node], Slot::Spared)
    }

    /// Marks nodes as asked. The caller must ask them now.
    pub fn ask(&mut self, nodes: &[usize]) {
        nodes.iter().for_each(|&node| self.slots[node] = Slot::Pending);
    }

    /// Returns whether at least one node has answered, and each of them named the same holder.
    pub fn names_one_holder(&self) -> bool {
        let mut named = self.contended().map(|(owner, _)| owner);
        let Some(first) = named.next() else { return false };
        let contended = 1 + named.filter(|owner| *owner == first).count();
        let open = self.slots.iter().filter(|slot| matches!(slot, Slot::Spared | Slot::Pending)).count();
        contended + open == self.slots.len()
    }

    /// Returns whether the spared nodes are needed now, because a node that was asked did not grant, or its
    /// grant no longer counts. (If nodes are only late, the caller decides by its clock.)
    pub fn needs_spared(&self) -> bool {
        self.spared().next().is_some() && self.slots.iter().any(|slot| matches!(slot, Slot::Against { .. }))
    }

    /// Iterates over the nodes that were asked and have not answered.
    pub fn awaited(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().enumerate().filter(|(_, slot)| matches!(slot, Slot::Pending)).map(|(node, _)| node)
    }

    /// Returns the data that the round has collected.
    pub fn data(&self) -> &D {
        &self.data
    }

    /// Returns the size of a majority: ⌊N/2⌋ + 1.
    pub fn majority(&self) -> usize {
        majority(self.slots.len())
    }

    /// Counts a vote. If a node votes twice in a round, its second vote replaces its first.
    pub fn count(&mut self, vote: &Vote) {
        if let Answer::Reply(reply) = &vote.answer {
            self.data.collect(vote.node, reply);
        }
        let slot = match (&vote.answer, vote.sent) {
            (Answer::Reply(Reply::Granted { counter, .. }), Some(sent)) => {
                Slot::Granted(Grant { counter: *counter, sent, memory: vote.memory })
            }
            // A grant to a reader comes without a counter, because readers have no fencing tokens.
            (Answer::Reply(Reply::Shared), Some(sent)) => {
                Slot::Granted(Grant { counter: FencingToken::default(), sent, memory: vote.memory })
            }
            (answer, sent) => {
                // A node that replied without a grant has not set the key, unless it says so. A node that did not
                // reply may have set it, or may still set it.
                let unsure = matches!(answer, Answer::Failed(_) | Answer::Reply(Reply::MayHold(_)));
                let may_hold = sent.is_some() && unsure;
                Slot::Against { outcome: NodeOutcome::of(answer), may_hold }
            }
        };
        self.slots[vote.node] = slot;
    }

    /// Records that `node`'s counter has been raised to `to`.
    pub fn raised(&mut self, node: usize, to: FencingToken) {
        if let Slot::Granted(grant) = &mut self.slots[node] {
            grant.counter = to;
        }
    }

    /// Records that `node` granted, but refused to raise its counter. The grant no longer counts, although
    /// the node may store the attempt's key.
    pub fn not_raised(&mut self, node: usize, outcome: NodeOutcome) {
        self.slots[node] = Slot::Against { outcome, may_hold: true };
    }

    /// Removes the grants of nodes for which `remembers` returns false, because they may have lost their memory
    /// since the grant.
    pub fn forget_unless(&mut self, remembers: impl Fn(usize, u64) -> bool) {
        for (node, slot) in self.slots.iter_mut().enumerate() {
            if let Slot::Granted(grant) = slot
                && !remembers(node, grant.memory.epoch)
            {
                let outcome = NodeOutcome::Unreachable(Cause::Closed);
                *slot = Slot::Against { outcome, may_hold: true };
            }
        }
    }

    /// Returns the result of the round by the votes so far.
    pub fn verdict(&self) -> Verdict {
        if self.data.ends_round() {
            Verdict::Lost
        } else if self.granted().count() >= self.majority() {
            Verdict::Won
        } else if self.granted().count() + self.pending() < self.majority() {
            Verdict::Lost
        } else {
            Verdict::Open
        }
    }

    /// Returns the candidate for the fencing token: the largest counter among the grants.
    ///
    /// A counter may be smaller than the time at which its node's memory began. Then the node was restored from
    /// a snapshot, and the counter lacks the grants since that snapshot. Such a counter is replaced by the
    /// time, on the node's clock, at which the node's quarantine ended, as if the counter had been lost and
    /// started again. The time of a later quarantine must not be used: a token must not be ahead of the clocks,
    /// because nodes that lose their counters start new ones from their clocks, and could issue the token
    /// again.
    pub fn candidate(&self, quarantine: Duration) -> FencingToken {
        let counts = |grant: Grant| {
            let restored = grant.counter.get() < grant.memory.since.as_micros();
            let from = grant.memory.votes_from.min(grant.memory.since + quarantine);
            let seed = FencingToken::new(from.as_micros()).min(FencingToken::MAX);
            if restored { seed.max(grant.counter) } else { grant.counter }
        };
        self.granted().map(|(_, grant)| counts(grant)).max().unwrap_or_default()
    }

    /// Returns whether the counters of a majority equal `token`.
    pub fn agrees_on(&self, token: FencingToken) -> bool {
        self.granted().filter(|(_, grant)| grant.counter == token).count() >= self.majority()
    }

    /// Returns the granting nodes whose counter is below `token`.
    pub fn below(&self, token: FencingToken) -> Vec<usize> {
        self.granted().filter(|(_, grant)| grant.counter < token).map(|(node, _)| node).collect()
    }

    /// Iterates over the grants, in the order of the nodes.
    pub fn granted(&self) -> impl Iterator<Item = (usize, Grant)> + Clone {
        self.slots.iter().enumerate().filter_map(|(node, slot)| match slot {
            Slot::Granted(grant) => Some((node, *grant)),
            _ => None,
        })
    }

    /// Returns the time from which the lease's validity counts. This is the latest time such that a majority
    /// of the nodes granted requests that were sent at that time or later.
    pub fn sent_by_quorum(&self) -> Option<BootTime> {
        quorum_th(self.granted().map(|(_, grant)| grant.sent), self.majority())
    }

    /// Returns whether `node` may store the attempt's key, now or later. If so, the attempt must release the
    /// key there.
    pub fn may_hold(&self, node: usize) -> bool {
        match &self.slots[node] {
            Slot::Spared => false,
            Slot::Pending | Slot::Granted(_) => true,
            Slot::Against { may_hold, .. } => *may_hold,
        }
    }

    /// Returns whether a round was lost because of other holders: without their leases, it could have been won.
    pub fn is_contended(&self) -> bool {
        let against = self.contended().count();
        against > 0 && against + self.granted().count() + self.pending() >= self.majority()
    }

    /// Returns the time after which the resource may be free on a majority of the nodes, because enough
    /// leases of other holders have expired by then. The nodes' replies contain the remaining times. Returns
    /// `None` if too few nodes reported one.
    pub fn retry_after(&self) -> Option<Duration> {
        let free = self.granted().count() + self.pending();
        let needed = self.majority().saturating_sub(free).max(1);
        let mut remaining: Vec<Duration> = self.contended().filter_map(|(_, left)| left).collect();
        remaining.sort_unstable();
        remaining.get(needed - 1).copied()
    }

    /// Returns the holder, if a majority of the nodes names the same one.
    pub fn holder(&self) -> Option<&Owner> {
        self.holder_on().map(|(owner, _)| owner)
    }

    /// Returns the holder that the first of the nodes names, in the order of the list.
    pub fn first_named(&self) -> Option<&Owner> {
        self.contended().next().map(|(owner, _)| owner)
    }

    /// Returns the holder if a majority of the nodes names the same one, and the number of nodes that name it.
    pub fn holder_on(&self) -> Option<(&Owner, usize)> {
        let named = |owner: &Owner| self.contended().filter(|(other, _)| *other == owner).count();
        self.contended().map(|(owner, _)| (owner, named(owner))).find(|(_, count)| *count >= self.majority())
    }

    /// Iterates over the outcome of each node, in the order of the list.
    pub fn outcomes(&self) -> impl Iterator<Item = NodeOutcome> {
        self.slots.iter().map(|slot| match slot {
            Slot::Spared | Slot::Pending => NodeOutcome::Pending,
            Slot::Granted(_) => NodeOutcome::Granted,
            Slot::Against { outcome, .. } => outcome.clone(),
        })
    }

    /// Returns the number of nodes that may still grant in this round.
    fn pending(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Spared | Slot::Pending)).count()
    }

    fn contended(&self) -> impl Iterator<Item = (&Owner, Option<Duration>)> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Against { outcome: NodeOutcome::Contended { holder, remaining }, .. } => {
                Some((holder, *remaining))
            }
            _ => None,
        })
    }
}

/// Returns the latest of `times` such that at least `majority` of them are at that time or later.
pub(crate) fn quorum_th(times: impl Iterator<Item = BootTime> + Clone, majority: usize) -> Option<BootTime> {
    // This runs for every vote of every lease. The times are few, so they are compared in pairs, and no list is
    // allocated.
    times.clone().filter(|&time| times.clone().filter(|&other| other >= time).count() >= majority).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Cause, NodeTime};

    fn at(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    const QUARANTINE: Duration = Duration::from_secs(4);

    fn vote(node: usize, sent_ms: u64, answer: Answer) -> Vote {
        Vote {
            node,
            ticket: 0,
            requests: 1,
            sent: Some(at(sent_ms)),
            memory: NodeEpoch { epoch: 1, ..NodeEpoch::default() },
            answer,
        }
    }

    fn grant(node: usize, sent_ms: u64, counter: u64) -> Vote {
        vote(
            node,
            sent_ms,
            Answer::Reply(Reply::Granted { counter: FencingToken::new(counter), begun: None }),
        )
    }

    fn held(node: usize, owner: &str, ms: u64) -> Vote {
        let owner = Owner::from_node(owner);
        vote(node, 0, Answer::Reply(Reply::Held { owner, remaining: Some(Duration::from_millis(ms)) }))
    }

    fn tally(nodes: usize, votes: &[Vote]) -> Tally {
        let mut tally = Tally::new(nodes);
        votes.iter().for_each(|vote| tally.count(vote));
        tally
    }

    #[test]
    fn three_of_five_win_and_two_of_four_do_not() {
        let three = tally(5, &[grant(0, 1, 7), grant(1, 2, 7), grant(4, 3, 7)]);
        assert_eq!(three.verdict(), Verdict::Won);
        let split = [grant(0, 1, 7), grant(1, 1, 7), held(2, "b", 5)];
        assert_eq!(tally(4, &split).verdict(), Verdict::Open);
        let even = [&split[..], &[held(3, "b", 5)]].concat();
        assert_eq!(tally(4, &even).verdict(), Verdict::Lost, "an even number of nodes ends as well");
    }

    #[test]
    fn the_spared_nodes_are_needed_after_the_first_node_that_does_not_grant() {
        let dead = vote(1, 1, Answer::Failed(Cause::TimedOut));
        for against in [held(1, "b", 50), dead] {
            let mut thrifty = Tally::new(5);
            thrifty.spare(&[3, 4]);
            thrifty.count(&grant(0, 1, 7));
            assert!(!thrifty.needs_spared() && !thrifty.may_hold(3) && thrifty.may_hold(2));
            assert_eq!(thrifty.awaited().collect::<Vec<_>>(), [1, 2]);
            thrifty.count(&against);
            assert_eq!((thrifty.verdict(), thrifty.needs_spared()), (Verdict::Open, true));
            let spared: Vec<usize> = thrifty.spared().collect();
            assert_eq!(spared, [3, 4]);
            thrifty.ask(&spared);
            assert!(!thrifty.needs_spared() && thrifty.may_hold(3), "they are asked only once");
            [grant(3, 2, 7), grant(4, 2, 7)].iter().for_each(|vote| thrifty.count(vote));
            assert_eq!(thrifty.verdict(), Verdict::Won);
        }
    }

    #[test]
    fn a_grant_without_its_raise_or_its_memory_needs_the_spared_nodes() {
        let mut thrifty = tally(5, &[grant(0, 1, 7), grant(1, 1, 9), grant(2, 1, 9)]);
        thrifty.spare(&[3, 4]);
        let mut forgot = thrifty.clone();
        assert_eq!((thrifty.verdict(), thrifty.needs_spared()), (Verdict::Won, false));
        thrifty.not_raised(0, NodeOutcome::Refused(crate::node::Refusal::NotOwner));
        assert_eq!((thrifty.verdict(), thrifty.needs_spared()), (Verdict::Open, true));
        assert!(thrifty.may_hold(0), "its key is released if the attempt is lost");
        forgot.forget_unless(|node, _| node != 2);
        assert!(forgot.needs_spared());
    }

    #[test]
    fn one_holder_is_named_only_if_each_node_that_answered_names_it() {
        let mut spared = tally(5, &[held(0, "b", 50)]);
        spared.spare(&[3, 4]);
        assert!(spared.names_one_holder() && spared.is_spared(3));
        spared.ask(&[3]);
        spared.count(&held(3, "b", 60));
        assert!(spared.names_one_holder() && !spared.is_spared(3));
        assert_eq!(spared.first_named().map(Owner::as_str), Some("b"));
        for other in [held(1, "c", 50), grant(1, 1, 7), vote(1, 1, Answer::Failed(Cause::TimedOut))] {
            assert!(!tally(5, &[held(0, "b", 50), other]).names_one_holder());
        }
        assert!(!Tally::new(5).names_one_holder());
    }

    #[test]
    fn lost_as_soon_as_a_majority_can_no_longer_grant() {
        let dead = |node| vote(node, 1, Answer::Failed(Cause::TimedOut));
        let lost = tally(5, &[held(0, "b", 50), dead(1), held(2, "b", 60)]);
        assert_eq!(lost.verdict(), Verdict::Lost);
        assert!(lost.is_contended());
        assert!(lost.may_hold(1) && lost.may_hold(3) && !lost.may_hold(0));
        assert!(!tally(5, &[held(0, "b", 50), dead(1), dead(2), dead(3)]).is_contended());
    }

    #[test]
    fn validity_counts_from_the_quorum_th_largest_send() {
        let won = tally(5, &[grant(0, 10, 7), grant(1, 30, 7), grant(2, 20, 7), grant(3, 40, 7)]);
        assert_eq!(won.sent_by_quorum(), Some(at(20)));
    }

    #[test]
    fn the_token_is_the_largest_counter_once_a_majority_has_it() {
        let mut won = tally(5, &[grant(0, 1, 7), grant(1, 1, 9), grant(2, 1, 9)]);
        let token = won.candidate(QUARANTINE);
        assert_eq!((token.get(), won.agrees_on(token), won.below(token)), (9, false, vec![0]));
        won.raised(0, token);
        assert!(won.agrees_on(token));
    }

    #[test]
    fn a_counter_older_than_its_node_s_memory_counts_from_the_end_of_the_quarantine() {
        let at = |seconds: u64| NodeTime::from_micros(seconds * 1_000_000);
        let under = |since: u64, votes_from: u64, vote: Vote| {
            let memory = NodeEpoch { since: at(since), votes_from: at(votes_from), ..vote.memory };
            Vote { memory, ..vote }
        };
        let since = |seconds: u64, vote: Vote| under(seconds, 8, vote);
        // Node 0 was restored at 5 s from a snapshot, so its counter is too small. The other nodes had granted
        // tokens up to 9 since the snapshot.
        let won = tally(3, &[since(5, grant(0, 1, 7)), grant(1, 1, 8)]);
        assert_eq!(won.candidate(QUARANTINE).get(), 8_000_000);
        assert_eq!(won.below(won.candidate(QUARANTINE)), [0, 1]);
        // Once the counter is raised, it is newer than the node's memory. So from now on the counter itself
        // counts.
        let next = tally(3, &[since(5, grant(0, 1, 8_000_001)), grant(1, 1, 8_000_001)]);
        assert_eq!(next.candidate(QUARANTINE).get(), 8_000_001);
        // An operator ended the quarantine of this node early, and a worker whose clock is behind started its
        // counter. The token must not be later than the node's clock. Otherwise a counter that is started after
        // the next loss would give the same token again (simulation, seed 5682).
        let trusted = under(5, 5, grant(0, 1, 4_900_000));
        let won = tally(3, &[trusted, grant(1, 1, 4_900_000)]);
        assert_eq!(won.candidate(QUARANTINE).get(), 5_000_000);
        // A clock that was ahead set the end of a later quarantine. That end is not used either.
        let stepped = under(5, 3_600, grant(0, 1, 7));
        assert_eq!(tally(3, &[stepped, grant(1, 1, 8)]).candidate(QUARANTINE).get(), 9_000_000);
    }

    #[test]
    fn a_grant_that_a_node_may_have_lost_no_longer_counts() {
        let mut won = tally(3, &[grant(0, 1, 7), grant(1, 1, 7)]);
        won.forget_unless(|node, _| node != 1);
        assert_eq!(won.verdict(), Verdict::Open);
    }

    #[test]
    fn the_retry_time_and_the_holder_follow_from_the_replies() {
        let lost = tally(5, &[held(0, "b", 50), held(1, "b", 70), held(2, "b", 60)]);
        // Two nodes may still grant. So it is enough if one of the holders' leases expires.
        assert_eq!(lost.retry_after(), Some(Duration::from_millis(50)));
        assert_eq!(lost.holder().map(Owner::as_str), Some("b"));
        let split = tally(5, &[held(0, "b", 50), held(1, "c", 70), held(2, "b", 60)]);
        assert_eq!(split.holder(), None);
    }
}
