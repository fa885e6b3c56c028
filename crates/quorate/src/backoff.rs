//! Pauses after consecutive failures. They become longer each time, and have a random part. Pure.

use std::time::Duration;

/// A pause that doubles with each failure, up to a longest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl Backoff {
    /// Returns the pause after `failed` consecutive failures. `random` selects it evenly from between half of the whole pause
    /// and all of it, so that processes that failed together do not retry together.
    pub(crate) fn pause(self, failed: u32, random: u64) -> Duration {
        let doubled = 1_u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX);
        let whole = self.first.saturating_mul(doubled).min(self.longest);
        let half = u64::try_from((whole / 2).as_nanos()).unwrap_or(u64::MAX);
        whole - Duration::from_nanos(random.checked_rem(half.saturating_add(1)).unwrap_or(0))
    }
}
