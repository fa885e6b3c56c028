use super::{belief::Belief, moment, process};
use crate::harness::{Entry, Event, Truth};
use quorate::env::BootTime;
use quorate_testkit::history::{Findings, History, Limits, Message, MessageCall, Operation};
use quorate_tests::support::Who;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// A done record may expire this much before its retention has passed, because of TTLs and differences between clocks.
const EARLY: Duration = Duration::from_secs(5);

/// The claims of messages: no two workers believe in one at the same time, their tokens grow, and a message that is done is
/// neither claimed nor handled again within its retention, unless so many nodes lost their data that no majority stores its
/// record.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// The time for which nodes remember that a message is done. `None` if the plan is over by then.
    retention: Option<Duration>,
    history: History<Message>,
    claimed: BTreeMap<(u64, u64), Belief>,
    /// The completions whose records may be lost, by message and token.
    done: BTreeMap<(u64, u64), Done>,
}

#[derive(Clone, Copy, Debug)]
struct Done {
    who: Who,
    began: BootTime,
    /// The number of nodes that stored the record. `None` if the worker does not know the result.
    nodes: Option<usize>,
    is_forgotten: bool,
}

impl Done {
    /// Returns the earliest time at which the record may be lost: so many nodes have lost their data that no majority may
    /// store it, or its retention is over. Returns `None` if a majority still stores it at `now`.
    fn lost_from(&self, retention: Option<Duration>, now: BootTime, truth: &Truth) -> Option<BootTime> {
        let spare = self.nodes.unwrap_or(truth.majority()).saturating_sub(truth.majority());
        let lost = truth.lost_by(self.began, spare + 1);
        let expired = retention.map(|retention| self.began + (retention - EARLY));
        lost.into_iter().chain(expired.filter(|expired| *expired < now)).min()
    }
}

impl Messages {
    pub(crate) fn retained_for(retention: Duration) -> Self {
        Self { retention: Some(retention), ..Self::default() }
    }

    pub(crate) fn on_event(&mut self, who: Who, entry: &Entry, truth: &Truth) {
        let at = entry.at();
        match &entry.event {
            Event::Acquired { resource, token, requested, until } => {
                let Some(message) = message(resource) else { return };
                let requested = BootTime::from_nanos(*requested).min(at);
                let call = MessageCall::Claimed { token: *token };
                self.push(message, Operation::during(&process(who), call, moment(requested), moment(at)));
                let belief = Belief::acquired(who, requested, at, BootTime::from_nanos(*until));
                self.claimed.insert((message, *token), belief);
            }
            Event::Valid { resource, token, until } => {
                let claimed = message(resource).and_then(|message| self.claimed.get_mut(&(message, *token)));
                if let Some(belief) = claimed {
                    belief.is_valid(at, BootTime::from_nanos(*until));
                }
            }
            // The worker abandons or completes the claim next. It does not write which of them.
            Event::Releasing { resource, token } => {
                let Some(message) = message(resource) else { return };
                self.ended(message, *token, at, None);
                let done = Done { who, began: at, nodes: None, is_forgotten: false };
                self.done.insert((message, *token), done);
            }
            Event::Ended { resource, token } => {
                let Some(message) = message(resource) else { return };
                let belief = self.claimed.get(&(message, *token));
                let last = belief.map_or(at, |belief| belief.lasted(truth, at));
                self.ended(message, *token, last, Some(at));
            }
            Event::MessageDone { message, token, nodes, took } => {
                let began = at - Duration::from_micros(*took);
                let call = MessageCall::Completed { token: *token };
                self.push(*message, Operation::during(&process(who), call, moment(began), moment(at)));
                let done = Done { who, began, nodes: Some(*nodes), is_forgotten: false };
                self.done.insert((*message, *token), done);
            }
            Event::MessageFoundDone { message, requested } => {
                let begin = BootTime::from_nanos(*requested).min(at);
                let call = MessageCall::FoundDone;
                self.push(*message, Operation::during(&process(who), call, moment(begin), moment(at)));
            }
            // Here a worker does not check its claims, so each may have ended at any time.
            Event::BatchClaimed { requested, claimed, done } => {
                let begin = BootTime::from_nanos(*requested);
                for (message, token) in claimed {
                    let call = MessageCall::Claimed { token: *token };
                    self.push(*message, Operation::during(&process(who), call, moment(begin), moment(at)));
                    self.claimed.insert((*message, *token), Belief::acquired(who, begin, begin, begin));
                    let done = Done { who, began: at, nodes: None, is_forgotten: false };
                    self.done.insert((*message, *token), done);
                }
                for message in done {
                    let call = MessageCall::FoundDone;
                    self.push(*message, Operation::during(&process(who), call, moment(begin), moment(at)));
                }
            }
            Event::BatchCompleted { requested, stored } => {
                let begin = BootTime::from_nanos(*requested);
                for (message, token) in stored {
                    let call = MessageCall::Completed { token: *token };
                    self.push(*message, Operation::during(&process(who), call, moment(begin), moment(at)));
                    self.done.remove(&(*message, *token));
                }
            }
            _ => {}
        }
    }

