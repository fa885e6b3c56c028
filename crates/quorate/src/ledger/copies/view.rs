use super::keeper::REMOVED;
use crate::{
    ledger::{Answered, Ledger, LedgerError},
    node::{
        FencingToken,
        copy::{
            AssignmentId, HEADER_KEY, Header, Register, RegisterRow, Stamp, is_key, run_of_end,
            run_of_register,
        },
    },
};
use std::{
    collections::{BTreeMap, BTreeSet, btree_map},
    sync::Arc,
};

/// The content of a led ledger, as a reader finds it who has sealed nothing.
///
/// # What is not guaranteed
///
/// The nodes are read while a leader writes. So a record may be older than the leader's, and one that the leader has just
/// removed may still be there.
#[derive(Clone, Debug, Default)]
pub(crate) struct LedgerView {
    /// The latest term that has sealed the ledger.
    pub(crate) sealed_by: FencingToken,
    /// The term of the leader that founded the ledger.
    pub(crate) founded: FencingToken,
    /// The values by key.
    pub(crate) records: BTreeMap<Arc<str>, Arc<str>>,
    /// The keys of the records of which a node has registered the start, with their assignments.
    pub(crate) started: BTreeSet<(Arc<str>, AssignmentId)>,
    /// The keys of the records of which a node has the end that the worker reported, with their assignments.
    pub(crate) ended: BTreeSet<(Arc<str>, AssignmentId)>,
}

impl LedgerView {
    /// Reads the records under `keys` of the ledger.
    ///
    /// # Errors
    /// [`LedgerError::NoMajority`] if too few nodes answered.
    pub(crate) async fn read_keys(ledger: &Ledger, keys: &[Arc<str>]) -> Result<Self, LedgerError> {
        Self::ask_keys(ledger, keys).await.map(Self::of)
    }

    /// Returns each node's header and its records under `keys`.
    ///
    /// # Errors
    /// The same as for [`LedgerView::read_keys`].
    pub(crate) async fn ask_keys(ledger: &Ledger, keys: &[Arc<str>]) -> Result<Vec<Answered>, LedgerError> {
        let keys: Vec<Arc<str>> = std::iter::once(HEADER_KEY.into()).chain(keys.iter().cloned()).collect();
        ledger.read_keys(&keys).await
    }

    /// Merges the answers of the nodes. If any copies are complete in the nodes' present memory, only those with the latest
    /// mark count.
    pub(crate) fn of(answers: Vec<Answered>) -> Self {
        let headers: Vec<Option<Header>> = answers.iter().map(header_of).collect();
        let marks: Vec<Option<FencingToken>> =
            answers.iter().map(|answer| present(answer).and_then(|header| header.mark)).collect();
        let seals = headers.iter().flatten().filter_map(|header| header.seal);
        let sealed_by = seals.map(|seal| seal.term).max().unwrap_or_default();
        let latest = marks.iter().copied().max().flatten();
        let counted = headers.iter().zip(&marks).filter(|(_, mark)| **mark == latest);
        let founded = counted.filter_map(|(header, _)| header.map(|header| header.founded)).max();
        let mut stamped: BTreeMap<Arc<str>, (Stamp, Arc<str>)> = BTreeMap::new();
        let counted = answers.into_iter().zip(marks).filter(|(_, mark)| *mark == latest);
        let (mut started, mut ended) = (BTreeSet::new(), BTreeSet::new());
        for (key, record) in counted.flat_map(|(answer, _)| answer.state.records) {
            if !is_key(&key) {
                match (run_of_register(&key), run_of_end(&key)) {
                    (Some(run), _) => {
                        let row = RegisterRow::of_record(&record)
                            .filter(|row| row.register == Some(Register::Started));
                        started.extend(row.map(|row| (Arc::from(run), row.id)));
                    }
                    (None, Some(run)) => drop(ended.insert((Arc::from(run), Stamp::of(&record)))),
                    (None, None) => {}
                }
                continue;
            }
            let found = (Stamp::of(&record), record.value);
            match stamped.entry(key) {
                btree_map::Entry::Vacant(entry) => drop(entry.insert(found)),
                btree_map::Entry::Occupied(mut entry) if entry.get().0 < found.0 => drop(entry.insert(found)),
                btree_map::Entry::Occupied(_) => {}
            }
        }
        let values = stamped.into_iter().map(|(key, (_, value))| (key, value));
        Self {
            sealed_by,
            founded: founded.unwrap_or_default(),
            records: values.filter(|(_, value)| **value != *REMOVED).collect(),
            started,
            ended,
        }
    }
}

/// Returns the header of a node's copy, as the node stores it.
pub(super) fn header_of(answer: &Answered) -> Option<Header> {
    Header::of_record(answer.record(HEADER_KEY)?)
}

