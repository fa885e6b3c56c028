use super::{
    leadership::is_lost,
    view::{LedgerView, header_of, present},
};
use crate::{config::majority, ledger::Answered, node::Record};
use std::{collections::BTreeSet, fmt, sync::Arc};

/// The copies that the nodes have of a led ledger, as a reader sees them: which of them are complete.
///
/// # What is not guaranteed
///
/// The nodes are read while a leader may write. A copy is counted against the complete ones that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerCopies(Vec<CopyAtNode>);

/// The copy of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyAtNode {
    /// The name of the node.
    pub node: Arc<str>,
    /// The state of its copy.
    pub state: CopyState,
}

/// The state of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// The node did not answer, or it does not vote.
    Unknown,
    /// The node may have forgotten, and no leader has copied everything to it since.
    Incomplete(Option<Copied>),
    /// The copy counts.
    Complete,
}

/// The part of the ledger that an incomplete copy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The number of records that are the same as in the complete copies.
    pub records: usize,
    /// The number of records of the complete copies.
    pub of: usize,
}

/// The reason why a ledger waits, and what an operator can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The reason.
    pub why: String,
    /// The fix.
    pub fix: &'static str,
}

impl LedgerCopies {
    /// Returns the states of the copies by the headers in `answers`. `names` are the names of all nodes. Returns `None` if no
    /// node that answered has a copy: then there is no such ledger.
    pub(crate) fn of(names: impl IntoIterator<Item = Arc<str>>, answers: &[Answered]) -> Option<Self> {
        answers.iter().find_map(header_of)?;
        let state = |node: usize| match answers.iter().find(|answer| answer.node == node) {
            Some(answer) if present(answer).is_some_and(|header| header.is_complete()) => CopyState::Complete,
            Some(_) => CopyState::Incomplete(None),
            None => CopyState::Unknown,
        };
        let names = names.into_iter().enumerate();
        Some(Self(names.map(|(at, node)| CopyAtNode { node, state: state(at) }).collect()))
    }

    /// Returns copies in these states, in the order of the nodes.
    pub fn new(copies: impl IntoIterator<Item = CopyAtNode>) -> Self {
        Self(copies.into_iter().collect())
    }

    /// Counts what the incomplete copies have. `answers` has all records of the nodes.
    pub(crate) fn count(&mut self, answers: &[Answered]) {
        if !self.is_countable() {
            return;
        }
        let all = LedgerView::of(answers.to_vec()).records;
        for answer in answers {
            let is_copied = |(key, record): &(Arc<str>, Record)| all.get(key) == Some(&record.value);
            let copied = answer.state.records.iter().filter(|stored| is_copied(stored));
            let records = copied.map(|(key, _)| key).collect::<BTreeSet<_>>().len();
            if let Some(CopyAtNode { state: CopyState::Incomplete(copied), .. }) = self.0.get_mut(answer.node)
            {
                *copied = Some(Copied { records, of: all.len() });
            }
        }
    }

    /// Returns the copy of each node, in the order of the node list.
    pub fn nodes(&self) -> &[CopyAtNode] {
        &self.0
    }

    /// Returns the number of complete copies.
    pub fn complete(&self) -> usize {
        self.0.iter().filter(|copy| copy.state == CopyState::Complete).count()
    }

    /// Returns whether a node has an incomplete copy.
    pub fn is_incomplete(&self) -> bool {
        self.incomplete() > 0
    }

    /// Returns whether a node has an incomplete copy, and another one a complete copy to compare it with.
    pub(crate) fn is_countable(&self) -> bool {
        self.is_incomplete() && self.complete() > 0
    }

    fn incomplete(&self) -> usize {
        self.0.iter().filter(|copy| matches!(copy.state, CopyState::Incomplete(_))).count()
    }

    /// Returns why no leader can use the ledger, if that is so although a majority of the nodes votes: too few copies are
    /// complete, and too few nodes have forgotten for a new ledger to begin.
    pub fn waiting(&self) -> Option<Waiting> {
        let (nodes, complete, incomplete) = (self.0.len(), self.complete(), self.incomplete());
        let needed = majority(nodes);
        if complete >= needed || is_lost(nodes, incomplete) || complete + incomplete < needed {
            return None;
        }
        let unknown = self.0.iter().filter(|copy| copy.state == CopyState::Unknown);
        let awaited: Vec<&str> = unknown.map(|copy| &*copy.node).collect();
        let why = format!(
            "the records of the jobs wait for {}: {complete} of {nodes} copies are complete, {needed} required; no run starts \
             until then",
            awaited.join(", ")
        );
        Some(Waiting { why, fix: WAITING_FIX })
    }
}

/// The fix for a ledger that waits.
pub(crate) const WAITING_FIX: &str = "start the node that is away; if it is lost, replace it (`quorate nodes replace`), or start an empty server under its name";

