use super::Check;
use crate::{
    journal::{Entry, Event},
    settings::{MAJORITY, RETENTION, sent_at, sent_by},
    truth::Truth,
};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Done records may be gone this long before the end of their retention: TTLs, and clocks.
const EARLY: Duration = Duration::from_secs(5);

/// A message that is done is not claimed again, nor done again, within its retention, unless so many nodes
/// forgot that its record stood on no majority any more. And every message is done in the end.
#[derive(Debug)]
pub(crate) struct Claims {
    epoch: BootTime,
    done: BTreeMap<u64, Done>,
    /// Claims whose message may yet prove to have been done before they were asked for.
    claimed: BTreeMap<u64, Vec<(BootTime, u64, Who)>>,
    /// The messages of which no one has said that they are done, up to `seen`.
    missing: BTreeSet<u64>,
    seen: u64,
    again: usize,
}

#[derive(Clone, Copy, Debug)]
struct Done {
    /// When the worker was told so, and when it had begun to record it.
    at: BootTime,
    began: BootTime,
    token: u64,
    nodes: usize,
}

impl Claims {
    pub(crate) fn new(epoch: BootTime) -> Self {
        let (done, claimed) = (BTreeMap::new(), BTreeMap::new());
        Self { epoch, done, claimed, missing: BTreeSet::new(), seen: 0, again: 0 }
    }

    /// How many messages have been sent and done.
    pub(crate) fn done(&self) -> usize {
        self.seen as usize - self.missing.len()
    }

    /// How many were done again, because too many nodes had forgotten that they were done.
    pub(crate) fn again(&self) -> usize {
        self.again
    }

    /// Whether every message sent by `when` is done.
    pub(crate) fn all_done(&mut self, when: BootTime) -> bool {
        self.expect(when);
        self.missing.range(..sent_by(self.epoch, when)).next().is_none()
    }

    /// At the end: the messages sent by `when` that nobody has done.
    pub(crate) fn finish(&mut self, when: BootTime) -> Vec<String> {
        self.expect(when);
        let sent = sent_by(self.epoch, when);
        self.missing
            .range(..sent)
            .map(|message| format!("claims: message {message} was never done"))
            .collect()
    }

    fn expect(&mut self, now: BootTime) {
        let sent = sent_by(self.epoch, now);
        if sent > self.seen {
            self.missing.extend(self.seen..sent);
            self.seen = sent;
        }
    }

    fn is_done(&mut self, message: u64, at: BootTime) {
        self.expect(at);
        self.missing.remove(&message);
    }

    /// What is wrong with a claim that was asked for at `asked`.
    fn redone(&self, message: u64, asked: BootTime, token: u64, who: Who, truth: &Truth) -> Option<String> {
        let done = self.done.get(&message)?;
        let again = done.token != token && asked > done.at && done.at.until(asked) < RETENTION - EARLY;
        let excused = done.nodes.saturating_sub(truth.losses(done.began, asked)) < MAJORITY;
        (again && !excused).then(|| {
            format!(
                "claims: {who:?} claimed message {message} with token {token} {:?} after it was done with token \
                 {} on {} nodes",
                done.at.until(asked),
                done.token,
                done.nodes
            )
        })
    }
}

