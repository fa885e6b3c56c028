//! What is in a consumer's hand: how much more may be pulled, what is to be claimed next, what waits and until
//! when. Pure.

use crate::env::BootTime;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The first pause before a message is looked at again, and the longest.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(5);

/// A message, by the order in which it was pulled.
pub(super) type Number = u64;

/// All messages that have been pulled and have not ended.
#[derive(Debug)]
pub(super) struct Hand<M> {
    /// How many may be claimed, or about to be, or at work; and how many more may wait for other workers.
    most: usize,
    patience: Duration,
    pulled: Number,
    held: BTreeMap<Number, Held<M>>,
    fresh: BTreeSet<Number>,
    /// When to look again.
    waiting: BTreeSet<(BootTime, Number)>,
    /// Ids that are being claimed or handled: a twin waits for them.
    busy: BTreeSet<Arc<str>>,
    /// How many wait for others, and so take up no room.
    others: usize,
}

#[derive(Debug)]
struct Held<M> {
    message: Arc<M>,
    id: Arc<str>,
    since: BootTime,
    looks: u32,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// To be claimed.
    Fresh,
    /// Being claimed, handled or handed to the dead-letter hook.
    Busy,
    /// Somebody else's.
    Elsewhere(BootTime),
    /// Too few nodes answered.
    Away(BootTime),
}

impl Place {
    /// Whether it takes up room. What somebody else handles does not keep us from handling other messages.
    fn counts(self) -> bool {
        !matches!(self, Self::Elsewhere(_))
    }
}

impl<M> Hand<M> {
    pub(super) fn new(most: usize, patience: Duration) -> Self {
        Self {
            most,
            patience,
            pulled: 0,
            held: BTreeMap::new(),
            fresh: BTreeSet::new(),
            waiting: BTreeSet::new(),
            busy: BTreeSet::new(),
            others: 0,
        }
    }

