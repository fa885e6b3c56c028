//! Decides which command a consumer sends next, and how long it pauses after failures. Performs no I/O.

use crate::env::BootTime;
use std::time::Duration;

/// The first pause after a failure, and the longest.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// The shortest and the longest interval between two searches for idle pending entries.
const SEARCH_MIN: Duration = Duration::from_millis(10);
const SEARCH_MAX: Duration = Duration::from_secs(30);

/// The state of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    search_interval: Duration,
    /// After a restart or a broken connection, the consumer receives its own pending entries again. This is
    /// the id of the last of them that it has received. `None` once it has received all of them.
    own: Option<String>,
    /// The id at which the present search for idle pending entries continues. `None` between two searches.
    cursor: Option<String>,
    next_search: BootTime,
    failures: u32,
}

/// The command that a consumer sends next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Read this consumer's own pending entries that follow this id.
    Own(String),
    /// Take over idle pending entries of all consumers, from this id on.
    Takeover(String),
    /// Read new entries, and block for at most this long.
    New(Duration),
}

impl Plan {
    /// Creates the plan. `min_idle` is the idle time after which an entry is taken over.
    pub(super) fn new(min_idle: Duration, now: BootTime) -> Self {
        let search_interval = (min_idle / 2).clamp(SEARCH_MIN, SEARCH_MAX);
        Self { search_interval, own: Some(first()), cursor: None, next_search: now, failures: 0 }
    }

    pub(super) fn next(&self, block: Duration, now: BootTime) -> Step {
        match (&self.own, &self.cursor) {
            (Some(after), _) => Step::Own(after.clone()),
            (None, Some(from)) => Step::Takeover(from.clone()),
            (None, None) if self.next_search <= now => Step::Takeover(first()),
            // The server blocks without limit if the time is zero, so it is at least one millisecond.
            (None, None) => Step::New(block.min(now.until(self.next_search)).max(Duration::from_millis(1))),
        }
    }

    /// Handles the result of reading the consumer's own pending entries. `last` is the last entry, or `None` if
    /// there are no more.
    pub(super) fn on_own(&mut self, last: Option<String>) {
        self.own = last;
        self.failures = 0;
    }

    /// Handles the result of taking over entries. `next` is the id at which the search must continue, or `None`
    /// if it is complete.
    pub(super) fn on_takeover(&mut self, next: Option<String>, now: BootTime) {
        if next.is_none() {
            self.next_search = now + self.search_interval;
        }
        self.cursor = next;
        self.failures = 0;
    }

    /// Reads the consumer's own pending entries again, before the search for idle entries continues.
    pub(super) fn read_own_again(&mut self) {
        self.own = Some(first());
    }

    /// Handles the result of reading new entries.
    pub(super) fn on_new(&mut self) {
        self.failures = 0;
    }

    /// Handles a broken connection. The server may have delivered entries in a reply that was lost. Such
    /// entries are pending for this consumer, which reads its own pending entries again.
    pub(super) fn on_failure(&mut self) {
        self.own = Some(first());
        self.cursor = None;
        self.failures = self.failures.saturating_add(1);
    }

    /// Returns the pause before the next connection. The caller shortens it by a random time.
    pub(super) fn pause(&self) -> Duration {
        match self.failures {
            0 => Duration::ZERO,
            failures => RETRY_MIN.saturating_mul(1 << (failures - 1).min(10)).min(RETRY_MAX),
        }
    }
}

fn first() -> String {
    "0-0".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Duration = Duration::from_secs(5);

    fn at(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn own_entries_come_first_then_idle_ones_then_new_ones() {
        let mut plan = Plan::new(Duration::from_secs(2), at(0));
        assert_eq!(plan.next(BLOCK, at(0)), Step::Own("0-0".to_owned()));
        plan.on_own(Some("7-0".to_owned()));
        assert_eq!(plan.next(BLOCK, at(0)), Step::Own("7-0".to_owned()));
        plan.on_own(None);
        assert_eq!(plan.next(BLOCK, at(0)), Step::Takeover("0-0".to_owned()));
        plan.on_takeover(Some("9-0".to_owned()), at(0));
        assert_eq!(plan.next(BLOCK, at(0)), Step::Takeover("9-0".to_owned()));
        plan.on_takeover(None, at(100));
        // A read of new entries must not block beyond the next search.
        assert_eq!(plan.next(BLOCK, at(200)), Step::New(Duration::from_millis(900)));
        plan.on_new();
        assert_eq!(plan.next(BLOCK, at(1100)), Step::Takeover("0-0".to_owned()));
    }

    #[test]
    fn after_a_failure_it_starts_again_and_pauses_longer_each_time() {
        let mut plan = Plan::new(Duration::from_secs(2), at(0));
        plan.on_own(None);
        plan.on_takeover(Some("9-0".to_owned()), at(0));
        assert_eq!(plan.pause(), Duration::ZERO);
        let pauses: Vec<u128> = (0..9)
            .map(|_| {
                plan.on_failure();
                plan.pause().as_millis()
            })
            .collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(plan.next(BLOCK, at(0)), Step::Own("0-0".to_owned()));
        plan.on_own(None);
        assert_eq!(plan.pause(), Duration::ZERO);
        assert_eq!(plan.next(BLOCK, at(0)), Step::Takeover("0-0".to_owned()));
    }

    #[test]
    fn the_search_continues_after_own_entries_were_read_again() {
        let mut plan = Plan::new(Duration::from_secs(2), at(0));
        plan.on_own(None);
        plan.on_takeover(Some("9-0".to_owned()), at(0));
        plan.read_own_again();
        assert_eq!(plan.next(BLOCK, at(0)), Step::Own("0-0".to_owned()));
        plan.on_own(None);
        assert_eq!(plan.next(BLOCK, at(0)), Step::Takeover("9-0".to_owned()));
    }

    #[test]
    fn no_read_blocks_without_limit() {
        let mut plan = Plan::new(Duration::ZERO, at(0));
        plan.on_own(None);
        plan.on_takeover(None, at(0));
        assert_eq!(plan.next(Duration::ZERO, at(1)), Step::New(Duration::from_millis(1)));
    }
}
