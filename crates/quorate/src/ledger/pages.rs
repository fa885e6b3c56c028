use crate::{
    node::{Cause, Cursor, FencingToken, LedgerState, Record, Refusal, Reply},
    trust::NodeEpoch,
    vote::{Answer, NodeOutcome},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The maximum number of pages that are read from one node: at most two million records, at
/// [`crate::node::PAGE_RECORDS`] a page, and fewer if they are long. A node that returns more pages counts as not having
/// answered.
const PAGES_MAX: usize = 4096;

/// The maximum number of bytes of records that are read from one node.
const BYTES_MAX: usize = 256 << 20;

/// The advice in the error for a ledger that is too long to be read. After FLUSHALL, the node has a new
/// memory epoch. So a tick whose record is lost is reported as unknown, and not as *not started*.
const FIX: &str = "it cannot be read; empty the nodes (FLUSHALL) one after another, each once the one before votes \
                   again: its records are lost, and ticks that were due before then are reported as unknown";

/// The pages of a ledger that one node has returned, or has pruned, so far. This type performs no I/O.
///
/// All pages must belong to one memory epoch of the node, and come on one session. A cursor is valid only for
/// one run of the server: after a restart, the server iterates in another order, even if it has kept all data.
#[derive(Debug, Default)]
pub(super) struct Pages {
    memory: Option<NodeEpoch>,
    low_water: u64,
    /// The records, in the order in which they came. A record may occur twice.
    records: Vec<(Arc<str>, Record)>,
    cursors: BTreeSet<Cursor>,
    bytes: usize,
}

/// The result of handling one page.
#[derive(Debug)]
pub(super) enum PageResult {
    /// There is another page.
    More(Cursor),
    /// The page was the last one.
    Complete,
    /// The leader of a later term has sealed the copy of the ledger.
    Superseded(FencingToken),
    /// The node's answer does not count.
    Failed(NodeOutcome),
}

impl Pages {
    /// Handles a page of a node. `memory` is the memory epoch in which the node answered, and `epoch` its
    /// present one.
    pub(super) fn take(&mut self, memory: NodeEpoch, epoch: u64, answer: Answer) -> PageResult {
        let (page, next) = match answer {
            Answer::Reply(Reply::Ledger(page)) => {
                self.bytes += page.bytes();
                (Some(page.state), page.next)
            }
            Answer::Reply(Reply::Pruned { next }) => (None, next),
            Answer::Reply(Reply::Refused(Refusal::Sealed { by })) => return PageResult::Superseded(by),
            other => return PageResult::Failed(NodeOutcome::of(&other)),
        };
        let same = |known: NodeEpoch| known.epoch == memory.epoch && known.session == memory.session;
        // If the node may have lost its memory since it answered the first page, or since it answered this one,
        // its answer does not count.
        if memory.epoch != epoch || !self.memory.is_none_or(same) {
            return PageResult::Failed(NodeOutcome::Unreachable(Cause::Closed));
        }
        self.memory = Some(memory);
        if let Some(LedgerState { low_water, records }) = page {
            self.low_water = self.low_water.max(low_water);
            self.records.extend(records);
        }
        match next {
            _ if self.bytes > BYTES_MAX => {
                protocol_error(&format!("more than {} MiB of one ledger: {FIX}", BYTES_MAX >> 20))
            }
            None => PageResult::Complete,
            Some(_) if self.cursors.len() + 1 >= PAGES_MAX => {
                protocol_error(&format!("more than {PAGES_MAX} pages of one ledger: {FIX}"))
            }
            Some(next) if self.cursors.insert(next.clone()) => PageResult::More(next),
            Some(_) => protocol_error("a page of a ledger was returned twice"),
        }
    }

    /// Returns whether the pages belong to the node's memory epoch `epoch`.
    pub(super) fn is_of(&self, epoch: u64) -> bool {
        self.memory.is_some_and(|memory| memory.epoch == epoch)
    }

    /// Returns the memory of the node, and the ledger that it stores, with each record once, in the order of the keys.
    pub(super) fn into_state(self) -> (NodeEpoch, LedgerState) {
        let (memory, mut state) = self.into_unsorted();
        // HSCAN may return a record twice. The second copy is the same or newer, so it replaces the first.
        let records: BTreeMap<Arc<str>, Record> = state.records.into_iter().collect();
        state.records = records.into_iter().collect();
        (memory, state)
    }

    /// Returns the same as [`Pages::into_state`], but with the records in the order in which they came, and with both
    /// copies of a record that came twice. Sorting the records of very many jobs would take longer than parsing them.
    pub(super) fn into_unsorted(self) -> (NodeEpoch, LedgerState) {
        let state = LedgerState { low_water: self.low_water, records: self.records };
        (self.memory.unwrap_or_default(), state)
    }
}

fn protocol_error(what: &str) -> PageResult {
    PageResult::Failed(NodeOutcome::Unreachable(Cause::Protocol(what.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::LedgerPage;

    fn page(next: Option<&str>, keys: &[&str]) -> Answer {
        let record = |key: &&str| {
            let record = Record { at: 1, term: FencingToken::new(3), last: false, value: "v".into() };
            (Arc::from(*key), record)
        };
        let records = keys.iter().map(record).collect();
        let state = LedgerState { low_water: 7, records };
        Answer::Reply(Reply::Ledger(LedgerPage { state, next: next.map(Cursor::new) }))
    }

    fn memory(epoch: u64, session: u64) -> NodeEpoch {
        NodeEpoch { epoch, session, ..NodeEpoch::default() }
    }

    fn protocol(result: &PageResult) -> bool {
        matches!(result, PageResult::Failed(NodeOutcome::Unreachable(Cause::Protocol(_))))
    }

    #[test]
    fn pages_are_merged_by_key() {
        let mut pages = Pages::default();
        assert!(matches!(pages.take(memory(1, 1), 1, page(Some("9"), &["c", "a"])), PageResult::More(_)));
        assert!(
            matches!(pages.take(memory(1, 1), 1, page(Some("5"), &[])), PageResult::More(_)),
            "an empty page"
        );
        assert!(matches!(pages.take(memory(1, 1), 1, page(None, &["a", "b"])), PageResult::Complete));
        let keys =
            |state: &LedgerState| state.records.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>();
        let unsorted = pages.records.iter().map(|(key, _)| &**key).collect::<Vec<_>>();
        assert_eq!(unsorted, ["c", "a", "a", "b"]);
        let (of, state) = pages.into_state();
        assert_eq!(of, memory(1, 1));
        assert_eq!(state.low_water, 7);
        assert_eq!(keys(&state), ["a", "b", "c"]);
    }

    #[test]
    fn all_pages_must_be_of_one_memory_and_one_session() {
        // Each case has the memory epoch and session of the last page, and the node's present memory epoch. In
        // each case one of them differs from the first page.
        for (later, now) in [(memory(2, 1), 2), (memory(1, 2), 1), (memory(1, 1), 2)] {
            let mut pages = Pages::default();
            assert!(matches!(pages.take(memory(1, 1), 1, page(Some("9"), &["a"])), PageResult::More(_)));
            let result = pages.take(later, now, page(None, &["b"]));
            assert!(
                matches!(result, PageResult::Failed(NodeOutcome::Unreachable(Cause::Closed))),
                "{later:?}: {result:?}"
            );
        }
    }

    #[test]
    fn pages_that_repeat_or_never_end_do_not_count() {
        let mut pages = Pages::default();
        assert!(matches!(pages.take(memory(1, 1), 1, page(Some("9"), &[])), PageResult::More(_)));
        assert!(protocol(&pages.take(memory(1, 1), 1, page(Some("9"), &[]))));
        let mut pages = Pages::default();
        let end = (0..=PAGES_MAX)
            .position(|number| protocol(&pages.take(memory(1, 1), 1, page(Some(&number.to_string()), &[]))));
        assert_eq!(end, Some(PAGES_MAX - 1));
        let result = pages.take(memory(1, 1), 1, page(Some("more"), &[]));
        assert!(format!("{result:?}").contains("empty the nodes"), "{result:?}");
        let mut pages = Pages { bytes: BYTES_MAX, ..Pages::default() };
        assert!(protocol(&pages.take(memory(1, 1), 1, page(None, &["a"]))), "too long");
    }

    #[test]
    fn a_later_term_and_a_failure_end_the_read() {
        let by = FencingToken::new(9);
        let sealed = Answer::Reply(Reply::Refused(Refusal::Sealed { by }));
        let result = Pages::default().take(memory(1, 1), 1, sealed);
        assert!(matches!(result, PageResult::Superseded(term) if term == by));
        let late = Pages::default().take(memory(1, 1), 1, Answer::Failed(Cause::TimedOut));
        assert!(matches!(late, PageResult::Failed(NodeOutcome::Unreachable(Cause::TimedOut))));
        let more = Answer::Reply(Reply::Pruned { next: Some(Cursor::new("4")) });
        assert!(matches!(Pages::default().take(memory(1, 1), 1, more), PageResult::More(_)));
        assert!(matches!(
            Pages::default().take(memory(1, 1), 1, Answer::Reply(Reply::Pruned { next: None })),
            PageResult::Complete
        ));
    }
}
