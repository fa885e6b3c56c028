use super::Check;
use crate::{
    harness::{Entry, Event, Truth},
    work::messages::{RETENTION, sent_at, sent_by},
};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A done record may expire this much before its retention has passed, because of TTLs and differences between
/// clocks.
const EARLY: Duration = Duration::from_secs(5);

/// Checks that a message that is done is neither claimed nor handled again within its retention. A second
/// claim is excused if so many nodes lost their data that no majority stores the message's record. At the end,
/// every message must be done.
#[derive(Debug)]
pub(crate) struct Claims {
    epoch: BootTime,
    done: BTreeMap<u64, Done>,
    /// The claims of each message, which are kept because the events of two workers arrive in any order. A
    /// later event may show that the message was already done when a claim was requested.
    claimed: BTreeMap<u64, Vec<(BootTime, u64, Who)>>,
    /// The messages before `expected` that no worker has reported as done.
    missing: BTreeSet<u64>,
    expected: u64,
    again: usize,
}

#[derive(Clone, Copy, Debug)]
struct Done {
    /// The time at which the worker learned that the record of the message is stored.
    at: BootTime,
    /// The time at which the worker began to write the record.
    began: BootTime,
    token: u64,
    nodes: usize,
}

impl Done {
    /// Returns whether so many nodes lost their data by `until` that a majority may no longer store the record.
    fn is_forgotten(&self, until: BootTime, truth: &Truth) -> bool {
        self.nodes.saturating_sub(truth.losses(self.began, until)) < truth.majority()
    }

    fn is_retained(&self, at: BootTime) -> bool {
        self.at.until(at) < RETENTION - EARLY
    }
}

impl Claims {
    pub(crate) fn new(epoch: BootTime) -> Self {
        let (done, claimed) = (BTreeMap::new(), BTreeMap::new());
        Self { epoch, done, claimed, missing: BTreeSet::new(), expected: 0, again: 0 }
    }

    /// Returns the number of messages that are done.
    pub(crate) fn done(&self) -> usize {
        self.expected as usize - self.missing.len()
    }

    /// Returns the number of messages that were done again, because too many nodes had lost the record.
    pub(crate) fn again(&self) -> usize {
        self.again
    }

    /// Returns whether every message sent by `when` is done.
    pub(crate) fn all_done(&mut self, when: BootTime) -> bool {
        self.finish(when).is_empty()
    }