    /// Notes the messages whose record may be lost by now.
    pub(crate) fn settle(&mut self, now: BootTime, truth: &Truth) {
        let mut forgotten = Vec::new();
        for ((message, _), done) in self.done.iter_mut().filter(|(_, done)| !done.is_forgotten) {
            if let Some(from) = done.lost_from(self.retention, now, truth) {
                done.is_forgotten = true;
                forgotten.push((*message, done.who, from));
            }
        }
        for (message, who, from) in forgotten {
            self.push(message, Operation::open(&process(who), MessageCall::Forgotten, moment(from)));
        }
    }

    /// Checks the history, after all lines have arrived.
    pub(crate) fn finish(mut self, now: BootTime, truth: &Truth) -> Findings {
        self.settle(now, truth);
        for ((message, token), belief) in std::mem::take(&mut self.claimed) {
            let (ended, last) = (MessageCall::Ended { token }, belief.lasted(truth, now));
            self.push(message, Operation::open(&process(belief.who), ended, moment(last)));
        }
        for ((message, token), done) in std::mem::take(&mut self.done) {
            if done.nodes.is_none() {
                let call = MessageCall::CompleteUnanswered { token };
                self.push(message, Operation::open(&process(done.who), call, moment(done.began)));
            }
        }
        self.history.check(&Limits::default())
    }

    fn ended(&mut self, message: u64, token: u64, from: BootTime, to: Option<BootTime>) {
        let Some(Belief { who, .. }) = self.claimed.remove(&(message, token)) else { return };
        let (process, call, begin) = (process(who), MessageCall::Ended { token }, moment(from));
        self.push(message, Operation { process, call, begin, end: to.map(moment) });
    }

    fn push(&mut self, message: u64, operation: Operation<MessageCall>) {
        let name: Arc<str> = format!("message {message}").into();
        self.history.push(&name, operation);
    }
}

