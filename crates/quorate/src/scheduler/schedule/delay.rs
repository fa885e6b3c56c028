use crate::{
    env::WallTime,
    scheduler::schedule::{error::InvalidSchedule, every::whole_micros},
};
use std::{fmt, time::Duration};

/// A schedule whose next tick is due a fixed time after the end of the last run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delay {
    micros: u64,
}

impl Delay {
    /// Creates a schedule whose next tick is due `delay` after the end of the last run.
    ///
    /// # Errors
    /// [`InvalidSchedule::Interval`], as for [`Schedule::delay`](super::Schedule::delay).
    pub(super) fn new(delay: Duration) -> Result<Self, InvalidSchedule> {
        whole_micros("delay", delay).map(|micros| Self { micros })
    }

    /// Returns the time between the end of a run and the next tick.
    pub(super) const fn time(self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// Returns the tick that follows a run which ended at `end`.
    pub(super) fn next_after_end(self, end: WallTime) -> Option<WallTime> {
        end.as_micros().checked_add(self.micros).map(WallTime::from_micros)
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after the last end", self.time())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_follows_the_end_of_the_run_before_it() {
        let minute = Delay::new(Duration::from_secs(60)).unwrap();
        assert_eq!(minute.next_after_end(WallTime::from_micros(7)), Some(WallTime::from_micros(60_000_007)));
        assert_eq!(minute.next_after_end(WallTime::from_micros(u64::MAX)), None);
        assert_eq!(minute.to_string(), "60s after the last end");
    }

    #[test]
    fn a_delay_of_zero_is_refused() {
        let error = Delay::new(Duration::ZERO).unwrap_err().to_string();
        assert_eq!(error, "the delay 0ns cannot be kept; use at least 1ms, in whole microseconds");
    }
}
