//! What a consumer asks for next, and how long it waits after failures. Pure.

use quorate::env::BootTime;
use std::time::Duration;

/// The first pause after a failure, and the longest.
const RETRY_AFTER: Duration = Duration::from_millis(50);
const RETRY_AT_LEAST_EVERY: Duration = Duration::from_secs(5);
/// How often pending entries are looked through, at most and at least.
const LOOK_AFTER: Duration = Duration::from_millis(10);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(30);

/// Where a consumer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    look_every: Duration,
    /// The last of its own pending entries that it was given; `None` once it has had all.
    own: Option<String>,
    /// Where in the pending entries of all consumers it is; `None` between two looks.
    cursor: Option<String>,
    look_at: BootTime,
    failures: u32,
}

/// What to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Our own pending entries after this one.
    Own(String),
    /// Pending entries that nobody has touched for long, from this one on.
    Takeover(String),
    /// New entries; wait so long for them.
    New(Duration),
}

impl Plan {
    /// `min_idle` is for how long nobody must have touched an entry.
    pub(super) fn new(min_idle: Duration, now: BootTime) -> Self {
        let look_every = (min_idle / 2).clamp(LOOK_AFTER, LOOK_AT_LEAST_EVERY);
        Self { look_every, own: Some(first()), cursor: None, look_at: now, failures: 0 }
    }

    pub(super) fn next(&self, block: Duration, now: BootTime) -> Step {
        match (&self.own, &self.cursor) {
            (Some(after), _) => Step::Own(after.clone()),
            (None, Some(from)) => Step::Takeover(from.clone()),
            (None, None) if self.look_at <= now => Step::Takeover(first()),
            // At least a millisecond: zero is for ever.
            (None, None) => Step::New(block.min(now.until(self.look_at)).max(Duration::from_millis(1))),
        }
    }

    /// Our own pending entries came, the last of them this one; or there were none.
    pub(super) fn had_own(&mut self, last: Option<String>) {
        self.own = last;
        self.failures = 0;
    }

    /// Those of others came; where there may be more, from this one on.
    pub(super) fn took_over(&mut self, next: Option<String>, now: BootTime) {
        if next.is_none() {
            self.look_at = now + self.look_every;
        }
        self.cursor = next;
        self.failures = 0;
    }

    /// New entries came, or none in time.
    pub(super) fn had_new(&mut self) {
        self.failures = 0;
    }

    /// The connection broke: what the last reply held may never have come, and is pending with us.
    pub(super) fn failed(&mut self) {
        self.own = Some(first());
        self.cursor = None;
        self.failures = self.failures.saturating_add(1);
    }

    /// How long to wait before connecting, of which a random share may be left out.
    pub(super) fn pause(&self) -> Duration {
        match self.failures {
            0 => Duration::ZERO,
            failures => RETRY_AFTER.saturating_mul(1 << (failures - 1).min(10)).min(RETRY_AT_LEAST_EVERY),
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
    fn first_its_own_then_what_others_left_then_what_is_new() {
        let mut plan = Plan::new(Duration::from_secs(2), at(0));
        assert_eq!(plan.next(BLOCK, at(0)), Step::Own("0-0".to_owned()));
        plan.had_own(Some("7-0".to_owned()));
        assert_eq!(plan.next(BLOCK, at(0)), Step::Own("7-0".to_owned()));
        plan.had_own(None);
        assert_eq!(plan.next(BLOCK, at(0)), Step::Takeover("0-0".to_owned()));
        plan.took_over(Some("9-0".to_owned()), at(0));
        assert_eq!(plan.next(BLOCK, at(0)), Step::Takeover("9-0".to_owned()));
        plan.took_over(None, at(100));
        // No read waits past the next look.
        assert_eq!(plan.next(BLOCK, at(200)), Step::New(Duration::from_millis(900)));
        plan.had_new();
        assert_eq!(plan.next(BLOCK, at(1100)), Step::Takeover("0-0".to_owned()));
    }

    #[test]
    fn after_a_failure_it_begins_anew_and_waits_longer_each_time() {
        let mut plan = Plan::new(Duration::from_secs(2), at(0));
        plan.had_own(None);
        plan.took_over(Some("9-0".to_owned()), at(0));
        assert_eq!(plan.pause(), Duration::ZERO);
        let pauses: Vec<u128> = (0..9)
            .map(|_| {
                plan.failed();
                plan.pause().as_millis()
            })
            .collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(plan.next(BLOCK, at(0)), Step::Own("0-0".to_owned()));
        plan.had_own(None);
        assert_eq!(plan.pause(), Duration::ZERO);
        assert_eq!(plan.next(BLOCK, at(0)), Step::Takeover("0-0".to_owned()));
    }

    #[test]
    fn no_wait_is_for_ever() {
        let mut plan = Plan::new(Duration::ZERO, at(0));
        plan.had_own(None);
        plan.took_over(None, at(0));
        assert_eq!(plan.next(Duration::ZERO, at(1)), Step::New(Duration::from_millis(1)));
    }
}
