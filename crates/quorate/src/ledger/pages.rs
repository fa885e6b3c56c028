use crate::{
    node::{Cause, Cursor, FencingToken, LedgerState, Record, Refusal, Reply},
    trust::NodeEpoch,
    vote::{Answer, NodeOutcome},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The most pages that are read of one node. At [`crate::node::PAGE_RECORDS`] a page that is two million records; a
/// node whose pages are empty, or never end, is given up.
const PAGES_MAX: usize = 4096;

/// The most bytes of one node's records that are taken in.
const BYTES_MAX: usize = 256 << 20;

/// What to do about a ledger that nobody can read any more: what has the node forget it, forgets it as a whole and with
/// a new memory, so that nothing is taken for not started.
const MEND: &str = "nobody can read it; empty the nodes (FLUSHALL) one after another, each once the one before votes \
                    again: its records are lost, and what was due before then is told as unknown";

/// What one node has told so far of a ledger, or forgotten of it: page by page. Pure.
///
/// All pages are of one memory of the node, told on one session: where to go on is the server's own word, and a server
/// that came back, though it remembers all, goes another way round.
#[derive(Debug, Default)]
pub(super) struct Pages {
    memory: Option<NodeEpoch>,
    head: (FencingToken, u64),
    records: BTreeMap<Arc<str>, Record>,
    asked: BTreeSet<Cursor>,
    bytes: usize,
}

/// What a page comes to.
#[derive(Debug)]
pub(super) enum Turn {
    /// There is more.
    Ask(Cursor),
    /// That was all.
    Whole,
    /// A later term has sealed the ledger.
    Superseded(FencingToken),
    /// The node has not answered.
    Failed(NodeOutcome),
}

impl Pages {
    /// Takes a page in, from a node whose memory is now the `epoch`-th.
    pub(super) fn take(&mut self, memory: NodeEpoch, epoch: u64, answer: Answer) -> Turn {
        let (page, next) = match answer {
            Answer::Reply(Reply::Ledger(page)) => {
                self.bytes += page.bytes();
                (Some(page.state), page.next)
            }
            Answer::Reply(Reply::Pruned { next }) => (None, next),
            Answer::Reply(Reply::Refused(Refusal::Sealed { by })) => return Turn::Superseded(by),
            other => return Turn::Failed(NodeOutcome::of(&other)),
        };
        let same = |known: NodeEpoch| known.epoch == memory.epoch && known.session == memory.session;
        // A node that may have forgotten since its answer has not answered.
        if memory.epoch != epoch || !self.memory.is_none_or(same) {
            return Turn::Failed(NodeOutcome::Unreachable(Cause::Closed));
        }
        self.memory = Some(memory);
        if let Some(LedgerState { term, low_water, records }) = page {
            self.head = (self.head.0.max(term), self.head.1.max(low_water));
            // What is told twice is told again as it is now.
            self.records.extend(records);
        }
        match next {
            _ if self.bytes > BYTES_MAX => {
                broken(&format!("more than {} MiB of one ledger: {MEND}", BYTES_MAX >> 20))
            }
            None => Turn::Whole,
            Some(_) if self.asked.len() + 1 >= PAGES_MAX => {
                broken(&format!("more than {PAGES_MAX} pages of one ledger: {MEND}"))
            }
            Some(next) if self.asked.insert(next.clone()) => Turn::Ask(next),
            Some(_) => broken("the same page of a ledger again"),
        }
    }

    /// Whether they are of the `epoch`-th memory of the node.
    pub(super) fn is_of(&self, epoch: u64) -> bool {
        self.memory.is_some_and(|memory| memory.epoch == epoch)
    }

    /// Under which memory the node told it all, and what.
    pub(super) fn told(self) -> (NodeEpoch, LedgerState) {
        let (term, low_water) = self.head;
        let records = self.records.into_iter().collect();
        (self.memory.unwrap_or_default(), LedgerState { term, low_water, records })
    }
}

fn broken(what: &str) -> Turn {
    Turn::Failed(NodeOutcome::Unreachable(Cause::Protocol(what.into())))
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
        let state = LedgerState { term: FencingToken::new(3), low_water: 7, records };
        Answer::Reply(Reply::Ledger(LedgerPage { state, next: next.map(Cursor::new) }))
    }

    fn recall(epoch: u64, session: u64) -> NodeEpoch {
        NodeEpoch { epoch, session, ..NodeEpoch::default() }
    }

    fn protocol(turn: &Turn) -> bool {
        matches!(turn, Turn::Failed(NodeOutcome::Unreachable(Cause::Protocol(_))))
    }

    #[test]
    fn pages_come_together_by_key_however_often_they_tell_one() {
        let mut pages = Pages::default();
        assert!(matches!(pages.take(recall(1, 1), 1, page(Some("9"), &["c", "a"])), Turn::Ask(_)));
        assert!(matches!(pages.take(recall(1, 1), 1, page(Some("5"), &[])), Turn::Ask(_)), "an empty one");
        assert!(matches!(pages.take(recall(1, 1), 1, page(None, &["a", "b"])), Turn::Whole));
        let (memory, state) = pages.told();
        assert_eq!(memory, recall(1, 1));
        assert_eq!((state.term, state.low_water), (FencingToken::new(3), 7));
        assert_eq!(state.records.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn all_pages_are_of_one_memory_and_one_session() {
        // The last page's memory and session, and the memory by then.
        for (later, now) in [(recall(2, 1), 2), (recall(1, 2), 1), (recall(1, 1), 2)] {
            let mut pages = Pages::default();
            assert!(matches!(pages.take(recall(1, 1), 1, page(Some("9"), &["a"])), Turn::Ask(_)));
            let turn = pages.take(later, now, page(None, &["b"]));
            assert!(
                matches!(turn, Turn::Failed(NodeOutcome::Unreachable(Cause::Closed))),
                "{later:?}: {turn:?}"
            );
        }
    }

    #[test]
    fn pages_that_go_round_or_never_end_are_no_answer() {
        let mut pages = Pages::default();
        assert!(matches!(pages.take(recall(1, 1), 1, page(Some("9"), &[])), Turn::Ask(_)));
        assert!(protocol(&pages.take(recall(1, 1), 1, page(Some("9"), &[]))));
        let mut pages = Pages::default();
        let end = (0..=PAGES_MAX)
            .position(|number| protocol(&pages.take(recall(1, 1), 1, page(Some(&number.to_string()), &[]))));
        assert_eq!(end, Some(PAGES_MAX - 1));
        let turn = pages.take(recall(1, 1), 1, page(Some("more"), &[]));
        assert!(format!("{turn:?}").contains("empty the nodes"), "{turn:?}");
        let mut pages = Pages { bytes: BYTES_MAX, ..Pages::default() };
        assert!(protocol(&pages.take(recall(1, 1), 1, page(None, &["a"]))), "too long");
    }

    #[test]
    fn a_later_term_and_a_failure_end_it() {
        let by = FencingToken::new(9);
        let sealed = Answer::Reply(Reply::Refused(Refusal::Sealed { by }));
        let turn = Pages::default().take(recall(1, 1), 1, sealed);
        assert!(matches!(turn, Turn::Superseded(term) if term == by));
        let late = Pages::default().take(recall(1, 1), 1, Answer::Failed(Cause::TimedOut));
        assert!(matches!(late, Turn::Failed(NodeOutcome::Unreachable(Cause::TimedOut))));
        let more = Answer::Reply(Reply::Pruned { next: Some(Cursor::new("4")) });
        assert!(matches!(Pages::default().take(recall(1, 1), 1, more), Turn::Ask(_)));
        assert!(matches!(
            Pages::default().take(recall(1, 1), 1, Answer::Reply(Reply::Pruned { next: None })),
            Turn::Whole
        ));
    }
}
