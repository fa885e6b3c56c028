use crate::env::WallTime;
use std::{fmt, time::Duration};

/// The shortest period: a ledger round for each tick costs about that.
const SHORTEST: Duration = Duration::from_millis(1);

/// A tick at each whole multiple of a period since the Unix epoch, so that all workers agree on the ticks,
/// whenever each of them started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every {
    micros: u64,
}

/// A tick every `period`; the same as [`Every::new`].
///
/// # Errors
/// As [`Every::new`].
pub fn every(period: Duration) -> Result<Every, EveryError> {
    Every::new(period)
}

impl Every {
    /// A tick every `period`.
    ///
    /// # Errors
    /// [`EveryError`] where the period is shorter than a millisecond, holds a fraction of a microsecond, or is
    /// longer than the wall clock can count.
    pub fn new(period: Duration) -> Result<Self, EveryError> {
        whole_micros("period", period).map(|micros| Self { micros })
    }

    /// The period.
    pub const fn period(self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// The first tick strictly later than `after`.
    pub fn next_after(self, after: WallTime) -> Option<WallTime> {
        let tick = (after.as_micros() / self.micros).checked_add(1)?.checked_mul(self.micros)?;
        Some(WallTime::from_micros(tick))
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "every {:?}", self.period())
    }
}

/// `time` in microseconds, where that is a distance that can be kept between two ticks.
pub(super) fn whole_micros(what: &'static str, time: Duration) -> Result<u64, EveryError> {
    let fraction = !time.subsec_nanos().is_multiple_of(1_000);
    match u64::try_from(time.as_micros()) {
        Ok(micros) if time >= SHORTEST && !fraction => Ok(micros),
        _ => Err(EveryError { what, time }),
    }
}

/// A period, or a delay, that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {what} {time:?} cannot be kept; use at least 1ms, in whole microseconds")]
pub struct EveryError {
    what: &'static str,
    time: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_the_multiples_of_the_period() {
        let ten = every(Duration::from_secs(10)).unwrap();
        let at = |micros| ten.next_after(WallTime::from_micros(micros)).map(WallTime::as_micros);
        assert_eq!(at(0), Some(10_000_000));
        assert_eq!(at(9_999_999), Some(10_000_000));
        assert_eq!(at(10_000_000), Some(20_000_000), "strictly later");
        assert_eq!(at(u64::MAX), None, "the end of the clock is no panic");
    }

    #[test]
    fn impossible_periods_are_refused() {
        for period in
            [Duration::ZERO, Duration::from_micros(999), Duration::new(1, 1), Duration::from_secs(u64::MAX)]
        {
            assert!(every(period).unwrap_err().to_string().contains("at least 1ms"), "{period:?}");
        }
        assert!(every(Duration::from_millis(1)).is_ok());
    }
}
