use std::time::Duration;
use tokio::time::Instant;

/// The time that nobody in the simulation can see: tokio's paused clock, in whole milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Truth {
    origin: Instant,
}

#[expect(clippy::disallowed_methods, reason = "the simulated world stands on tokio's paused clock")]
impl Truth {
    /// Time begins now. Inside the simulation's runtime only.
    pub fn begin() -> Self {
        Self { origin: Instant::now() }
    }

    /// Time since the beginning.
    pub fn now(self) -> Duration {
        self.origin.elapsed()
    }

    /// Waits until `at`, unseen by any worker's clock.
    pub async fn reach(self, at: Duration) {
        tokio::time::sleep_until(self.origin + at).await;
    }

    /// Waits for `time`.
    pub async fn pass(self, time: Duration) {
        self.reach(self.now() + time).await;
    }
}

/// A clock that starts anywhere and runs a little fast or slow, as a pure function of the true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimClock {
    /// What it shows at the beginning, in nanoseconds.
    pub start_nanos: u64,
    /// By how many millionths it runs fast (or, below zero, slow).
    pub rate_ppm: i32,
}

impl SimClock {
    /// What it shows at the true time `at`, in nanoseconds.
    pub fn shows(self, at: Duration) -> u64 {
        let passed = at.as_nanos() as i128 * self.millionths() / MILLION;
        self.start_nanos.saturating_add_signed(i64::try_from(passed).unwrap_or(i64::MAX))
    }

    /// The first true time at which it shows `nanos` or more.
    pub fn truth_of(self, nanos: u64) -> Duration {
        let local = i128::from(nanos.saturating_sub(self.start_nanos)) * MILLION;
        let millionths = self.millionths();
        let truth = (local + millionths - 1) / millionths;
        Duration::from_nanos(u64::try_from(truth).unwrap_or(u64::MAX))
    }

    fn millionths(self) -> i128 {
        MILLION + i128::from(self.rate_ppm)
    }
}

const MILLION: i128 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_never_comes_early() {
        for rate_ppm in [-4_900, -1, 0, 1, 4_900] {
            let clock = SimClock { start_nanos: 77_000_000_123, rate_ppm };
            for truth in [0, 1, 999_999, 1_000_000, 33_333_333_333, 3_600_000_000_007] {
                let shown = clock.shows(Duration::from_nanos(truth));
                assert!(clock.shows(clock.truth_of(shown)) >= shown, "{rate_ppm} {truth}");
                assert!(clock.truth_of(shown) <= Duration::from_nanos(truth + 1), "{rate_ppm} {truth}");
            }
        }
    }

    #[test]
    fn a_fast_clock_runs_fast() {
        let fast = SimClock { start_nanos: 5, rate_ppm: 4_000 };
        assert_eq!(fast.shows(Duration::from_secs(1)), 1_004_000_005);
    }
}
