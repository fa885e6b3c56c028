use std::time::Duration;
use tokio::time::Instant;

/// The true time, taken from tokio's paused clock, in whole milliseconds. No worker or server of the simulation
/// can read it.
#[derive(Clone, Copy, Debug)]
pub struct Truth {
    origin: Instant,
}

#[expect(clippy::disallowed_methods, reason = "the simulated world stands on tokio's paused clock")]
impl Truth {
    /// Returns a clock of the true time that begins now. Call it only inside the simulation's runtime.
    pub fn begin() -> Self {
        Self { origin: Instant::now() }
    }

    /// Returns the time since the simulation began.
    pub fn now(self) -> Duration {
        self.origin.elapsed()
    }

    /// Waits until the true time is `at`. No worker's clock influences this wait.
    pub async fn reach(self, at: Duration) {
        tokio::time::sleep_until(self.origin + at).await;
    }

    /// Waits until `time` has passed.
    pub async fn pass(self, time: Duration) {
        self.reach(self.now() + time).await;
    }
}

/// A clock that begins at a given time and runs a little fast or slow. The time that it shows is a pure
/// function of the true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimClock {
    /// The time that the clock shows when the simulation begins, in nanoseconds.
    pub start_nanos: u64,
    /// The rate error in millionths. A positive value means that the clock is fast.
    pub rate_ppm: i32,
}

impl SimClock {
    /// Returns the time that the clock shows at the true time `at`, in nanoseconds.
    pub fn shows(self, at: Duration) -> u64 {
        // Every reading of a clock comes here. For five hours the result needs no division of 128 bits.
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        if self.rate_ppm == 0 {
            return self.start_nanos.saturating_add(nanos);
        }
        if let Some(passed) = self.short_millionths().and_then(|rate| nanos.checked_mul(rate)) {
            return self.start_nanos.saturating_add(passed / SHORT_MILLION);
        }
        let passed = at.as_nanos() as i128 * self.millionths() / MILLION;
        self.start_nanos.saturating_add_signed(i64::try_from(passed).unwrap_or(i64::MAX))
    }

    /// Returns the first true time at which the clock shows `nanos` or more.
    pub fn truth_of(self, nanos: u64) -> Duration {
        if self.rate_ppm == 0 {
            return Duration::from_nanos(nanos.saturating_sub(self.start_nanos));
        }
        let short = nanos.saturating_sub(self.start_nanos).checked_mul(SHORT_MILLION);
        if let (Some(local), Some(rate)) = (short, self.short_millionths().filter(|rate| *rate > 0)) {
            return Duration::from_nanos(local.div_ceil(rate));
        }
        let local = i128::from(nanos.saturating_sub(self.start_nanos)) * MILLION;
        let millionths = self.millionths();
        let truth = (local + millionths - 1) / millionths;
        Duration::from_nanos(u64::try_from(truth).unwrap_or(u64::MAX))
    }

    fn millionths(self) -> i128 {
        MILLION + i128::from(self.rate_ppm)
    }

    fn short_millionths(self) -> Option<u64> {
        SHORT_MILLION.checked_add_signed(i64::from(self.rate_ppm))
    }
}

const MILLION: i128 = 1_000_000;
const SHORT_MILLION: u64 = 1_000_000;

/// A [`SimClock`] that faults can step, stop and start. Between two such changes, the time that it shows is a
/// pure function of the true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdjustableClock {
    clock: SimClock,
    stepped_nanos: i64,
    /// The total time for which the clock had been stopped when it last continued.
    stood: Duration,
    stands_since: Option<Duration>,
}

impl AdjustableClock {
    /// Returns a clock that shows the same times as `clock`.
    pub fn new(clock: SimClock) -> Self {
        Self { clock, ..Self::default() }
    }

    /// Returns the time that the clock shows at the true time `at`, in nanoseconds.
    pub fn shows(&self, at: Duration) -> u64 {
        self.clock.shows(at.saturating_sub(self.stood_by(at))).saturating_add_signed(self.stepped_nanos)
    }

