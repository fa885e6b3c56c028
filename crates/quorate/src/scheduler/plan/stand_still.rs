//! Notices that the quorum's clock was set back. No tick runs twice, so the jobs then stand still until the clock has
//! reached the time again that it showed before.

use crate::env::{BootTime, WallTime};
use std::time::Duration;

/// The latest time of the quorum's clock, and whether the clock was set back since. Pure.
#[derive(Debug)]
pub(in crate::scheduler) struct StandStill {
    /// A clock that is behind by less is not reported: it depends on the nodes that answer by so much.
    tolerance: Duration,
    /// The latest time that the quorum's clock has shown, and the boot time at which it first showed it.
    reached: Option<(WallTime, BootTime)>,
    stands: bool,
}

/// A change that [`StandStill::look`] notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scheduler) enum ClockChange {
    /// The clock was set back: it is `by` behind the time `until`, which it had reached.
    SetBack { by: Duration, until: WallTime },
    /// The clock has reached the time again that it showed before it was set back.
    CaughtUp,
}

impl StandStill {
    pub(in crate::scheduler) fn new(max_clock_offset: Duration) -> Self {
        Self { tolerance: max_clock_offset * 2, reached: None, stands: false }
    }

    /// Notes that the quorum's clock shows `wall` at `now`.
    pub(in crate::scheduler) fn look(&mut self, wall: WallTime, now: BootTime) -> Option<ClockChange> {
        match self.reached {
            Some((until, _)) if wall < until => {
                let by = wall.until(until);
                let is_new = by > self.tolerance && !self.stands;
                self.stands |= is_new;
                is_new.then_some(ClockChange::SetBack { by, until })
            }
            _ => {
                self.reached = Some((wall, now));
                std::mem::take(&mut self.stands).then_some(ClockChange::CaughtUp)
            }
        }
    }

    /// Returns the time that the quorum's clock would show at `now` if it had not been set back. Returns `None` if it
    /// was not.
    pub(in crate::scheduler) fn elapsed(&self, now: BootTime) -> Option<WallTime> {
        let (wall, at) = self.reached.filter(|_| self.stands)?;
        Some(wall + at.until(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_is_reported_once_until_it_has_caught_up() {
        const SECOND: Duration = Duration::from_secs(1);
        let mut clock = StandStill::new(SECOND);
        let at = |seconds: u64| WallTime::from_micros(seconds * 1_000_000);
        let boot = |seconds: u32| BootTime::from_nanos(7) + SECOND * seconds;
        for (now, wall, change, elapsed) in [
            (0, 100, None, None),
            (1, 101, None, None),
            // Another majority answers, whose clocks are a little behind.
            (2, 99, None, None),
            (3, 103, None, None),
            (4, 44, Some(ClockChange::SetBack { by: 59 * SECOND, until: at(103) }), Some(104)),
            (5, 45, None, Some(105)),
            // It is set back further.
            (6, 6, None, Some(106)),
            (50, 102, None, Some(150)),
            (51, 103, Some(ClockChange::CaughtUp), None),
            (52, 104, None, None),
            (53, 50, Some(ClockChange::SetBack { by: 54 * SECOND, until: at(104) }), Some(105)),
        ] {
            assert_eq!(clock.look(at(wall), boot(now)), change, "at {now}");
            assert_eq!(clock.elapsed(boot(now)), elapsed.map(at), "at {now}");
        }
    }
}