    /// How many more messages may be pulled.
    pub(super) fn room(&self) -> usize {
        self.most.saturating_sub(self.held.len() - self.others)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// A message has been pulled, and is to be claimed by `id`.
    pub(super) fn pull(&mut self, message: Arc<M>, id: Arc<str>, now: BootTime) {
        let number = self.add(message, id, now, Place::Fresh);
        self.fresh.insert(number);
    }

    /// A message has been pulled that no claim can have.
    pub(super) fn pull_unusable(&mut self, message: Arc<M>, now: BootTime) -> Number {
        self.add(message, Arc::default(), now, Place::Busy)
    }

    /// What to claim now: each id once.
    pub(super) fn batch(&mut self, now: BootTime) -> Vec<(Number, Arc<str>)> {
        let due = self.waiting.iter().take_while(|(at, _)| *at <= now).map(|(_, number)| *number);
        let mut room = self.room();
        let mut batch = Vec::new();
        for number in due.chain(self.fresh.iter().copied()).collect::<Vec<_>>() {
            let Some(held) = self.held.get(&number) else { continue };
            let (id, place) = (Arc::clone(&held.id), held.place);
            if self.busy.contains(&id) {
                // A twin: it will be known to be done soon. Where too many wait already it takes up room.
                match place {
                    Place::Away(_) => self.wait(number, Place::Away(now + LOOK_AGAIN)),
                    Place::Fresh if self.others >= self.most => {}
                    _ => self.wait(number, Place::Elsewhere(now + LOOK_AGAIN)),
                }
                continue;
            }
            if !place.counts() {
                if room == 0 {
                    continue;
                }
                room -= 1;
            }
            self.move_to(number, Place::Busy);
            self.busy.insert(Arc::clone(&id));
            batch.push((number, id));
        }
        batch
    }

    /// Somebody else handles it, and may be done after `retry_after`: it waits, or it is to be left to the source
    /// (`false`).
    pub(super) fn elsewhere(&mut self, number: Number, retry_after: Option<Duration>, now: BootTime) -> bool {
        let others = self.others;
        let Some(held) = self.held.get_mut(&number) else { return true };
        let left = now.until(held.since + self.patience);
        // What is left to the source keeps its id until it has ended: a twin that went ahead would lose the mark by that end.
        if left.is_zero() || others >= self.most {
            return false;
        }
        // Whoever has it is seldom at it for as long as its claim could last.
        let pause = pause(held.looks).min(retry_after.unwrap_or(Duration::MAX).max(LOOK_AGAIN)).min(left);
        held.looks += 1;
        self.idle(number);
        self.wait(number, Place::Elsewhere(now + pause));
        true
    }

    /// Too few nodes answered: it waits, and takes up room. Whether that is news.
    pub(super) fn away(&mut self, number: Number, now: BootTime) -> bool {
        self.idle(number);
        let Some(held) = self.held.get_mut(&number) else { return false };
        let (first, pause) = (held.looks == 0, pause(held.looks));
        held.looks += 1;
        self.wait(number, Place::Away(now + pause));
        first
    }

    /// When something is to be looked at again.
    pub(super) fn next_look(&self) -> Option<BootTime> {
        // Without room only what takes up room already can be.
        let room = self.room() > 0;
        let can = |number: &Number| room || self.held.get(number).is_some_and(|held| held.place.counts());
        self.waiting.iter().find(|(_, number)| can(number)).map(|(at, _)| *at)
    }

    /// The message itself.
    pub(super) fn message(&self, number: Number) -> Option<&Arc<M>> {
        self.held.get(&number).map(|held| &held.message)
    }

    /// It has ended: the message, and since when it was here.
    pub(super) fn end(&mut self, number: Number) -> Option<(Arc<M>, BootTime)> {
        self.idle(number);
        self.move_to(number, Place::Busy);
        self.held.remove(&number).map(|held| (held.message, held.since))
    }

    /// Everything that has not ended.
    pub(super) fn rest(&self) -> Vec<Number> {
        self.held.keys().copied().collect()
    }

    fn add(&mut self, message: Arc<M>, id: Arc<str>, since: BootTime, place: Place) -> Number {
        self.pulled += 1;
        self.held.insert(self.pulled, Held { message, id, since, looks: 0, place });
        self.pulled
    }

    /// Its id may be claimed again.
    fn idle(&mut self, number: Number) {
        if let Some(held) = self.held.get(&number)
            && held.place == Place::Busy
        {
            self.busy.remove(&held.id);
        }
    }

    fn wait(&mut self, number: Number, place: Place) {
        self.move_to(number, place);
        if let Place::Elsewhere(at) | Place::Away(at) = place {
            self.waiting.insert((at, number));
        }
    }

    fn move_to(&mut self, number: Number, place: Place) {
        let Some(held) = self.held.get_mut(&number) else { return };
        if let Place::Elsewhere(at) | Place::Away(at) = held.place {
            self.waiting.remove(&(at, number));
        }
        self.fresh.remove(&number);
        self.others -= usize::from(!held.place.counts());
        self.others += usize::from(!place.counts());
        held.place = place;
    }
}

/// Longer each time.
fn pause(looks: u32) -> Duration {
    LOOK_AGAIN.saturating_mul(1 << looks.min(8)).min(LOOK_AT_LEAST_EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    fn hand(most: usize) -> Hand<&'static str> {
        Hand::new(most, Duration::from_secs(10))
    }

    fn pull(hand: &mut Hand<&'static str>, id: &'static str, now: u64) {
        hand.pull(Arc::new(id), id.into(), at(now));
    }

    fn ids(batch: &[(Number, Arc<str>)]) -> Vec<&str> {
        batch.iter().map(|(_, id)| &**id).collect()
    }

    #[test]
    fn no_more_is_pulled_than_can_be_handled() {
        let mut hand = hand(2);
        pull(&mut hand, "a", 0);
        assert_eq!(hand.room(), 1);
        pull(&mut hand, "b", 0);
        assert_eq!(hand.room(), 0);
        let batch = hand.batch(at(0));
        assert_eq!((ids(&batch), hand.room()), (vec!["a", "b"], 0));
        assert!(hand.batch(at(0)).is_empty(), "once");
        assert!(hand.end(batch[0].0).is_some() && hand.end(batch[0].0).is_none());
        assert_eq!(hand.room(), 1);
    }

    #[test]
    fn a_twin_waits_until_the_first_has_ended() {
        let mut hand = hand(4);
        ["a", "a", "b"].iter().for_each(|id| pull(&mut hand, id, 0));
        let batch = hand.batch(at(0));
        assert_eq!(ids(&batch), ["a", "b"]);
        assert_eq!(hand.room(), 2, "the twin takes up none");
        assert_eq!(hand.next_look(), Some(at(100)));
        assert!(hand.batch(at(100)).is_empty() && hand.next_look() == Some(at(200)));
        hand.end(batch[0].0);
        assert_eq!(ids(&hand.batch(at(200))), ["a"]);
    }

    #[test]
    fn twins_without_end_are_not_pulled_without_end() {
        let mut hand = hand(2);
        let mut pulled = 0;
        while hand.room() > 0 {
            pull(&mut hand, "a", 0);
            hand.batch(at(0));
            pulled += 1;
            assert!(pulled < 10);
        }
        assert_eq!(pulled, 4, "one at work, two that wait, and one that takes up room");
    }

    #[test]
    fn what_others_handle_is_looked_at_until_patience_is_over() {
        let mut hand = hand(1);
        pull(&mut hand, "a", 0);
        let mut looks = Vec::new();
        let mut now = at(0);
        loop {
            let batch = hand.batch(now);
            assert_eq!(ids(&batch), ["a"], "at {now:?}");
            if !hand.elsewhere(batch[0].0, Some(Duration::from_secs(60)), now) {
                hand.end(batch[0].0);
                break;
            }
            assert_eq!(hand.room(), 1);
            now = hand.next_look().unwrap();
            looks.push(now);
        }
        assert_eq!(looks, [100, 300, 700, 1500, 3100, 6300, 10_000].map(at));
        // As soon as the other's claim may have ended, where that is known.
        pull(&mut hand, "b", 20_000);
        let batch = hand.batch(at(20_000));
        assert!(hand.elsewhere(batch[0].0, Some(Duration::from_millis(1)), at(20_000)));
        assert_eq!(hand.next_look(), Some(at(20_100)));
    }

    #[test]
    fn what_is_left_to_the_source_keeps_its_id_until_it_has_ended() {
        let mut hand = Hand::new(4, Duration::ZERO);
        ["a", "a", "a"].iter().for_each(|id| pull(&mut hand, id, 0));
        let first = hand.batch(at(0));
        assert!(!hand.elsewhere(first[0].0, None, at(0)), "without patience");
        assert!(hand.batch(at(100)).is_empty(), "it has not ended yet");
        hand.end(first[0].0);
        assert_eq!(ids(&hand.batch(at(200))), ["a"]);
        assert!(hand.batch(at(300)).is_empty(), "one of them at a time");
    }

    #[test]
    fn those_that_wait_for_others_are_bounded_too() {
        let mut hand = hand(1);
        for (id, waits) in [("a", true), ("b", false)] {
            pull(&mut hand, id, 0);
            let batch = hand.batch(at(0));
            assert_eq!(hand.elsewhere(batch[0].0, None, at(0)), waits, "{id}");
            if !waits {
                hand.end(batch[0].0);
            }
        }
        // And they do not go before their turn where there is no room.
        pull(&mut hand, "c", 0);
        assert_eq!(ids(&hand.batch(at(500))), ["c"]);
        assert_eq!(hand.next_look(), None, "nothing to wake for");
    }

    #[test]
    fn without_a_quorum_messages_keep_their_room_and_wait_longer_each_time() {
        let mut hand = hand(1);
        pull(&mut hand, "a", 0);
        for next in [100, 300, 700] {
            let now = hand.next_look().unwrap_or(at(0));
            let batch = hand.batch(now);
            assert_eq!(hand.away(batch[0].0, now), next == 100, "news once");
            assert_eq!((hand.room(), hand.next_look()), (0, Some(at(next))));
        }
    }
}