    /// Returns, at the end, a violation for each message sent by `when` that is not done.
    pub(crate) fn finish(&mut self, when: BootTime) -> Vec<String> {
        self.expect(when);
        let missing = self.missing.range(..sent_by(self.epoch, when));
        missing.map(|message| format!("claims: message {message} was never done")).collect()
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

    /// Checks a claim that was requested at `requested`. Returns a violation if it should have found the
    /// message done.
    fn redone(
        &self,
        message: u64,
        (requested, token, who): (BootTime, u64, Who),
        truth: &Truth,
    ) -> Option<String> {
        let done = self.done.get(&message)?;
        let again = done.token != token && requested > done.at && done.is_retained(requested);
        (again && !done.is_forgotten(requested, truth)).then(|| {
            format!(
                "claims: {who:?} claimed message {message} at {requested:?} with token {token} after {done:?}"
            )
        })
    }
}

impl Check for Claims {
    fn on_event(&mut self, who: Who, entry: &Entry, truth: &Truth) -> Vec<String> {
        let at = entry.at();
        match &entry.event {
            Event::Acquired { resource, token, requested, .. } => {
                let Some(message) = resource.strip_prefix("claim/").and_then(|id| id.parse().ok()) else {
                    return Vec::new();
                };
                let claim = (BootTime::from_nanos(*requested), *token, who);
                self.claimed.entry(message).or_default().push(claim);
                self.redone(message, claim, truth).into_iter().collect()
            }
            Event::MessageDone { message, token, nodes, took } => {
                self.is_done(*message, at);
                let began = at - Duration::from_micros(*took);
                let done = Done { at, began, token: *token, nodes: *nodes };
                let other = self.done.get(message).copied().filter(|other| other.token != *token);
                let Some(other) = other else {
                    self.done.insert(*message, done);
                    // The events of later claims may have arrived before this event. So this check judges
                    // those claims now.
                    let claims = self.claimed.get(message).into_iter().flatten();
                    return claims.filter_map(|claim| self.redone(*message, *claim, truth)).collect();
                };
                self.again += 1;
                let (first, later) = if other.at < at { (other, done) } else { (done, other) };
                self.done.insert(*message, later);
                let violation = first.is_retained(later.at) && !first.is_forgotten(later.at, truth);
                let text = || format!("claims: message {message} was done twice: {first:?}, {later:?}");
                violation.then(text).into_iter().collect()
            }
            Event::MessageFoundDone { message, .. } => {
                self.is_done(*message, at);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn settle(&mut self, now: BootTime, _: &Truth) -> Vec<String> {
        self.expect(now);
        self.done.retain(|_, done| done.at + RETENTION > now);
        let epoch = self.epoch;
        self.claimed.retain(|message, _| sent_at(epoch, *message) + RETENTION > now);
        Vec::new()
    }

    fn held(&self) -> usize {
        self.done.len() + self.claimed.len() + self.missing.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{acquired, at, judge, line, truth, who},
        *,
    };

    fn claim(ms: u64, message: u64, token: u64) -> Entry {
        acquired(ms + 1, &format!("claim/{message}"), token, 0)
    }

    fn done(ms: u64, message: u64, token: u64, nodes: usize) -> Entry {
        line(ms, Event::MessageDone { message, token, nodes, took: 0 })
    }

    fn found(truth: &Truth, lines: &[(usize, Entry)]) -> usize {
        judge(&mut Claims::new(at(0)), truth, lines).len()
    }

    #[test]
    fn a_claim_after_an_abandoned_one_is_no_violation_and_one_after_done_is() {
        let good = [(0, claim(100, 0, 1)), (1, claim(200, 0, 2)), (1, done(300, 0, 2, 5))];
        assert_eq!(found(&truth(), &good), 0);
        let late = (0, claim(400, 0, 3));
        assert_eq!(found(&truth(), &[good.to_vec(), vec![late.clone()]].concat()), 1);
        assert_eq!(found(&truth(), &[vec![late], good.to_vec()].concat()), 1, "in any order");
        assert_eq!(found(&truth(), &[(0, done(300, 0, 2, 5)), (1, done(350, 0, 3, 5))]), 1);
    }

    #[test]
    fn only_a_record_that_no_majority_stores_excuses_a_second_claim() {
        let lines = |nodes| [(1, done(5000, 0, 2, nodes)), (0, claim(9000, 0, 3))];
        let mut truth = truth();
        assert_eq!(found(&truth, &lines(3)), 1);
        truth.lost_data(0, at(7000));
        assert_eq!(found(&truth, &lines(3)), 0, "a bare majority does not survive one loss");
        truth.lost_data(1, at(7000));
        assert_eq!(found(&truth, &lines(5)), 1, "three of five are left");
        truth.lost_data(2, at(7000));
        assert_eq!(found(&truth, &lines(5)), 0);
        let mut check = Claims::new(at(0));
        let twice = [(0, done(300, 0, 2, 5)), (1, done(9000, 0, 3, 5))];
        assert_eq!(judge(&mut check, &truth, &twice).len(), 0);
        assert_eq!(check.again(), 1);
    }

    #[test]
    fn a_message_that_is_never_done_is_found() {
        let mut check = Claims::new(at(0));
        check.on_event(who(0), &done(150, 0, 2, 5), &truth());
        check.on_event(who(0), &line(250, Event::MessageFoundDone { message: 1, requested: 0 }), &truth());
        assert!(check.all_done(at(200)) && !check.all_done(at(300)));
        assert_eq!(check.finish(at(300)).len(), 1);
    }
}