impl fmt::Display for CopyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Incomplete(None) => f.write_str("incomplete"),
            Self::Incomplete(Some(Copied { records, of })) => {
                write!(f, "incomplete, {records} of {of} records")
            }
            Self::Complete => f.write_str("complete"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{
        FencingToken, Incarnation, LedgerState,
        copy::{HEADER_KEY, Header, Seal},
    };

    const NAMES: [&str; 3] = ["a", "b", "c"];

    /// Returns the answer of a node in its memory 1. The copy was sealed and marked in the memory `memory`.
    fn answer(node: usize, (memory, mark): (u64, Option<u64>), records: &[(&str, u64, &str)]) -> Answered {
        let seal = Some(Seal { term: FencingToken::new(9), leader: 1 });
        let header = Header {
            seal,
            mark: mark.map(FencingToken::new),
            ..Header::empty(Incarnation::from_number(memory))
        };
        let record = |&(key, at, value): &(&str, u64, &str)| {
            (key.into(), Record { at, term: FencingToken::new(2), last: false, value: value.into() })
        };
        let header = (HEADER_KEY.into(), header.to_record().unwrap());
        let records = records.iter().map(record).chain([header]).collect();
        let state = LedgerState { records, ..LedgerState::default() };
        Answered { node, memory: Incarnation::from_number(1), state }
    }

    fn copies(answers: &[Answered]) -> Option<LedgerCopies> {
        let mut copies = LedgerCopies::of(NAMES.map(Arc::from), answers)?;
        copies.count(answers);
        Some(copies)
    }

    fn states(answers: &[Answered]) -> Vec<String> {
        copies(answers).unwrap().nodes().iter().map(|copy| copy.state.to_string()).collect()
    }

    #[test]
    fn a_copy_is_complete_with_a_mark_in_the_present_memory() {
        let records = [("job/a", 1, "x")];
        let answers =
            [answer(0, (1, Some(3)), &records), answer(2, (0, Some(3)), &records), answer(1, (1, None), &[])];
        let shown = ["complete", "incomplete, 0 of 1 records", "incomplete, 1 of 1 records"];
        assert_eq!(states(&answers), shown);
        assert_eq!(states(&answers[1..2]), ["unknown", "unknown", "incomplete"], "nothing to compare with");
        let none = Answered { node: 1, ..Answered::default() };
        assert_eq!(copies(std::slice::from_ref(&none)), None, "no group has used this ledger");
        assert_eq!(states(&[none, answers[0].clone()])[1], "incomplete, 0 of 1 records");
    }

    #[test]
    fn records_are_counted_against_the_complete_copies_with_the_latest_mark() {
        let one = answer(0, (1, Some(3)), &[("a", 1, "old"), ("b", 1, "y"), ("c", 4, "")]);
        let two = answer(1, (1, Some(3)), &[("a", 2, "new"), ("b", 1, "y"), ("@a", 2, "its register")]);
        let late = answer(1, (1, Some(2)), &[("z", 9, "removed since")]);
        let part = |values: &[(&str, u64, &str)]| answer(2, (1, None), values);
        for (values, shown) in [
            (&[("a", 2, "new"), ("x", 1, "to be removed")][..], "incomplete, 1 of 2 records"),
            (&[("a", 1, "old")], "incomplete, 0 of 2 records"),
            (&[("a", 5, "new"), ("b", 5, "y")], "incomplete, 2 of 2 records"),
        ] {
            assert_eq!(states(&[one.clone(), two.clone(), part(values)])[2], shown);
        }
        assert_eq!(states(&[one, late, part(&[("b", 1, "y")])])[2], "incomplete, 1 of 2 records");
    }

    #[test]
    fn a_ledger_waits_if_a_majority_may_be_complete_and_too_few_complete_copies_are_seen() {
        use CopyState::{Complete, Unknown};
        let part = CopyState::Incomplete(None);
        let waiting = |states: &[CopyState]| {
            let names = ["a", "b", "c", "d"].into_iter();
            let copies =
                names.zip(states).map(|(node, state)| CopyAtNode { node: node.into(), state: *state });
            LedgerCopies::new(copies).waiting()
        };
        for states in [
            [Complete, Complete, part],
            [Complete, Complete, Unknown],
            [part, part, Complete],
            [part, part, Unknown],
            [Complete, Unknown, Unknown],
        ] {
            assert_eq!(waiting(&states), None, "{states:?}");
        }
        let found = waiting(&[Complete, part, Unknown]).unwrap();
        assert!(found.why.contains("wait for c: 1 of 3 copies are complete, 2 required"), "{found:?}");
        assert_eq!(waiting(&[Complete, part, Complete, part]), None, "no majority can be complete");
    }
}
