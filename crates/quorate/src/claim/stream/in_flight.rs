//! The messages that a consumer has pulled and that have not ended. This type decides how many more may be
//! pulled, which messages are claimed next, and until when the others wait. It performs no I/O.
//!
//! A message occupies one of `most` slots while it is claimed or handled, and while too few nodes answer. Two
//! kinds of messages are in the *waiting room* instead:
//!
//! * a message that another worker handles;
//! * a *twin*: a further copy of a message that is being claimed or handled here.
//!
//! While the waiting room is full, no message is pulled, but messages are still claimed. A waiting message
//! moves to a free slot as soon as its pause is over. So the waiting room always empties.

use crate::env::BootTime;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The first pause before a waiting message is claimed again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The longest pause before a waiting message is claimed again.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(5);

/// The number of a message. Messages are numbered in the order in which they were pulled.
pub(super) type Number = u64;

/// All messages that have been pulled and have not ended.
#[derive(Debug)]
pub(super) struct InFlightWindow<M> {
    /// The number of slots: the maximum number of messages that are being claimed or handled, or wait because
    /// too few nodes answer.
    most: usize,
    /// The number of messages in the waiting room at which pulling stops. Messages that were pulled before
    /// may still join the waiting room.
    max_waiting: usize,
    patience: Duration,
    pulled: Number,
    held: BTreeMap<Number, Held<M>>,
    fresh: BTreeSet<Number>,
    /// The times at which waiting messages are claimed again, both those in the waiting room and those in a
    /// slot.
    waiting: BTreeSet<(BootTime, Number)>,
    /// The ids of the messages that are being claimed or handled. Other messages with these ids wait.
    busy: BTreeSet<Arc<str>>,
    /// The number of messages in the waiting room.
    others: usize,
}

#[derive(Debug)]
struct Held<M> {
    message: Arc<M>,
    id: Arc<str>,
    since: BootTime,
    /// The time at which another worker was first found to handle the message. The message's patience counts
    /// from this time.
    elsewhere_since: Option<BootTime>,
    /// The number of further claims in a row with the same result: another worker handles the message, or too
    /// few nodes answered.
    looks: u32,
    /// True if too few nodes answered the last claim.
    away: bool,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The message was pulled, and has not been claimed yet.
    Fresh,
    /// The message is being claimed, handled or handed to the dead-letter hook.
    Busy,
    /// The message is in the waiting room until this time, because another worker handles it, or a message with
    /// the same id is being handled here.
    Elsewhere(BootTime),
    /// The message waits in its slot until this time, because too few nodes answered its claim.
    Away(BootTime),
}

impl Place {
    /// Returns whether a message in this state occupies a slot. Otherwise it is in the waiting room.
    fn counts(self) -> bool {
        !matches!(self, Self::Elsewhere(_))
    }
}

impl<M> InFlightWindow<M> {
    pub(super) fn new(most: usize, max_waiting: usize, patience: Duration) -> Self {
        Self {
            most,
            max_waiting,
            patience,
            pulled: 0,
            held: BTreeMap::new(),
            fresh: BTreeSet::new(),
            waiting: BTreeSet::new(),
            busy: BTreeSet::new(),
            others: 0,
        }
    }

    /// Returns how many more messages may be pulled.
    pub(super) fn room(&self) -> usize {
        if self.others < self.max_waiting { self.free() } else { 0 }
    }