    /// Returns the first true time, not before `at`, at which the clock shows `nanos` or more. The result
    /// assumes that the clock is not stepped or stopped after `at`.
    pub fn will_show(&self, at: Duration, nanos: u64) -> Duration {
        let untouched = nanos.saturating_add_signed(self.stepped_nanos.saturating_neg());
        (self.clock.truth_of(untouched) + self.stood_by(at)).max(at)
    }

    /// Steps the clock forward, or back if `by_millis` is negative.
    pub fn step(&mut self, by_millis: i64) {
        self.stepped_nanos = self.stepped_nanos.saturating_add(by_millis.saturating_mul(1_000_000));
    }

    /// Stops the clock at the true time `at`.
    pub fn stand(&mut self, at: Duration) {
        self.stands_since.get_or_insert(at);
    }

    /// Lets the clock continue from where it stopped.
    pub fn go_on(&mut self, at: Duration) {
        self.stood = self.stood_by(at);
        self.stands_since = None;
    }

    /// Starts the clock if it is stopped. Then sets the clock to the time that it would show if no fault had
    /// stepped or stopped it.
    pub fn set_right(&mut self) {
        *self = Self::new(self.clock);
    }

    /// Returns `true` while the clock is stopped.
    pub fn is_stopped(&self) -> bool {
        self.stands_since.is_some()
    }

    fn stood_by(&self, at: Duration) -> Duration {
        self.stood + self.stands_since.map_or(Duration::ZERO, |since| at.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

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
        assert_eq!(fast.shows(secs(1)), 1_004_000_005);
    }

    #[test]
    fn a_stopped_clock_goes_on_from_where_it_stopped() {
        let mut clock = AdjustableClock::new(SimClock { start_nanos: 1_000, rate_ppm: 0 });
        clock.stand(secs(10));
        clock.stand(secs(11));
        assert_eq!(clock.shows(secs(13)), clock.shows(secs(10)), "it stopped at the first call");
        assert!(clock.is_stopped());
        clock.go_on(secs(14));
        assert_eq!(clock.shows(secs(15)), 11_000_001_000);
        clock.stand(secs(20));
        clock.go_on(secs(21));
        assert_eq!(clock.shows(secs(30)), 25_000_001_000, "five seconds were lost");
        clock.go_on(secs(40));
        assert_eq!(clock.shows(secs(40)), 35_000_001_000, "what runs goes on running");
    }

    #[test]
    fn steps_add_up_and_can_be_undone() {
        let mut clock = AdjustableClock::new(SimClock { start_nanos: 5_000_000_000, rate_ppm: 0 });
        clock.step(2_000);
        clock.step(-3_000);
        assert_eq!(clock.shows(secs(10)), 14_000_000_000);
        clock.step(-3_600_000);
        assert_eq!(clock.shows(secs(10)), 0, "no clock shows less than zero");
        clock.stand(secs(11));
        clock.set_right();
        assert_eq!(clock.shows(secs(20)), 25_000_000_000);
    }

    #[test]
    fn a_timer_is_set_for_the_time_that_the_clock_will_show() {
        let mut clock = AdjustableClock::new(SimClock { start_nanos: 700, rate_ppm: 4_900 });
        clock.step(-1);
        clock.stand(secs(2));
        for now in [secs(1), secs(3)] {
            for ahead in [1, 999_999, 1_000_000, 2_345_678_901] {
                let due = clock.shows(now) + ahead;
                let at = clock.will_show(now, due);
                let mut later = clock;
                later.go_on(now.max(secs(2)));
                assert!(later.shows(at) >= due, "{now:?} {ahead}");
                assert!(later.shows(at - Duration::from_nanos(2)) < due, "{now:?} {ahead}");
            }
        }
        assert_eq!(clock.will_show(secs(3), 0), secs(3), "what has been shown is due now");
    }
}
