use super::Check;
use crate::{
    harness::{Entry, Event, Truth},
    work::messages::{RETENTION, sent_by},
};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::collections::{BTreeMap, BTreeSet};

/// Checks that every message is done at the end.
#[derive(Debug)]
pub(crate) struct AllDone {
    epoch: BootTime,
    /// The messages that are done: the token of the last completion, and its time.
    done: BTreeMap<u64, (u64, BootTime)>,
    /// The messages before `expected` that no worker has reported as done.
    missing: BTreeSet<u64>,
    expected: u64,
    again: usize,
}

impl AllDone {
    pub(crate) fn new(epoch: BootTime) -> Self {
        Self { epoch, done: BTreeMap::new(), missing: BTreeSet::new(), expected: 0, again: 0 }
    }

    pub(crate) fn done(&self) -> usize {
        self.expected as usize - self.missing.len()
    }

    /// Returns the number of messages that were done again, because too many nodes had lost the record.
    pub(crate) fn again(&self) -> usize {
        self.again
    }

    /// Returns whether every message sent by `when` is done.
    pub(crate) fn are_done(&mut self, when: BootTime) -> bool {
        self.finish(when).is_empty()
    }

    /// Returns, at the end, a violation for each message sent by `when` that is not done.
    pub(crate) fn finish(&mut self, when: BootTime) -> Vec<String> {
        self.expect(when);
        let missing = self.missing.range(..sent_by(self.epoch, when));
        missing.map(|message| format!("messages: message {message} was never done")).collect()
    }

    fn expect(&mut self, now: BootTime) {
        let sent = sent_by(self.epoch, now);
        self.missing.extend(self.expected..sent);
        self.expected = self.expected.max(sent);
    }

    fn is_done(&mut self, message: u64, at: BootTime) {
        self.expect(at);
        self.missing.remove(&message);
    }
}

impl Check for AllDone {
    fn on_event(&mut self, _: Who, entry: &Entry, _: &Truth) -> Vec<String> {
        let at = entry.at();
        match &entry.event {
            Event::MessageDone { message, token, .. } => {
                self.is_done(*message, at);
                let before = self.done.insert(*message, (*token, at));
                self.again += usize::from(before.is_some_and(|(other, _)| other != *token));
            }
            Event::MessageFoundDone { message, .. } => self.is_done(*message, at),
            _ => {}
        }
        Vec::new()
    }

    fn settle(&mut self, now: BootTime, _: &Truth) -> Vec<String> {
        self.expect(now);
        self.done.retain(|_, (_, at)| *at + RETENTION > now);
        Vec::new()
    }

    fn held(&self) -> usize {
        self.done.len() + self.missing.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{at, line, truth, who},
        *,
    };

    #[test]
    fn a_message_that_is_never_done_is_found() {
        let mut check = AllDone::new(at(0));
        let mut reads = |ms, event| assert!(check.on_event(who(0), &line(ms, event), &truth()).is_empty());
        let done = |message, token| Event::MessageDone { message, token, nodes: 5, took: 0 };
        reads(150, done(0, 2));
        reads(250, Event::MessageFoundDone { message: 1, requested: 0 });
        reads(260, done(0, 3));
        assert!(check.are_done(at(200)) && !check.are_done(at(300)));
        assert_eq!((check.finish(at(300)).len(), check.done(), check.again()), (1, 2, 1));
    }
}