    /// Returns the number of free slots. A message that is pulled, or that leaves the waiting room, takes a
    /// free slot.
    fn free(&self) -> usize {
        self.most.saturating_sub(self.held.len() - self.others)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Adds a message that was pulled. It must be claimed under `id`.
    pub(super) fn pull(&mut self, message: Arc<M>, id: Arc<str>, now: BootTime) {
        let number = self.add(message, id, now, Place::Fresh);
        self.fresh.insert(number);
    }

    /// Adds a message that was pulled, but needs no claim or cannot be claimed. It occupies a slot.
    pub(super) fn pull_unusable(&mut self, message: Arc<M>, now: BootTime) -> Number {
        self.add(message, Arc::default(), now, Place::Busy)
    }

    /// Returns the messages to claim now, each id at most once, and marks them as busy.
    pub(super) fn batch(&mut self, now: BootTime) -> Vec<(Number, Arc<str>)> {
        let due = self.waiting.iter().take_while(|(at, _)| *at <= now).map(|(_, number)| *number);
        let mut free = self.free();
        let mut batch = Vec::new();
        for number in due.chain(self.fresh.iter().copied()).collect::<Vec<_>>() {
            let Some(held) = self.held.get(&number) else { continue };
            let (id, place) = (Arc::clone(&held.id), held.place);
            if self.busy.contains(&id) {
                // Another message with this id is being handled, and is likely to be done soon. This message
                // waits until then. That wait does not use up the message's patience.
                match place {
                    Place::Away(_) => self.wait(number, Place::Away(now + LOOK_AGAIN)),
                    _ => self.wait(number, Place::Elsewhere(now + LOOK_AGAIN)),
                }
                continue;
            }
            if !place.counts() {
                if free == 0 {
                    continue;
                }
                free -= 1;
            }
            self.move_to(number, Place::Busy);
            self.busy.insert(Arc::clone(&id));
            batch.push((number, id));
        }
        batch
    }

    /// Makes the message wait because another worker handles it and may be done after `retry_after`. If the
    /// message's patience is over, returns `false` instead: the caller then leaves the message to the source.
    pub(super) fn elsewhere(&mut self, number: Number, retry_after: Option<Duration>, now: BootTime) -> bool {
        let patience = self.patience;
        let Some(held) = self.held.get_mut(&number) else { return true };
        let first = held.elsewhere_since.is_none();
        held.away = false;
        let since = *held.elsewhere_since.get_or_insert(now);
        let left = now.until(since + patience);
        // The message is left to the source. Its id stays marked as busy until the message has ended. Otherwise
        // another message with this id could be claimed now, and the end of this message would remove the mark
        // of the other.
        if left.is_zero() {
            return false;
        }
        held.looks = if first { 0 } else { held.looks.saturating_add(1) };
        // The other worker is usually done long before its claim expires. So the pause is short, and
        // `retry_after` only limits it.
        let pause = pause(held.looks).min(retry_after.unwrap_or(Duration::MAX).max(LOOK_AGAIN)).min(left);
        self.idle(number);
        self.wait(number, Place::Elsewhere(now + pause));
        true
    }

    /// Makes the message wait in its slot because too few nodes answered. If a majority later reports that
    /// another worker handles the message, its patience starts again. Returns true if the last claim had
    /// another result: the caller then logs the wait.
    pub(super) fn away(&mut self, number: Number, now: BootTime) -> bool {
        self.idle(number);
        let Some(held) = self.held.get_mut(&number) else { return false };
        let first = !held.away;
        held.elsewhere_since = None;
        held.looks = if first { 0 } else { held.looks.saturating_add(1) };
        held.away = true;
        let pause = pause(held.looks);
        self.wait(number, Place::Away(now + pause));
        first
    }

    /// Returns the next time at which a waiting message must be claimed.
    pub(super) fn next_look(&self) -> Option<BootTime> {
        // If no slot is free, only a message that waits in its slot can be claimed.
        let free = self.free() > 0;
        let can = |number: &Number| free || self.held.get(number).is_some_and(|held| held.place.counts());
        self.waiting.iter().find(|(_, number)| can(number)).map(|(at, _)| *at)
    }

    /// Returns the message with this number, if it has not ended.
    pub(super) fn message(&self, number: Number) -> Option<&Arc<M>> {
        self.held.get(&number).map(|held| &held.message)
    }

    /// Removes a message that has ended. Returns it with the time at which it was pulled.
    pub(super) fn end(&mut self, number: Number) -> Option<(Arc<M>, BootTime)> {
        self.idle(number);
        self.move_to(number, Place::Busy);
        self.held.remove(&number).map(|held| (held.message, held.since))
    }

    /// Returns the numbers of all messages that have not ended.
    pub(super) fn rest(&self) -> Vec<Number> {
        self.held.keys().copied().collect()
    }

    fn add(&mut self, message: Arc<M>, id: Arc<str>, since: BootTime, place: Place) -> Number {
        self.pulled += 1;
        self.held.insert(
            self.pulled,
            Held { message, id, since, elsewhere_since: None, looks: 0, away: false, place },
        );
        self.pulled
    }

    /// Marks the id of a message as not busy, so that another message with this id may be claimed.
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

/// Returns the pause before the next claim. The pause doubles with each earlier claim, of which there are
/// `looks`, up to the longest pause.
fn pause(looks: u32) -> Duration {
    LOOK_AGAIN.saturating_mul(1 << looks.min(8)).min(LOOK_AT_LEAST_EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    fn window(most: usize) -> InFlightWindow<&'static str> {
        InFlightWindow::new(most, most, Duration::from_secs(10))
    }

    fn pull(window: &mut InFlightWindow<&'static str>, id: &'static str, now: u64) {
        window.pull(Arc::new(id), id.into(), at(now));
    }

    fn ids(batch: &[(Number, Arc<str>)]) -> Vec<&str> {
        batch.iter().map(|(_, id)| &**id).collect()
    }

    #[test]
    fn no_more_is_pulled_than_can_be_handled() {
        let mut window = window(2);
        pull(&mut window, "a", 0);
        assert_eq!(window.room(), 1);
        pull(&mut window, "b", 0);
        assert_eq!(window.room(), 0);
        let batch = window.batch(at(0));
        assert_eq!((ids(&batch), window.room()), (vec!["a", "b"], 0));
        assert!(window.batch(at(0)).is_empty(), "once");
        assert!(window.end(batch[0].0).is_some() && window.end(batch[0].0).is_none());
        assert_eq!(window.room(), 1);
    }

    #[test]
    fn a_twin_waits_until_the_first_has_ended() {
        let mut window = window(4);
        ["a", "a", "b"].iter().for_each(|id| pull(&mut window, id, 0));
        let batch = window.batch(at(0));
        assert_eq!(ids(&batch), ["a", "b"]);
        assert_eq!(window.room(), 2, "the twin takes up none");
        assert_eq!(window.next_look(), Some(at(100)));
        assert!(window.batch(at(100)).is_empty() && window.next_look() == Some(at(200)));
        window.end(batch[0].0);
        assert_eq!(ids(&window.batch(at(200))), ["a"]);
    }

    #[test]
    fn twins_without_end_are_not_pulled_without_end() {
        let mut window = window(2);
        let mut pulled = 0;
        while window.room() > 0 {
            pull(&mut window, "a", 0);
            window.batch(at(0));
            pulled += 1;
            assert!(pulled < 10);
        }
        assert_eq!(pulled, 3, "one at work, and two that wait");
    }

    #[test]
    fn what_others_handle_is_looked_at_until_patience_is_over() {
        let mut window = window(1);
        pull(&mut window, "a", 0);
        let mut looks = Vec::new();
        let mut now = at(0);
        loop {
            let batch = window.batch(now);
            assert_eq!(ids(&batch), ["a"], "at {now:?}");
            if !window.elsewhere(batch[0].0, Some(Duration::from_secs(60)), now) {
                window.end(batch[0].0);
                break;
            }
            assert_eq!((window.room(), window.free()), (0, 1), "the waiting room is full, its place is free");
            now = window.next_look().unwrap();
            looks.push(now);
        }
        assert_eq!(looks, [100, 300, 700, 1500, 3100, 6300, 10_000].map(at));
        // If it is known when the other worker's claim may end, the message is claimed again at that time. The
        // pause is at least 100 ms.
        pull(&mut window, "b", 20_000);
        let batch = window.batch(at(20_000));
        assert!(window.elsewhere(batch[0].0, Some(Duration::from_millis(1)), at(20_000)));
        assert_eq!(window.next_look(), Some(at(20_100)));
    }

    #[test]
    fn what_is_left_to_the_source_keeps_its_id_until_it_has_ended() {
        let mut window = InFlightWindow::new(4, 4, Duration::ZERO);
        ["a", "a", "a"].iter().for_each(|id| pull(&mut window, id, 0));
        let first = window.batch(at(0));
        assert!(!window.elsewhere(first[0].0, None, at(0)), "without patience");
        assert!(window.batch(at(100)).is_empty(), "it has not ended yet");
        window.end(first[0].0);
        assert_eq!(ids(&window.batch(at(200))), ["a"]);
        assert!(window.batch(at(300)).is_empty(), "one of them at a time");
    }

    #[test]
    fn a_full_waiting_room_stops_pulling_and_ends_nothing() {
        let mut window = InFlightWindow::new(2, 3, Duration::from_secs(10));
        let mut pulled = Vec::new();
        for id in ["a", "b", "c", "d", "e", "f"] {
            if window.room() == 0 {
                break;
            }
            pull(&mut window, id, 0);
            let batch = window.batch(at(0));
            assert_eq!(ids(&batch), [id]);
            assert!(window.elsewhere(batch[0].0, None, at(0)), "{id} waits");
            pulled.push(id);
        }
        assert_eq!(pulled, ["a", "b", "c"]);
        // Waiting messages are claimed again, as many at once as there are slots. The third waits until a slot
        // is free.
        assert_eq!((window.room(), window.next_look()), (0, Some(at(100))));
        let batch = window.batch(at(100));
        assert_eq!((ids(&batch), window.next_look()), (vec!["a", "b"], None));
        assert!(window.batch(at(100)).is_empty() && window.room() == 0, "no place is free");
        window.end(batch[0].0);
        assert_eq!((window.room(), window.next_look()), (1, Some(at(100))), "one waits, one is at work");
        assert_eq!(ids(&window.batch(at(100))), ["c"]);
    }

    #[test]
    fn messages_that_were_pulled_before_the_waiting_room_was_full_join_it() {
        let mut window = InFlightWindow::new(3, 1, Duration::from_secs(10));
        ["a", "b", "c"].iter().for_each(|id| pull(&mut window, id, 0));
        for (number, id) in window.batch(at(0)) {
            assert!(window.elsewhere(number, None, at(0)), "{id} waits");
        }
        assert_eq!(window.room(), 0);
        assert_eq!(ids(&window.batch(at(100))), ["a", "b", "c"], "every one of them gets a place");
    }

    #[test]
    fn patience_begins_when_another_worker_is_found_at_it() {
        let mut window = window(2);
        // Both messages with the id `a` have waited here for a minute. The first waited because too few nodes
        // answered, and the second waited for the first.
        ["a", "a"].iter().for_each(|id| pull(&mut window, id, 0));
        let first = window.batch(at(0))[0].0;
        assert!(window.away(first, at(0)) && !window.away(first, at(60_000)));
        let batch = window.batch(at(70_000));
        assert!(window.elsewhere(batch[0].0, None, at(70_000)), "found for the first time");
        assert_eq!(window.next_look(), Some(at(70_100)), "and looked at again soon");
        let twin = window.batch(at(70_100));
        let twin = twin.iter().find(|(number, _)| *number != batch[0].0);
        assert!(twin.is_none_or(|(number, _)| window.elsewhere(*number, None, at(70_100))));
        // While too few nodes answer, the patience does not pass. Afterwards the patience starts again.
        let mut window = InFlightWindow::new(1, 1, Duration::from_secs(10));
        pull(&mut window, "b", 0);
        let number = window.batch(at(0))[0].0;
        assert!(window.elsewhere(number, None, at(0)));
        window.batch(at(9_000));
        assert!(window.away(number, at(9_000)), "news again");
        window.batch(at(11_000));
        assert!(window.elsewhere(number, None, at(11_000)));
        window.batch(at(21_000));
        assert!(!window.elsewhere(number, None, at(21_000)));
    }

    #[test]
    fn patience_without_end_is_possible() {
        let mut window = InFlightWindow::new(1, 1, Duration::MAX);
        pull(&mut window, "a", 0);
        for days in 0..100 {
            let now = at(days * 86_400_000);
            let batch = window.batch(now);
            assert!(window.elsewhere(batch[0].0, None, now));
        }
    }

    #[test]
    fn without_a_quorum_messages_keep_their_room_and_wait_longer_each_time() {
        let mut window = window(1);
        pull(&mut window, "a", 0);
        for next in [100, 300, 700] {
            let now = window.next_look().unwrap_or(at(0));
            let batch = window.batch(now);
            assert_eq!(window.away(batch[0].0, now), next == 100, "news once");
            assert_eq!((window.room(), window.next_look()), (0, Some(at(next))));
        }
    }
}
