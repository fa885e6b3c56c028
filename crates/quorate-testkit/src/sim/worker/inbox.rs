use super::super::{SeedRng, Truth};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The set of claims to which the messages belong.
pub(super) const SET: &str = "s";
/// The time between the publication of two messages without an attempt limit.
pub(in super::super) const PACE: Duration = Duration::from_millis(500);
/// A delivery chooses one of the oldest open messages. This is the number of messages from which it chooses.
const OFFERED: usize = 6;

/// A simulated broker with at-least-once delivery.
///
/// The broker delivers a message to any consumer, repeatedly, until a consumer reports that the message is
/// done. Sometimes the broker also delivers a message that is done.
#[derive(Debug)]
pub(in super::super) struct Inbox {
    truth: Truth,
    length: Duration,
    /// The time between the publication of two messages.
    pace: Duration,
    done: Mutex<Vec<bool>>,
}

impl Inbox {
    /// Creates a broker that publishes one message per `pace`, until the time `length`.
    pub(in super::super) fn new(truth: Truth, length: Duration, pace: Duration) -> Self {
        let count = usize::try_from(length.as_millis() / pace.as_millis()).unwrap_or_default();
        Self { truth, length, pace, done: Mutex::new(vec![false; count]) }
    }

    /// Returns the message that the calling consumer gets now, if there is one.
    pub(super) fn deliver(&self, rng: &mut SeedRng) -> Option<usize> {
        let published = self.published();
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let open: Vec<usize> = (0..published).filter(|at| !done[*at]).collect();
        if published > 0 && rng.chance(120) {
            return Some(rng.index(published));
        }
        let offered = &open[..open.len().min(OFFERED)];
        (!offered.is_empty()).then(|| offered[rng.index(offered.len())])
    }

    /// Records the report of a consumer that the message is done.
    pub(super) fn finish(&self, message: usize) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)[message] = true;
    }

    /// Delivers a message again that a consumer had reported as done.
    pub(super) fn reopen(&self, message: usize) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)[message] = false;
    }

    /// Returns the number of published messages that no consumer has reported as done.
    pub(in super::super) fn open(&self) -> usize {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done[..self.published()].iter().filter(|done| !**done).count()
    }

    fn published(&self) -> usize {
        let now = self.truth.now().min(self.length);
        usize::try_from(now.as_millis() / self.pace.as_millis()).unwrap_or_default()
    }
}

pub(super) fn id(message: usize) -> String {
    format!("m{message}")
}
