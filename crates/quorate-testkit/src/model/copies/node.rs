//! A node: the shipped decisions, on a packed copy. A rule of nodes is left out by what the model shows to them.

use super::{
    Copies, Rule,
    state::{Node, Value},
};
use quorate::node::{
    FencingToken, Incarnation,
    copy::{AssignmentId, Entry, Header, Register, Seal, Stamp},
};

/// The node's present memory. A request for an earlier one names [`PAST`].
const PRESENT: Incarnation = Incarnation::from_number(1);
const PAST: Incarnation = Incarnation::from_number(0);

impl<const N: usize> Copies<N> {
    pub(super) const fn term(&self, leader: usize) -> u8 {
        if self.twins { 2 } else { leader as u8 + 2 }
    }

    /// Returns the seal with this number: one is that of the last leader before the history, two that of the first leader.
    fn seal_of(&self, number: u8) -> Option<Seal> {
        let term = match number {
            0 => return None,
            1 => 1,
            number => self.term(usize::from(number) - 2),
        };
        Some(Seal { term: token(term), leader: number.into() })
    }

    fn own_seal(&self, leader: usize) -> Seal {
        Seal { term: token(self.term(leader)), leader: leader as u64 + 2 }
    }

    fn header(&self, node: &Node) -> Header {
        Header {
            seal: self.seal_of(node.seal),
            mark: (node.mark > 0).then(|| token(node.mark)),
            ..Header::empty(PRESENT)
        }
    }

    /// Serves a leader's seal. Returns `None` if the node refuses it.
    pub(super) fn seal(&self, node: &Node, leader: usize) -> Option<Node> {
        let mut header = self.header(node);
        header.seal(self.own_seal(leader)).ok()?;
        let mut sealed = Node { seal: leader as u8 + 2, ..*node };
        if !header.is_complete() && !self.lacks(Rule::Empty) {
            (sealed.register, sealed.end) = (None, None);
        }
        Some(sealed)
    }

    /// Returns whether the node serves a request of this leader, which is for the node's present memory if `is_current`.
    pub(super) fn admits(&self, node: &Node, leader: usize, is_current: bool) -> bool {
        let (header, seal) = (self.header(node), self.own_seal(leader));
        let admits = header.admit(seal, if is_current { PRESENT } else { PAST }).is_ok();
        let term_is_lower = header.seal.is_none_or(|by| by.term <= seal.term);
        admits || self.lacks(Rule::Fence) || (self.lacks(Rule::Exact) && term_is_lower)
    }

    /// Returns whether the node is sealed by another leader, which fences this one off.
    pub(super) fn fences(&self, node: &Node, leader: usize) -> bool {
        let seal = self.own_seal(leader);
        self.header(node).seal.is_some_and(|by| by != seal && by.term >= seal.term)
    }

    /// Serves a leader's write, which the node has admitted.
    pub(super) fn write(&self, node: &mut Node, leader: usize, seq: u8, value: Value) {
        let term = self.term(leader);
        let mut header = self.header(node);
        if self.lacks(Rule::MarkedRegister) && header.is_complete() {
            header.mark = Some(token(term));
        }
        let same = value.is_assigned() && self.is_same(node.value, value);
        let stored = self.entry(node).map(|entry| match same {
            true => Entry { assignment: id(value), ..entry },
            false => entry,
        });
        let stamp = Stamp { term: token(term), seq: seq.into() };
        let Ok(Some(entry)) = Entry::write(stored, &header, stamp, id(value)) else { return };
        if self.lacks(Rule::Exact) && node.seal < leader as u8 + 2 {
            node.seal = leader as u8 + 2;
        }
        node.register = entry.register;
        if value.is_assigned() && !same && self.lacks(Rule::CopyRegister) {
            node.register = Some(Register::Open);
        }
        if !same {
            node.end = None;
        } else if self.lacks(Rule::KeepRegister) {
            (node.register, node.end) = (node.register.map(|_| Register::Open), None);
        }
        // An absent record has no stamp: the write removes it.
        (node.value, node.stamp) = (value, if value == Value::Absent { (0, 0) } else { (term, seq) });
    }

    /// Serves a worker's *start*. Returns whether the node has registered it.
    pub(super) fn start(&self, node: &mut Node, assignment: Value) -> bool {
        self.register(node, assignment, Entry::start)
    }

    /// Serves a leader's *void*, which the node has admitted. Returns whether the node has registered it.
    pub(super) fn void(&self, node: &mut Node, assignment: Value) -> bool {
        self.register(node, assignment, Entry::void)
    }

    /// Returns whether the node stores the end that a worker reports.
    pub(super) fn takes_end(&self, node: &Node, assignment: Value) -> bool {
        let entry = self.entry(node);
        entry.zip(id(assignment)).is_some_and(|(entry, id)| entry.takes_end(&self.header(node), id))
    }

    fn register<E>(
        &self,
        node: &mut Node,
        assignment: Value,
        serve: impl FnOnce(&mut Entry, &Header, AssignmentId) -> Result<(), E>,
    ) -> bool {
        let Some(mut entry) = self.entry(node) else { return false };
        if self.lacks(Rule::First) {
            entry.register = entry.register.map(|_| Register::Open);
        }
        let asked = if self.is_same(node.value, assignment) { id(node.value) } else { id(assignment) };
        let registered = asked.is_some_and(|id| serve(&mut entry, &self.header(node), id).is_ok());
        if registered {
            node.register = entry.register;
        }
        registered
    }

    fn entry(&self, node: &Node) -> Option<Entry> {
        let stamp = Stamp { term: token(node.stamp.0), seq: node.stamp.1.into() };
        (node.value != Value::Absent).then(|| Entry {
            stamp,
            assignment: id(node.value),
            register: node.register,
        })
    }

    /// Returns whether two assignments are the same one.
    fn is_same(&self, one: Value, other: Value) -> bool {
        match (one, other) {
            (Value::Assigned(a, v), Value::Assigned(b, w)) if self.lacks(Rule::AssignmentId) => {
                (a.number, v) == (b.number, w)
            }
            _ => one == other,
        }
    }
}

/// Returns the id of an assignment. In the model, the number of the write that created it is that of its generation and
/// worker.
fn id(value: Value) -> Option<AssignmentId> {
    match value {
        Value::Assigned(generation, worker) => Some(AssignmentId {
            term: token(generation.term),
            seq: u64::from(generation.number) * 2 + u64::from(worker),
        }),
        _ => None,
    }
}

fn token(number: u8) -> FencingToken {
    FencingToken::new(number.into())
}