fn message(resource: &str) -> Option<u64> {
    resource.strip_prefix("claim/")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{acquired, at, line, truth, who};

    fn releasing(ms: u64, token: u64) -> Entry {
        line(ms, Event::Releasing { resource: "claim/0".into(), token })
    }

    fn done(ms: u64, token: u64, nodes: usize) -> Entry {
        line(ms, Event::MessageDone { message: 0, token, nodes, took: 500 })
    }

    fn found_done(ms: u64) -> Entry {
        line(ms, Event::MessageFoundDone { message: 0, requested: (ms - 5) * 1_000_000 })
    }

    fn found(truth: &Truth, lines: &[Entry]) -> usize {
        found_in(Messages::default(), truth, lines)
    }

    fn found_in(mut messages: Messages, truth: &Truth, lines: &[Entry]) -> usize {
        lines.iter().for_each(|entry| messages.on_event(who(0), entry, truth));
        let found = messages.finish(at(20_000), truth);
        assert!(found.undecided.is_empty(), "{found:?}");
        found.violations.len()
    }

    #[test]
    fn a_claim_after_the_message_is_done_is_found_unless_nodes_lost_it() {
        let lines =
            [acquired(1000, "claim/0", 1, 3000), releasing(1100, 1), done(1110, 1, 3), found_done(1500)];
        assert_eq!(found(&truth(), &lines), 0);
        let again = [lines.to_vec(), vec![acquired(2000, "claim/0", 2, 4000)]].concat();
        assert_eq!(found(&truth(), &again), 1);
        let reordered = [vec![acquired(2000, "claim/0", 2, 4000)], lines.to_vec()].concat();
        assert_eq!(found(&truth(), &reordered), 1, "in any order of the lines");
        let mut lossy = truth();
        lossy.lost_data(3, at(1900));
        assert_eq!(found(&lossy, &again), 0);
        let mut late = truth();
        late.lost_data(3, at(4000));
        assert_eq!(found(&late, &again), 1, "the claim was before the loss");
    }

    #[test]
    fn a_message_that_is_done_twice_is_found_unless_no_majority_stores_its_record() {
        let twice = |nodes| {
            let first = [acquired(1000, "claim/0", 1, 3000), releasing(1100, 1), done(1110, 1, nodes)];
            let second = [acquired(9000, "claim/0", 2, 9500), releasing(9100, 2), done(9110, 2, 5)];
            [first, second].concat()
        };
        let mut truth = truth();
        assert_eq!(found(&truth, &twice(3)), 1);
        truth.lost_data(0, at(7000));
        assert_eq!(found(&truth, &twice(3)), 0, "a bare majority does not survive one loss");
        truth.lost_data(0, at(7100));
        truth.lost_data(1, at(7200));
        assert_eq!(found(&truth, &twice(5)), 1, "three of five are left");
        truth.lost_data(2, at(7300));
        assert_eq!(found(&truth, &twice(5)), 0);
    }

    #[test]
    fn a_message_may_be_claimed_again_after_its_retention_and_not_before() {
        let retained = Duration::from_secs(10);
        let again = |ms| {
            let lines = [acquired(1000, "claim/0", 1, 3000), releasing(1100, 1), done(1110, 1, 5)];
            let lines = [lines.to_vec(), vec![acquired(ms, "claim/0", 2, ms + 500)]].concat();
            found_in(Messages::retained_for(retained), &truth(), &lines)
        };
        assert_eq!((again(6000), again(6200)), (1, 0));
    }

    #[test]
    fn a_claim_that_was_given_up_may_have_completed_the_message() {
        let given_up = [acquired(1000, "claim/0", 1, 3000), releasing(1100, 1)];
        let then = |next: Entry| found(&truth(), &[given_up.to_vec(), vec![next]].concat());
        assert_eq!((then(found_done(1500)), then(acquired(2000, "claim/0", 2, 4000))), (0, 0));
        assert_eq!(found(&truth(), &[given_up[0].clone(), found_done(1500)]), 1, "no worker completed it");
    }

    #[test]
    fn batches_are_judged_message_by_message() {
        let batch = |ms: u64, claimed: &[(u64, u64)], done: &[u64]| {
            let (claimed, done) = (claimed.to_vec(), done.to_vec());
            line(ms, Event::BatchClaimed { requested: (ms - 5) * 1_000_000, claimed, done })
        };
        let completed = |ms: u64, stored: &[(u64, u64)]| {
            line(ms, Event::BatchCompleted { requested: (ms - 5) * 1_000_000, stored: stored.to_vec() })
        };
        let first = [batch(1000, &[(1, 5), (2, 6)], &[]), completed(1100, &[(1, 5)])];
        let then = |next: Entry| found(&truth(), &[first.to_vec(), vec![next]].concat());
        assert_eq!(then(batch(1200, &[(2, 7)], &[1])), 0, "the completion of 2 is unknown");
        assert_eq!(then(batch(1200, &[], &[1, 2])), 0);
        assert_eq!(then(batch(1200, &[(1, 7)], &[])), 1);
        assert_eq!(found(&truth(), &[batch(1000, &[(1, 5)], &[2])]), 1, "no worker claimed 2");
    }

    #[test]
    fn two_claims_at_one_time_are_found() {
        let valid = line(2500, Event::Valid { resource: "claim/0".into(), token: 1, until: 0 });
        let both = [acquired(1000, "claim/0", 1, 3000), acquired(2000, "claim/0", 2, 4000)];
        assert_eq!(found(&truth(), &both), 0);
        assert_eq!(found(&truth(), &[both.to_vec(), vec![valid]].concat()), 1);
    }
}
