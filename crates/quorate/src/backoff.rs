//! Pauses between retries and between polls. The functions are pure, so the caller supplies the random number.

use std::time::Duration;

/// The part of the wait so far that [`poll_pause`] returns.
const POLLS_IN_A_WAIT: u32 = 16;

/// Returns the pause before the next poll of a caller that has polled in vain for `waited`: a sixteenth of this
/// time, at least `shortest`, and at most `longest`. So a caller that waits for long asks seldom, and learns of a change
/// late by at most a sixteenth of its wait.
pub(crate) fn poll_pause(waited: Duration, shortest: Duration, longest: Duration) -> Duration {
    (waited / POLLS_IN_A_WAIT).clamp(shortest, longest.max(shortest))
}

/// The rule for the pause after a failure: `first` after one failure, twice as long after each further
/// consecutive failure, at most `longest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl Backoff {
    /// Returns the pause after `failed` consecutive failures: at least half of the time that the rule gives,
    /// and at most all of it. The random number `random` selects the pause evenly from this range, so that
    /// processes that failed together do not retry together.
    pub(crate) fn pause(self, failed: u32, random: u64) -> Duration {
        let doubled = 1_u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX);
        let whole = self.first.saturating_mul(doubled).min(self.longest);
        let half = u64::try_from((whole / 2).as_nanos()).unwrap_or(u64::MAX);
        whole - Duration::from_nanos(random.checked_rem(half.saturating_add(1)).unwrap_or(0))
    }
}

/// The number of consecutive failures of one piece of work. The count begins again after the work has run
/// for long enough without an error.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    in_a_row: u32,
}

impl Failures {
    /// Records that the work ended without an error after it ran for `ran`. If `ran` is at least the longest
    /// pause, earlier failures no longer count.
    pub(crate) fn ended(&mut self, backoff: Backoff, ran: Duration) {
        if ran >= backoff.longest {
            self.in_a_row = 0;
        }
    }

    /// Records that the work failed after it ran for `ran`, and returns the pause before the work begins again.
    ///
    /// If the work ran for at least the longest pause, earlier failures no longer count, and the pauses begin
    /// again with the first one.
    pub(crate) fn failed(&mut self, backoff: Backoff, ran: Duration, random: u64) -> Duration {
        self.ended(backoff, ran);
        self.in_a_row = self.in_a_row.saturating_add(1);
        backoff.pause(self.in_a_row, random)
    }

    pub(crate) fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    #[cfg(test)]
    pub(crate) fn of(in_a_row: u32) -> Self {
        Self { in_a_row }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_become_rare_in_a_long_wait() {
        let pause = |waited| poll_pause(Duration::from_millis(waited), ms(100), ms(2_000));
        assert_eq!([0, 1_600, 8_000, 32_000, 1 << 40].map(pause), [100, 100, 500, 2_000, 2_000].map(ms));
        assert_eq!(poll_pause(ms(1 << 40), ms(400), ms(300)), ms(400), "the shortest pause prevails");
    }

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }
}
