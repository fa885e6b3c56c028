use crate::backoff::Backoff;
use std::time::Duration;

/// The shortest pause before work is restarted. Without a minimum, work that fails at once could cause
/// elections in quick succession.
const SHORTEST: Duration = Duration::from_millis(10);

/// The rule for what follows after the work has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnError {
    /// The work runs again in a later term, after a pause.
    Restart(Backoff),
    /// The campaign ends with the error.
    End,
}

/// The pauses after failures, unless the election has others.
const DEFAULT: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };

impl OnError {
    pub(super) const DEFAULT: Self = Self::Restart(DEFAULT);

    /// Returns the pauses after failures.
    pub(super) fn backoff(self) -> Backoff {
        match self {
            Self::Restart(backoff) => backoff,
            Self::End => DEFAULT,
        }
    }

    /// Returns the rule that restarts the work after a pause of `first` to `longest`. `first` is at least 10
    /// ms, and `longest` at least `first`: smaller values are raised.
    pub(super) fn restart(first: Duration, longest: Duration) -> Self {
        let first = first.max(SHORTEST);
        Self::Restart(Backoff { first, longest: longest.max(first) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::Failures;

    const SECOND: Duration = Duration::from_secs(1);

    fn default() -> Backoff {
        match OnError::DEFAULT {
            OnError::Restart(backoff) => backoff,
            OnError::End => panic!("a restart is the default"),
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut failures = Failures::default();
        let pauses: Vec<_> = (0..7).map(|_| failures.failed(default(), SECOND, 0).as_secs()).collect();
        assert_eq!((pauses, failures.in_a_row()), (vec![1, 2, 4, 8, 16, 30, 30], 7));
    }

    #[test]
    fn work_that_ran_well_for_as_long_as_the_longest_pause_begins_anew() {
        let mut failures = Failures::default();
        for _ in 0..5 {
            failures.failed(default(), SECOND, 0);
        }
        assert_eq!(failures.failed(default(), 29 * SECOND, 0), 30 * SECOND, "too short");
        assert_eq!(failures.failed(default(), 30 * SECOND, 0), SECOND);
        assert_eq!(failures.failed(default(), SECOND, 0), 2 * SECOND);
        failures.ended(default(), SECOND);
        assert_eq!(failures.in_a_row(), 2, "a short term that was lost says nothing");
        failures.ended(default(), 40 * SECOND);
        assert_eq!(failures.in_a_row(), 0);
    }

    #[test]
    fn a_pause_is_between_half_and_all_of_it_whatever_is_drawn() {
        for random in [0, 1, 7, 500_000_000, 500_000_001, u64::MAX] {
            let pause = Failures::default().failed(default(), SECOND, random);
            assert!((SECOND / 2..=SECOND).contains(&pause), "{random}: {pause:?}");
        }
        let drawn: std::collections::BTreeSet<_> = (0..10)
            .map(|random| Failures::default().failed(default(), SECOND, random * 31_000_000))
            .collect();
        assert!(drawn.len() > 5, "jitter");
    }

    #[test]
    fn no_setting_makes_a_busy_loop_or_overflows() {
        let rule = |first, longest| match OnError::restart(first, longest) {
            OnError::Restart(backoff) => backoff,
            OnError::End => panic!("a restart"),
        };
        assert_eq!(Failures::default().failed(rule(Duration::ZERO, Duration::ZERO), SECOND, 0), SHORTEST);
        assert_eq!(Failures::default().failed(rule(3 * SECOND, SECOND), Duration::ZERO, 0), 3 * SECOND);
        let (endless, mut failures) = (rule(Duration::MAX, Duration::MAX), Failures::default());
        for _ in 0..70 {
            assert!(failures.failed(endless, Duration::ZERO, u64::MAX) >= Duration::MAX / 2 - SECOND);
        }
        let (long, mut failures) = (rule(SECOND, Duration::MAX), Failures::of(u32::MAX));
        assert!(failures.failed(long, Duration::ZERO, 0) > SECOND);
    }
}
