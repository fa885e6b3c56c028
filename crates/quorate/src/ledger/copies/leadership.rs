use crate::{config::majority, node::FencingToken};

/// A leader's knowledge of the copies of a ledger: the state machine of its takeover, and of every node that joins later.
/// `S` stores one [`Standing`] for each node, in the order of the nodes.
///
/// A new leader seals all nodes. Once a majority has answered, it asks the same nodes to confirm, and decides only on
/// answers of nodes that confirmed (L1). Then it sends to each node what the node's copy lacks, and marks the node (L3). It
/// leads when a majority of all nodes is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership<S> {
    phase: Phase,
    nodes: S,
}

/// The phase of a leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Phase {
    /// The leader waits until a majority has answered its seal.
    #[default]
    Sealing,
    /// The leader waits until a majority has confirmed that it is still sealed by this leader, in the same memory.
    Confirming,
    /// The leader has its own content of the ledger, and makes the copies equal to it.
    Decided,
}

/// A leader's knowledge of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Standing {
    /// The node has answered the seal.
    pub sealed: bool,
    /// Its copy was complete then.
    pub complete: bool,
    /// The node is asked to confirm.
    pub asked: bool,
    /// It has confirmed.
    pub confirmed: bool,
    /// It may be marked as soon as it has everything, because it had not forgotten when the leader decided.
    pub may_mark: bool,
    /// It is marked with this leader's term. This stays if the node forgets, until the leader seals it again.
    pub marked: bool,
    /// The node joins: it has everything, and others must confirm before it is marked (L4).
    pub joins: bool,
    /// Since the join of another node began, this node has confirmed that it is still sealed and marked by this leader.
    pub vouches: bool,
}

/// A confirmed answer to a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The number of the node.
    pub node: usize,
    /// The mark of its copy. `None` if the copy is incomplete.
    pub mark: Option<FencingToken>,
}

/// The decision of a leader on the answers to its seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// The ledger goes on: of each key, the record with the latest stamp counts among the copies with this mark. What other
    /// copies have beyond these is to be deleted (L2).
    Continue {
        /// The newest mark.
        mark: FencingToken,
    },
    /// A majority of all nodes has forgotten the ledger. A new one begins (L5).
    Found,
}

impl<S: AsRef<[Standing]> + AsMut<[Standing]>> Leadership<S> {
    /// Creates the leadership in `phase`, in which the leader knows this of the nodes.
    pub const fn new(phase: Phase, nodes: S) -> Self {
        Self { phase, nodes }
    }

    /// Returns the phase.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns what the leader knows of the nodes.
    pub const fn nodes(&self) -> &S {
        &self.nodes
    }

    /// Returns whether the leader leads: a majority of all nodes is marked.
    pub fn leads(&self) -> bool {
        self.phase == Phase::Decided && self.has_majority(|node| node.marked)
    }

    /// Returns whether a majority of all nodes is marked, or may be without others. A node that has forgotten needs the word of a
    /// majority of marked nodes (L4). So if too few nodes are left that have not, this leader can never lead again, although
    /// all nodes answer. A node that has not answered yet may be complete.
    pub fn can_lead(&self) -> bool {
        let may_be = |node: &Standing| node.marked || node.may_mark || !node.sealed;
        self.phase != Phase::Decided || self.has_majority(may_be)
    }

    /// Notes that `node` has answered a seal, and whether its copy was complete then. After the decision, a complete copy
    /// may be marked again without others: it was complete when this leader had sealed it.
    pub fn on_sealed(&mut self, node: usize, is_complete: bool) {
        let decided = self.phase == Phase::Decided;
        self.nodes.as_mut()[node] = Standing {
            sealed: true,
            complete: is_complete,
            may_mark: decided && is_complete,
            vouches: self.nodes.as_ref()[node].vouches,
            ..Standing::default()
        };
    }

    /// Asks the nodes that have answered to confirm, if they are a majority of all. Returns whether they are.
    pub fn ask_to_confirm(&mut self) -> bool {
        let can = self.phase == Phase::Sealing && self.has_majority(|node| node.sealed);
        if can {
            self.phase = Phase::Confirming;
            self.nodes.as_mut().iter_mut().for_each(|node| node.asked = node.sealed);
        }
        can
    }

    /// Notes that `node` has confirmed.
    pub fn on_confirmed(&mut self, node: usize) {
        self.nodes.as_mut()[node].confirmed = true;
    }

    /// Goes back to the seal, to hear more nodes.
    pub fn seal_again(&mut self) {
        self.phase = Phase::Sealing;
        self.nodes.as_mut().iter_mut().for_each(|node| (node.asked, node.confirmed) = (false, false));
    }

    /// Notes, before the decision, that the answer of `node` to the seal does not count: the node has forgotten since.
    pub fn on_unsealed(&mut self, node: usize) {
        self.nodes.as_mut()[node] = Standing::default();
    }