/// Returns the header of a node's copy as it counts in the node's present memory.
pub(super) fn present(answer: &Answered) -> Option<Header> {
    header_of(answer).map(|header| header.in_memory(answer.memory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{
        Incarnation, LedgerState, NodeTime, Record,
        copy::{Seal, end_key, end_row, register_key},
    };

    const SEALED_BY: u64 = 7;

    /// Returns the answer of a node with this mark, and with records of these terms and values.
    fn node(mark: Option<u64>, records: &[(&str, u64, &str)]) -> Answered {
        let memory = Incarnation::draw(1, "run", NodeTime::default());
        let seal = Some(Seal { term: FencingToken::new(SEALED_BY), leader: 1 });
        let header = Header { seal, mark: mark.map(FencingToken::new), ..Header::empty(memory) };
        let record = |(key, term, value): &(&str, u64, &str)| {
            let (key, value) = (Arc::from(*key), Arc::from(*value));
            (key, Record { at: 1, term: FencingToken::new(*term), last: false, value })
        };
        let own = (HEADER_KEY.into(), header.to_record().expect("sealed"));
        let records = std::iter::once(own).chain(records.iter().map(record)).collect();
        Answered { memory, state: LedgerState { records, ..LedgerState::default() }, ..Answered::default() }
    }

    fn values(answers: [Answered; 2]) -> Vec<(String, String)> {
        let view = LedgerView::of(answers.into());
        assert_eq!(view.sealed_by.get(), SEALED_BY);
        view.records.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn of_two_values_the_later_counts_in_either_node_order() {
        let (old, new) =
            (node(Some(3), &[("a", 2, "old")]), node(Some(3), &[("a", 3, "new"), ("@a", 3, "")]));
        let new_only = [("a".to_owned(), "new".to_owned())];
        assert_eq!(values([old.clone(), new.clone()]), new_only);
        assert_eq!(values([new, old]), new_only, "the rows of the copy itself are no records");
    }

    #[test]
    fn only_the_copies_with_the_latest_mark_count() {
        let latest = node(Some(3), &[("a", 2, "counts")]);
        for other in [Some(2), None] {
            let behind = node(other, &[("a", 9, "not acknowledged"), ("b", 1, "removed since")]);
            assert_eq!(values([behind, latest.clone()]), [("a".to_owned(), "counts".to_owned())]);
        }
        assert_eq!(values([node(None, &[("a", 1, "a")]), node(None, &[("b", 1, "b")])]).len(), 2);
    }

    #[test]
    fn a_mark_of_an_earlier_memory_does_not_count() {
        let mut forgot = node(Some(3), &[("a", 9, "came back with old data")]);
        forgot.memory = Incarnation::from_number(2);
        let found = values([forgot, node(Some(2), &[("a", 2, "counts")])]);
        assert_eq!(found, [("a".to_owned(), "counts".to_owned())]);
    }

    /// Returns the registers and the ends of a node as its rows. The keys of both are those of runs.
    fn rows(registers: &[(&str, u64, Option<Register>)], ends: &[(&str, u64)]) -> Vec<(Arc<str>, Record)> {
        let id = |seq| Stamp { term: FencingToken::new(2), seq };
        let memory = Incarnation::default();
        let registers = registers.iter().map(|(run, seq, register)| {
            (register_key(run), RegisterRow { id: id(*seq), memory, register: *register }.to_record())
        });
        let ends = ends.iter().map(|(run, seq)| (end_key(run), end_row(id(*seq), "an end".into())));
        registers.chain(ends).collect()
    }

    fn with_rows(mark: Option<u64>, rows: Vec<(Arc<str>, Record)>) -> Answered {
        let mut answer = node(mark, &[("run/a", 2, "a"), ("run/b", 2, "b")]);
        answer.state.records.extend(rows);
        answer
    }

    fn seqs(found: &BTreeSet<(Arc<str>, AssignmentId)>) -> Vec<(&str, u64)> {
        found.iter().map(|(run, id)| (&**run, id.seq)).collect()
    }

    #[test]
    fn a_run_has_started_or_ended_if_one_node_says_so_of_its_assignment() {
        let (started, open, void) = (Some(Register::Started), Some(Register::Open), Some(Register::Void));
        let one = rows(&[("run/a", 5, open), ("run/b", 6, void)], &[("run/b", 6)]);
        let other = rows(&[("run/a", 5, started), ("run/b", 6, None)], &[]);
        let older = rows(&[("run/a", 4, started)], &[("run/b", 3)]);
        let view = LedgerView::of([one, other, older].map(|rows| with_rows(Some(3), rows)).into());
        assert_eq!(seqs(&view.started), [("run/a", 4), ("run/a", 5)]);
        assert_eq!(seqs(&view.ended), [("run/b", 3), ("run/b", 6)]);
        let keys: Vec<&str> = view.records.keys().map(|key| &**key).collect();
        assert_eq!(keys, ["run/a", "run/b"], "the rows are no records");
    }

    #[test]
    fn starts_and_ends_of_a_copy_with_an_earlier_mark_do_not_count() {
        for earlier in [None, Some(2)] {
            let behind = with_rows(earlier, rows(&[("run/a", 5, Some(Register::Started))], &[("run/b", 6)]));
            let view = LedgerView::of(vec![behind, with_rows(Some(3), Vec::new())]);
            assert_eq!((seqs(&view.started), seqs(&view.ended)), (vec![], vec![]));
        }
    }
}