impl Check for Claims {
    fn take(&mut self, who: Who, entry: &Entry, truth: &Truth) -> Vec<String> {
        let at = entry.at();
        match &entry.event {
            Event::Held { res, token, asked, .. } => {
                let Some(message) = res.strip_prefix("claim/").and_then(|id| id.parse().ok()) else {
                    return Vec::new();
                };
                let asked = BootTime::from_nanos(*asked);
                self.claimed.entry(message).or_default().push((asked, *token, who));
                self.redone(message, asked, *token, who, truth).into_iter().collect()
            }
            Event::Done { message, token, nodes, took } => {
                self.is_done(*message, at);
                let began = at - Duration::from_micros(*took);
                let done = Done { at, began, token: *token, nodes: *nodes };
                let mut found = Vec::new();
                match self.done.get(message).copied() {
                    Some(other) if other.token != *token => {
                        self.again += 1;
                        let (first, later) = if other.at < at { (other, done) } else { (done, other) };
                        let excused =
                            first.nodes.saturating_sub(truth.losses(first.began, later.at)) < MAJORITY;
                        if !excused && first.at.until(later.at) < RETENTION - EARLY {
                            found.push(format!(
                                "claims: message {message} was done twice: {first:?}, {later:?}"
                            ));
                        }
                        self.done.insert(*message, later);
                    }
                    _ => {
                        self.done.insert(*message, done);
                        // A claim whose line came before this one's.
                        let claims = self.claimed.get(message).cloned().unwrap_or_default();
                        let redone = claims.into_iter();
                        found.extend(redone.filter_map(|(asked, token, who)| {
                            self.redone(*message, asked, token, who, truth)
                        }));
                    }
                }
                found
            }
            Event::Seen { message } => {
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

    fn watching(&self) -> usize {
        self.done.len() + self.claimed.len() + self.missing.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{at, judge, line},
        *,
    };

    fn claim(asked: u64, message: u64, token: u64) -> Entry {
        let res = format!("claim/{message}").into();
        line(asked + 2, Event::Held { res, token, asked: asked * 1_000_000, until: 0 })
    }

    fn done(ms: u64, message: u64, token: u64, nodes: usize) -> Entry {
        line(ms, Event::Done { message, token, nodes, took: 0 })
    }

    fn found(truth: &Truth, lines: &[(usize, Entry)]) -> usize {
        judge(&mut Claims::new(at(0)), truth, lines).len()
    }

    #[test]
    fn claimed_again_after_an_abandonment_is_good_and_after_done_is_not() {
        let good = [(0, claim(100, 0, 1)), (1, claim(200, 0, 2)), (1, done(300, 0, 2, 5))];
        assert_eq!(found(&Truth::default(), &good), 0);
        let bad = [good.to_vec(), vec![(0, claim(400, 0, 3))]].concat();
        assert_eq!(found(&Truth::default(), &bad), 1);
        let late_line = [(0, claim(400, 0, 3)), (1, claim(200, 0, 2)), (1, done(300, 0, 2, 5))];
        assert_eq!(found(&Truth::default(), &late_line), 1);
    }

    #[test]
    fn done_twice_is_found() {
        let twice = [(0, done(300, 0, 2, 5)), (1, done(350, 0, 3, 5))];
        assert_eq!(found(&Truth::default(), &twice), 1);
    }

    #[test]
    fn what_no_majority_can_remember_is_excused_and_nothing_else() {
        let lines = |nodes| [(1, done(5000, 0, 2, nodes)), (0, claim(9000, 0, 3))];
        let mut truth = Truth::default();
        assert_eq!(found(&truth, &lines(3)), 1);
        truth.forgot(0, at(7000));
        assert_eq!(found(&truth, &lines(3)), 0, "a bare majority does not survive one");
        truth.forgot(1, at(7000));
        assert_eq!(found(&truth, &lines(5)), 1, "three of five are left");
        truth.forgot(2, at(7000));
        assert_eq!(found(&truth, &lines(5)), 0);
        let mut check = Claims::new(at(0));
        let twice = [(0, done(300, 0, 2, 5)), (1, done(9000, 0, 3, 5))];
        assert_eq!(judge(&mut check, &truth, &twice).len(), 0);
        assert_eq!(check.again(), 1);
    }

    #[test]
    fn a_message_that_nobody_does_is_found() {
        let mut check = Claims::new(at(0));
        let truth = Truth::default();
        check.take(super::super::testing::who(0), &done(150, 0, 2, 5), &truth);
        check.take(super::super::testing::who(0), &line(250, Event::Seen { message: 1 }), &truth);
        assert!(check.all_done(at(200)) && !check.all_done(at(300)));
        assert_eq!(check.finish(at(200)), Vec::<String>::new());
        assert_eq!(check.finish(at(300)).len(), 1);
    }
}