    /// Decides on the answers of nodes that have confirmed. Returns `None` if the leader must hear more nodes.
    ///
    /// `holds_latest_lease` is true if this leader holds the latest lease of the leadership. Only such a leader founds (L5), and
    /// only if so many nodes have forgotten that no majority can be complete.
    pub fn decide(&mut self, heard: &[Heard], holds_latest_lease: bool) -> Option<Takeover> {
        let nodes = self.nodes.as_ref().len();
        let needed = majority(nodes);
        let complete = heard.iter().filter_map(|heard| heard.mark);
        let incomplete = heard.iter().filter(|heard| heard.mark.is_none()).count();
        let is_lost = heard.len() >= needed && is_lost(nodes, incomplete);
        let takeover = match complete.clone().max() {
            Some(mark) if complete.count() >= needed => Takeover::Continue { mark },
            _ if is_lost && holds_latest_lease => Takeover::Found,
            _ => return None,
        };
        self.phase = Phase::Decided;
        for (index, node) in self.nodes.as_mut().iter_mut().enumerate() {
            let founds = takeover == Takeover::Found && heard.iter().any(|heard| heard.node == index);
            let may_mark = node.sealed && (node.complete || founds);
            *node =
                Standing { sealed: node.sealed, complete: node.complete, may_mark, ..Standing::default() };
        }
        Some(takeover)
    }

    /// Notes that `node` has forgotten since it answered the seal.
    pub fn on_forgot(&mut self, node: usize) {
        if self.nodes.as_ref()[node].joins {
            self.end_join();
        }
        if self.phase == Phase::Decided {
            let standing = &mut self.nodes.as_mut()[node];
            *standing =
                Standing { marked: standing.marked, vouches: standing.vouches, ..Standing::default() };
        }
    }

    /// Returns whether `node` is to be marked now. `has_all` is true if it has stored everything that this leader has sent
    /// to any node, acknowledged or not (L3).
    pub fn is_mark_due(&self, node: usize, has_all: bool) -> bool {
        let standing = self.nodes.as_ref()[node];
        let vouched = standing.joins && self.has_majority(|node| node.vouches);
        standing.sealed && !standing.marked && has_all && (standing.may_mark || vouched)
    }

    /// Notes that the mark for `node` is sent.
    pub fn on_mark_sent(&mut self, node: usize) {
        if self.nodes.as_ref()[node].joins {
            self.end_join();
        }
    }

    /// Notes that `node` is marked. If it joins once more, because the answer came late, that join ends.
    pub fn on_marked(&mut self, node: usize) {
        self.on_mark_sent(node);
        self.nodes.as_mut()[node].marked = true;
    }

    /// Begins the join of `node`, if it is due: the node had forgotten, and has everything now, and no other node joins.
    /// From now on, a majority of the *other* marked nodes must confirm before it is marked (L4). Returns whether it began.
    pub fn begin_join(&mut self, node: usize, has_all: bool) -> bool {
        let standing = self.nodes.as_ref()[node];
        let waits = standing.sealed && !standing.may_mark && !standing.marked && has_all;
        let begins = waits && self.leads() && !self.nodes.as_ref().iter().any(|node| node.joins);
        if begins {
            self.nodes.as_mut()[node].joins = true;
        }
        begins
    }

    /// Notes that `node` has confirmed, since the join of another one began, that it is still sealed and marked by this
    /// leader.
    pub fn on_vouched(&mut self, node: usize) {
        let standing = &mut self.nodes.as_mut()[node];
        standing.vouches = !standing.joins;
    }

    fn end_join(&mut self) {
        self.nodes.as_mut().iter_mut().for_each(|node| (node.joins, node.vouches) = (false, false));
    }

    fn has_majority(&self, of: impl Fn(&Standing) -> bool) -> bool {
        let nodes = self.nodes.as_ref();
        nodes.iter().filter(|node| of(node)).count() >= majority(nodes.len())
    }
}

