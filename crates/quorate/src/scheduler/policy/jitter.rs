use crate::{env::WallTime, scheduler::schedule::Schedule};
use std::time::Duration;

/// The largest number of ticks that the search for the last due run examines. The jitter is at most the
/// shortest gap between ticks, so the search rarely examines more than one tick.
const WALK_MAX: usize = 64;

/// The delay between a tick and the start of its run.
///
/// The delay is a pure function of the job's name and the tick, so that all workers of all versions compute the
/// same delay. The steps are: FNV-1a of the name, plus the tick's microseconds, then the output function of
/// SplitMix64, then scaling to the range. The delays of a job's ticks are uniform on `[0, max)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::scheduler) struct Jitter {
    seed: u64,
    max_micros: u64,
}

impl Jitter {
    pub(in crate::scheduler) fn new(job: &str, max: Duration) -> Self {
        Self { seed: fnv_1a(job), max_micros: u64::try_from(max.as_micros()).unwrap_or(u64::MAX) }
    }

    /// Returns the exclusive upper limit of the delays.
    pub(in crate::scheduler) fn max(self) -> Duration {
        Duration::from_micros(self.max_micros)
    }

    /// Returns the delay of a tick.
    pub(in crate::scheduler) fn of(self, tick: WallTime) -> Duration {
        let mixed = u128::from(split_mix(self.seed.wrapping_add(tick.as_micros())));
        let scaled = (mixed * u128::from(self.max_micros)) >> 64;
        Duration::from_micros(u64::try_from(scaled).unwrap_or(self.max_micros))
    }

    /// Returns the time at which the run of a tick is due: the tick plus its delay.
    pub(in crate::scheduler) fn ripe(self, tick: WallTime) -> WallTime {
        tick + self.of(tick)
    }

    /// Returns a time such that the runs of all ticks up to this time are due at `at`, and the runs of later
    /// ticks are not. There is such a time: no delay is longer than the shortest gap between ticks, so the runs
    /// are due in the order of their ticks.
    pub(in crate::scheduler) fn upto(self, schedule: &Schedule, at: WallTime) -> WallTime {
        if self.max_micros == 0 {
            return at;
        }
        let next = |tick: &WallTime| schedule.next_after(*tick).filter(|tick| *tick <= at);
        let first = next(&(at - self.max()));
        let not_due = std::iter::successors(first, next).take(WALK_MAX).find(|tick| self.ripe(*tick) > at);
        not_due.map_or(at, |tick| tick - Duration::from_micros(1))
    }
}

fn fnv_1a(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn split_mix(sum: u64) -> u64 {
    let z = sum.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::schedule::Schedule;

    const MINUTE: Duration = Duration::from_secs(60);

    fn tick(number: u64) -> WallTime {
        WallTime::from_micros(1_700_000_040_000_000 + number * 60_000_000)
    }

    /// Tests that the delays never change, because workers of different versions must compute the same delays.
    #[test]
    fn delays_do_not_change_between_versions() {
        assert_eq!(fnv_1a("a"), 0xaf63_dc4c_8601_ec8c, "from the table of test values of FNV-1a");
        assert_eq!(split_mix(0), 0xe220_a839_7b1d_cdaf, "the first output of SplitMix64 seeded with 0");
        let nightly = Jitter::new("nightly", MINUTE);
        let delays: Vec<_> = (0..4).map(|number| nightly.of(tick(number)).as_micros()).collect();
        assert_eq!(delays, PINNED);
        assert_ne!(Jitter::new("hourly", MINUTE).of(tick(0)).as_micros(), PINNED[0]);
    }

    const PINNED: [u128; 4] = [33_473_554, 32_580_117, 57_519_627, 35_787_355];

    #[test]
    fn delays_are_uniform_over_the_window() {
        let jitter = Jitter::new("j", MINUTE);
        let mut seconds = [0_u32; 60];
        for number in 0..60_000 {
            let delay = jitter.of(tick(number));
            assert!(delay < MINUTE);
            seconds[usize::try_from(delay.as_secs()).unwrap()] += 1;
        }
        // On average, 1,000 of the delays are in each second of the range. The limits are five standard
        // deviations from this average.
        let counts = seconds.iter().min().unwrap()..=seconds.iter().max().unwrap();
        assert!(*counts.start() > &840 && *counts.end() < &1_160, "{counts:?}");
        assert_eq!(Jitter::new("j", Duration::ZERO).of(tick(1)), Duration::ZERO);
    }

    #[test]
    fn due_runs_are_those_that_a_check_of_each_tick_finds() {
        let schedule: Schedule = Schedule::every(MINUTE).unwrap();
        for max in [Duration::ZERO, Duration::from_secs(7), MINUTE] {
            let jitter = Jitter::new("j", max);
            for second in 0..600 {
                let at = tick(5) + Duration::from_secs(second);
                let upto = jitter.upto(&schedule, at);
                let ripe = (0..40).map(tick).rfind(|tick| jitter.ripe(*tick) <= at);
                assert_eq!(schedule.last_within(tick(0), upto), ripe, "{max:?} at {second}");
            }
        }
    }
}
