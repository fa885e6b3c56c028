use crate::{
    config::majority,
    node::{Record, Reply},
    vote::Answer,
};

/// The count of the nodes' answers to one write. No I/O.
#[derive(Clone, Debug)]
pub(super) struct WriteTally {
    nodes: usize,
    written: usize,
    against: usize,
    /// The record that a node stores in place of the one to be written.
    other: Option<Record>,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WriteVerdict {
    /// A majority stores the record.
    Written,
    /// No majority can store the record, because a node stores this other one.
    Conflict(Record),
    /// Too few nodes answered.
    NoMajority,
}

impl WriteTally {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes, written: 0, against: 0, other: None }
    }

    pub(super) fn count(&mut self, answer: &Answer) {
        match answer {
            Answer::Reply(Reply::Written) => {
                self.written += 1;
                return;
            }
            Answer::Reply(Reply::Conflict(record)) => self.other = Some(record.clone()),
            _ => {}
        }
        self.against += 1;
    }

    /// Returns whether further answers cannot change the result.
    pub(super) fn is_settled(&self) -> bool {
        let needed = majority(self.nodes);
        self.written >= needed || self.nodes - self.against < needed
    }

    pub(super) fn verdict(&self) -> WriteVerdict {
        match &self.other {
            _ if self.written >= majority(self.nodes) => WriteVerdict::Written,
            Some(record) => WriteVerdict::Conflict(record.clone()),
            None => WriteVerdict::NoMajority,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Cause, FencingToken};

    #[test]
    fn a_majority_decides_and_another_record_is_reported() {
        let other = Record { at: 1, term: FencingToken::default(), last: false, value: "v".into() };
        let (written, conflict) =
            (Answer::Reply(Reply::Written), Answer::Reply(Reply::Conflict(other.clone())));
        let failed = Answer::Failed(Cause::TimedOut);
        let tally = |answers: &[&Answer]| {
            let mut tally = WriteTally::new(3);
            answers.iter().for_each(|answer| tally.count(answer));
            (tally.is_settled(), tally.verdict())
        };
        assert_eq!(tally(&[&written]), (false, WriteVerdict::NoMajority));
        assert_eq!(tally(&[&written, &conflict]), (false, WriteVerdict::Conflict(other.clone())));
        assert_eq!(tally(&[&written, &conflict, &written]), (true, WriteVerdict::Written));
        assert_eq!(tally(&[&failed, &failed]), (true, WriteVerdict::NoMajority));
        assert_eq!(tally(&[&failed, &conflict]), (true, WriteVerdict::Conflict(other)));
    }
}