/// Returns whether a ledger of so many nodes is lost if so many copies are incomplete: no majority can be complete.
pub(super) fn is_lost(nodes: usize, incomplete: usize) -> bool {
    nodes - incomplete < majority(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(number: u64) -> FencingToken {
        FencingToken::new(number)
    }

    /// Returns a leadership in which all nodes but the last have answered and confirmed, and the answers.
    fn heard(marks: [Option<u64>; 3]) -> (Leadership<[Standing; 3]>, Vec<Heard>) {
        let mut leader = Leadership::new(Phase::Sealing, [Standing::default(); 3]);
        let heard = |node: usize| Heard { node, mark: marks[node].map(term) };
        for (node, mark) in marks.into_iter().enumerate() {
            assert!(node > 1 || !leader.ask_to_confirm(), "too few have answered");
            leader.on_sealed(node, mark.is_some());
        }
        assert!(leader.ask_to_confirm());
        [0, 1].into_iter().for_each(|node| leader.on_confirmed(node));
        (leader, [0, 1].map(heard).into())
    }

    #[test]
    fn a_leader_goes_on_with_the_newest_mark_and_leads_once_a_majority_is_marked() {
        let (mut leader, answers) = heard([Some(2), Some(3), None]);
        assert_eq!(leader.decide(&answers[..1], true), None, "one answer");
        assert_eq!(leader.decide(&answers, false), Some(Takeover::Continue { mark: term(3) }));
        assert!(!leader.is_mark_due(0, false) && leader.is_mark_due(0, true));
        [0, 1].into_iter().for_each(|node| leader.on_marked(node));
        assert!(leader.leads() && !leader.is_mark_due(2, true), "it had forgotten");
    }

    #[test]
    fn a_node_that_forgot_is_marked_after_a_majority_of_others_has_confirmed() {
        let (mut leader, answers) = heard([Some(2), Some(2), None]);
        assert!(leader.decide(&answers, false).is_some());
        assert!(!leader.begin_join(2, true), "it does not lead yet");
        [0, 1].into_iter().for_each(|node| leader.on_marked(node));
        assert!(!leader.begin_join(2, false), "it lacks something");
        assert!(leader.begin_join(2, true) && !leader.begin_join(2, true));
        leader.on_vouched(0);
        leader.on_vouched(2);
        assert!(!leader.is_mark_due(2, true), "its own word does not count");
        leader.on_vouched(1);
        assert!(leader.is_mark_due(2, true) && !leader.is_mark_due(2, false));
        leader.on_mark_sent(2);
        assert_eq!(leader.nodes().iter().filter(|node| node.joins || node.vouches).count(), 0);
        leader.on_marked(2);
        leader.on_forgot(2);
        leader.on_sealed(2, false);
        assert!(leader.leads() && !leader.is_mark_due(2, true) && leader.begin_join(2, true), "once more");
        leader.on_forgot(2);
        assert_eq!(leader.nodes()[2], Standing::default());
    }

    #[test]
    fn a_leader_can_lead_while_enough_nodes_are_left_that_have_not_forgotten() {
        let (mut leader, answers) = heard([None, None, None]);
        assert!(leader.can_lead(), "before the decision");
        assert_eq!(leader.decide(&answers, true), Some(Takeover::Found));
        leader.on_marked(0);
        assert!(leader.can_lead() && !leader.leads(), "the second may be marked");
        leader.on_sealed(2, false);
        leader.on_forgot(1);
        assert!(leader.can_lead(), "until it answers, it may be complete");
        leader.on_sealed(1, false);
        assert!(!leader.can_lead(), "both others need the word of a majority");

        let (mut leader, answers) = heard([Some(2), Some(2), None]);
        assert!(leader.decide(&answers, false).is_some());
        [0, 1].into_iter().for_each(|node| leader.on_marked(node));
        leader.on_forgot(1);
        assert!(leader.can_lead(), "it may be complete");
        leader.on_sealed(1, false);
        assert!(!leader.can_lead(), "it has led before, and the third has forgotten, too");
    }

    #[test]
    fn of_an_even_number_of_nodes_half_are_enough_to_lose_the_ledger() {
        for (nodes, least) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4)] {
            assert_eq!((0..=nodes).find(|incomplete| is_lost(nodes, *incomplete)), Some(least), "{nodes}");
        }
        let mut leader = Leadership::new(Phase::Confirming, [Standing::default(); 4]);
        let marks = [None, None, Some(term(2)), Some(term(2))];
        let heard: Vec<Heard> =
            marks.into_iter().enumerate().map(|(node, mark)| Heard { node, mark }).collect();
        assert_eq!(leader.decide(&heard[..2], true), None, "too few have confirmed");
        assert_eq!(leader.decide(&heard[1..], true), None, "three copies may be complete");
        assert_eq!(leader.decide(&heard[..3], true), Some(Takeover::Found));
    }

    #[test]
    fn only_the_holder_of_the_latest_lease_founds_and_only_if_a_majority_has_forgotten() {
        let (mut leader, answers) = heard([None, None, Some(2)]);
        assert_eq!(leader.decide(&answers, false), None);
        assert_eq!(leader.decide(&answers, true), Some(Takeover::Found));
        assert!(leader.is_mark_due(0, true) && leader.is_mark_due(2, true));
        let (mut leader, answers) = heard([None, Some(2), Some(2)]);
        assert_eq!(leader.decide(&answers, true), None, "neither a majority of the one nor of the other");
        leader.seal_again();
        assert_eq!((leader.phase(), leader.nodes()[0].confirmed), (Phase::Sealing, false));
    }
}
