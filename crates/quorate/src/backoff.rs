//! Pauses between retries. The pause grows with each consecutive failure and has a random part. The functions
//! are pure, so the caller supplies the random number.

use std::time::Duration;

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
