use crate::{env::WallTime, scheduler::schedule::error::InvalidSchedule};
use std::{fmt, time::Duration};

/// The shortest period. To write the records of a tick takes about this time, so a job cannot run more often.
const SHORTEST: Duration = Duration::from_millis(1);

/// A schedule with a tick at each whole multiple of a period since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Every {
    micros: u64,
}

impl Every {
    /// Creates a schedule with a tick every `period`.
    ///
    /// # Errors
    /// [`InvalidSchedule::Interval`], as for [`Schedule::every`](super::Schedule::every).
    pub(super) fn new(period: Duration) -> Result<Self, InvalidSchedule> {
        whole_micros("period", period).map(|micros| Self { micros })
    }

    /// Returns the time between two ticks.
    pub(super) const fn period(self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// Returns the first tick strictly later than `after`.
    pub(super) fn next_after(self, after: WallTime) -> Option<WallTime> {
        let tick = (after.as_micros() / self.micros).checked_add(1)?.checked_mul(self.micros)?;
        Some(WallTime::from_micros(tick))
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "every {:?}", self.period())
    }
}

/// Returns `time` in microseconds. Returns an error if `time` cannot be the time between two ticks.
pub(super) fn whole_micros(name: &'static str, time: Duration) -> Result<u64, InvalidSchedule> {
    let fraction = !time.subsec_nanos().is_multiple_of(1_000);
    match u64::try_from(time.as_micros()) {
        Ok(micros) if time >= SHORTEST && !fraction => Ok(micros),
        _ => Err(InvalidSchedule::Interval { name, time }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_the_multiples_of_the_period() {
        let ten = Every::new(Duration::from_secs(10)).unwrap();
        let at = |micros| ten.next_after(WallTime::from_micros(micros)).map(WallTime::as_micros);
        assert_eq!(at(0), Some(10_000_000));
        assert_eq!(at(9_999_999), Some(10_000_000));
        assert_eq!(at(10_000_000), Some(20_000_000), "strictly later");
        assert_eq!(at(u64::MAX), None, "the end of the clock does not panic");
    }

    #[test]
    fn impossible_periods_are_refused() {
        for period in
            [Duration::ZERO, Duration::from_micros(999), Duration::new(1, 1), Duration::from_secs(u64::MAX)]
        {
            assert!(Every::new(period).unwrap_err().to_string().contains("at least 1ms"), "{period:?}");
        }
        assert!(Every::new(Duration::from_millis(1)).is_ok());
    }
}
