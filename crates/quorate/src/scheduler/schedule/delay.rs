use crate::env::WallTime;
use crate::scheduler::schedule::EveryError;
use std::{fmt, time::Duration};

/// A tick a fixed time after the last run has ended: never beside itself, however long a run takes.
///
/// Such ticks do not lie on the clock: they hang on what happened. The first one is when the job was first
/// registered; each other is the end of the run before it, *as the ledger has it*, plus the delay. Every leader
/// reads the same end there, and so comes to the same tick. A tick that came to no end of its own (it was lost
/// with its leader, skipped, cancelled) ends when that is written into the ledger; so the chain goes on. A late
/// tick is never misfired: nothing else would start the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    micros: u64,
}

/// A tick `delay` after the last run has ended; the same as [`Delay::new`].
///
/// # Errors
/// As [`Delay::new`].
pub fn delay(delay: Duration) -> Result<Delay, EveryError> {
    Delay::new(delay)
}

impl Delay {
    /// A tick `delay` after the last run has ended.
    ///
    /// # Errors
    /// [`EveryError`] where it is shorter than a millisecond, holds a fraction of a microsecond, or is longer
    /// than the wall clock can count.
    pub fn new(delay: Duration) -> Result<Self, EveryError> {
        super::every::whole_micros("delay", delay).map(|micros| Self { micros })
    }

    /// How long after the end.
    pub const fn time(self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// The tick that follows a run which ended at `end`.
    pub fn next_after_end(self, end: WallTime) -> Option<WallTime> {
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
    fn a_tick_hangs_on_the_end_before_it() {
        let minute = delay(Duration::from_secs(60)).unwrap();
        assert_eq!(minute.next_after_end(WallTime::from_micros(7)), Some(WallTime::from_micros(60_000_007)));
        assert_eq!(minute.next_after_end(WallTime::from_micros(u64::MAX)), None);
        assert_eq!(minute.to_string(), "60s after the last end");
    }

    #[test]
    fn a_delay_of_nothing_is_refused() {
        let error = delay(Duration::ZERO).unwrap_err().to_string();
        assert_eq!(error, "the delay 0ns cannot be kept; use at least 1ms, in whole microseconds");
    }
}
