use crate::{backoff::Backoff, scheduler::wire};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

/// The number of attempts of a run that fails or times out, and the waits between the attempts.
///
/// ```
/// use quorate::scheduler::Retry;
/// use std::time::Duration;
///
/// let retry = Retry::new(5).backoff(Duration::from_secs(1), Duration::from_secs(30));
/// assert_eq!(retry.to_string(), "5 attempts, 1s to 30s apart");
/// assert_eq!(Retry::NONE.attempts(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    attempts: u32,
    #[serde(with = "wire::micros")]
    first: Duration,
    #[serde(with = "wire::micros")]
    max: Duration,
}

impl Retry {
    /// The rule with one attempt.
    pub const NONE: Self = Self::new(1);

    /// Creates a rule with this number of attempts, including the first. The wait after the first failure is 1
    /// second, and doubles after each further failure, up to a minute.
    pub const fn new(attempts: u32) -> Self {
        Self { attempts, first: Duration::from_secs(1), max: Duration::from_secs(60) }
    }

    /// Sets the wait after the first failure. The wait doubles after each further failure, up to `max`. The
    /// actual wait is random, between half of this wait and all of it, so that runs that failed together are
    /// not repeated together.
    pub const fn backoff(mut self, first: Duration, max: Duration) -> Self {
        self.first = first;
        self.max = max;
        self
    }

    /// Returns the number of attempts, including the first.
    pub const fn attempts(self) -> u32 {
        self.attempts
    }

    /// Returns the wait after the first failure.
    #[doc(hidden)]
    pub const fn first_backoff(self) -> Duration {
        self.first
    }

    /// Returns the longest wait between two attempts.
    pub const fn max_backoff(self) -> Duration {
        self.max
    }

    /// Returns the wait after `failed` attempts, or `None` if no attempt is left. The number `random` selects
    /// the wait from the range of possible waits.
    pub(in crate::scheduler) fn pause(self, failed: u32, random: u64) -> Option<Duration> {
        if failed >= self.attempts {
            return None;
        }
        Some(Backoff { first: self.first, longest: self.max }.pause(failed, random))
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempts {
            1 => f.pad("1 attempt"),
            attempts => write!(f, "{attempts} attempts, {:?} to {:?} apart", self.first, self.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_until_no_attempt_is_left() {
        let retry = Retry::new(6).backoff(Duration::from_secs(1), Duration::from_secs(5));
        let longest: Vec<_> =
            (1..8).map(|failed| retry.pause(failed, 0).map(|wait| wait.as_secs())).collect();
        assert_eq!(longest, [Some(1), Some(2), Some(4), Some(5), Some(5), None, None]);
        assert_eq!(Retry::NONE.pause(1, 0), None);
        assert_eq!(Retry::new(u32::MAX).pause(u32::MAX - 1, 0), Some(Duration::from_secs(60)), "no overflow");
    }

    #[test]
    fn a_wait_is_between_half_and_all_of_it() {
        let retry = Retry::new(3).backoff(Duration::from_secs(2), Duration::from_secs(9));
        let half = 1_000_000_000;
        assert_eq!(retry.pause(1, half), Some(Duration::from_secs(1)));
        for random in [0, 1, half - 1, half, half + 1, u64::MAX] {
            let wait = retry.pause(1, random).unwrap();
            assert!((Duration::from_secs(1)..=Duration::from_secs(2)).contains(&wait), "{random}: {wait:?}");
        }
        assert_eq!(Retry::new(2).backoff(Duration::ZERO, Duration::ZERO).pause(1, 7), Some(Duration::ZERO));
    }
}
