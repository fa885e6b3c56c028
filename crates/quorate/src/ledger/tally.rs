use super::Memory;
use crate::{
    config::majority,
    node::{FencingToken, Record, Refusal, Reply},
    vote::Answer,
};

/// What the nodes have said to one write. Pure.
///
/// A node counts for a record only if it would remember it: a majority that has written is one of nodes none of which
/// can have forgotten another record of that time.
#[derive(Clone, Debug)]
pub struct WriteTally {
    nodes: usize,
    at: u64,
    written: usize,
    against: usize,
    forgotten: usize,
    superseded: Option<FencingToken>,
    standing: Option<Record>,
}

/// What a write has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteVerdict {
    /// A majority of the nodes that remember has the record.
    Written,
    /// A later term has sealed the ledger, and no majority is left.
    Superseded(FencingToken),
    /// Another record stands, and no majority is left.
    Standing(Record),
    /// So many nodes cannot remember a record of that time that no majority is left.
    Forgotten,
    /// Too few nodes answered.
    NoMajority,
}

impl WriteTally {
    /// Of the write of a record of the time `at`, in microseconds since the epoch, to so many nodes.
    pub fn new(nodes: usize, at: u64) -> Self {
        Self { nodes, at, written: 0, against: 0, forgotten: 0, superseded: None, standing: None }
    }

    /// Counts one node's answer, and the memory that it was given under. One a node.
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
            Answer::Reply(Reply::Standing(record)) => self.standing = Some(record.clone()),
            _ => {}
        }
        self.against += 1;
    }

    /// What it has come to, once no answer can change that.
    pub fn settled(&self) -> Option<WriteVerdict> {
        let needed = majority(self.nodes);
        let open = self.written < needed && self.nodes - self.against >= needed;
        (!open).then(|| self.verdict())
    }

    /// What it has come to, if no more answers come.
    pub fn verdict(&self) -> WriteVerdict {
        let needed = majority(self.nodes);
        match (self.superseded, &self.standing) {
            _ if self.written >= needed => WriteVerdict::Written,
            (Some(by), _) => WriteVerdict::Superseded(by),
            (None, Some(record)) => WriteVerdict::Standing(record.clone()),
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

    fn says(reply: Reply) -> Answer {
        Answer::Reply(reply)
    }

    #[test]
    fn a_majority_that_remembers_has_written() {
        let written = || says(Reply::Written);
        assert_eq!(tally(&[(0, written())]).settled(), None);
        assert_eq!(tally(&[(0, written()), (90, written())]).settled(), Some(WriteVerdict::Written));
        let young = tally(&[(0, written()), (91, written())]);
        assert_eq!(young.settled(), None, "a node whose memory is younger does not count");
        assert_eq!(tally(&[(99, written()), (91, written())]).settled(), Some(WriteVerdict::Forgotten));
    }

    #[test]
    fn what_stands_in_the_way_is_told_once_no_majority_is_left() {
        let record = Record { at: AT, term: FencingToken::new(1), last: false, value: "v".into() };
        let standing = || says(Reply::Standing(record.clone()));
        let by = FencingToken::new(9);
        let sealed = || says(Reply::Refused(Refusal::Sealed { by }));
        let late = || Answer::Failed(Cause::TimedOut);
        assert_eq!(tally(&[(0, standing())]).settled(), None);
        assert_eq!(
            tally(&[(0, standing()), (0, late())]).settled(),
            Some(WriteVerdict::Standing(record.clone()))
        );
        assert_eq!(tally(&[(0, standing()), (0, sealed())]).settled(), Some(WriteVerdict::Superseded(by)));
        assert_eq!(tally(&[(0, late()), (0, late())]).settled(), Some(WriteVerdict::NoMajority));
        let pruned = || says(Reply::Refused(Refusal::Pruned));
        assert_eq!(tally(&[(0, pruned()), (0, pruned())]).settled(), Some(WriteVerdict::Forgotten));
        assert_eq!(tally(&[(0, says(Reply::Written))]).verdict(), WriteVerdict::NoMajority, "no more came");
    }
}
