use super::Memory;
use crate::{
    config::majority,
    node::{FencingToken, Record, Refusal, Reply},
    vote::Answer,
};

/// Counts the answers to one write. This type performs no I/O.
///
/// A node counts only if its memory covers the time of the record. So no node of the majority that stores the
/// record can have lost an earlier record of that time.
#[derive(Clone, Debug)]
pub struct WriteTally {
    nodes: usize,
    at: u64,
    written: usize,
    against: usize,
    forgotten: usize,
    superseded: Option<FencingToken>,
    other: Option<Record>,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteVerdict {
    /// A majority stores the record, and each of its nodes has a memory that covers the record's time.
    Written,
    /// A later term has sealed the ledger on at least one node, and no majority has stored the record.
    Superseded(FencingToken),
    /// At least one node stores another record, and no majority has stored this one.
    Conflict(Record),
    /// So many nodes cannot remember a record of that time that the remaining nodes are not a majority.
    Forgotten,
    /// Too few nodes answered.
    NoMajority,
}

impl WriteTally {
    /// Creates the tally of a write to `nodes` nodes. A node counts only if its memory covers `at`, in
    /// microseconds since the epoch.
    pub fn new(nodes: usize, at: u64) -> Self {
        Self { nodes, at, written: 0, against: 0, forgotten: 0, superseded: None, other: None }
    }

    /// Counts the answer of one node, whose memory is `memory`. Call this at most once for each node.
    pub fn count(&mut self, memory: Memory, answer: &Answer) {
        match answer {
            Answer::Reply(Reply::Written) if memory.covers(self.at) => {
                self.written += 1;
                return;
            }
            Answer::Reply(Reply::Written | Reply::Refused(Refusal::Pruned)) => self.forgotten += 1,
            Answer::Reply(Reply::Refused(Refusal::Sealed { by })) => {
                self.superseded = self.superseded.max(Some(*by));
            }
            Answer::Reply(Reply::Conflict(record)) => self.other = Some(record.clone()),
            _ => {}
        }
        self.against += 1;
    }

    /// Returns the result, if no further answer can change it.
    pub fn settled(&self) -> Option<WriteVerdict> {
        let needed = majority(self.nodes);
        let open = self.written < needed && self.nodes - self.against >= needed;
        (!open).then(|| self.verdict())
    }

    /// Returns the result for the case that no more answers arrive.
    pub fn verdict(&self) -> WriteVerdict {
        let needed = majority(self.nodes);
        match (self.superseded, &self.other) {
            _ if self.written >= needed => WriteVerdict::Written,
            (Some(by), _) => WriteVerdict::Superseded(by),
            (None, Some(record)) => WriteVerdict::Conflict(record.clone()),
            (None, None) if self.nodes - self.forgotten < needed => WriteVerdict::Forgotten,
            (None, None) => WriteVerdict::NoMajority,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Cause, NodeTime};
    use std::time::Duration;

    const AT: u64 = 100;

    fn memory(since: u64) -> Memory {
        Memory { since: NodeTime::from_micros(since), max_clock_offset: Duration::from_micros(10) }
    }

    fn tally(answers: &[(u64, Answer)]) -> WriteTally {
        let mut tally = WriteTally::new(3, AT);
        for (since, answer) in answers {
            tally.count(memory(*since), answer);
        }
        tally
    }

    fn reply(reply: Reply) -> Answer {
        Answer::Reply(reply)
    }

    #[test]
    fn only_a_majority_that_remembers_counts_as_written() {
        let written = || reply(Reply::Written);
        assert_eq!(tally(&[(0, written())]).settled(), None);
        assert_eq!(tally(&[(0, written()), (90, written())]).settled(), Some(WriteVerdict::Written));
        let young = tally(&[(0, written()), (91, written())]);
        assert_eq!(young.settled(), None, "a node with a later memory does not count");
        assert_eq!(tally(&[(99, written()), (91, written())]).settled(), Some(WriteVerdict::Forgotten));
    }

    #[test]
    fn the_reason_of_a_failure_is_known_once_no_majority_is_left() {
        let record = Record { at: AT, term: FencingToken::new(1), last: false, value: "v".into() };
        let other = || reply(Reply::Conflict(record.clone()));
        let by = FencingToken::new(9);
        let sealed = || reply(Reply::Refused(Refusal::Sealed { by }));
        let late = || Answer::Failed(Cause::TimedOut);
        assert_eq!(tally(&[(0, other())]).settled(), None);
        assert_eq!(
            tally(&[(0, other()), (0, late())]).settled(),
            Some(WriteVerdict::Conflict(record.clone()))
        );
        assert_eq!(tally(&[(0, other()), (0, sealed())]).settled(), Some(WriteVerdict::Superseded(by)));
        assert_eq!(tally(&[(0, late()), (0, late())]).settled(), Some(WriteVerdict::NoMajority));
        let pruned = || reply(Reply::Refused(Refusal::Pruned));
        assert_eq!(tally(&[(0, pruned()), (0, pruned())]).settled(), Some(WriteVerdict::Forgotten));
        assert_eq!(
            tally(&[(0, reply(Reply::Written))]).verdict(),
            WriteVerdict::NoMajority,
            "no more answers came"
        );
    }
}
