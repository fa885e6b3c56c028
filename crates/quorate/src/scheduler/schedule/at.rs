use crate::env::WallTime;
use crate::scheduler::schedule::Zone;
use std::fmt;

/// One tick, at one moment. A job that is registered after it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At(WallTime);

/// One tick, at this moment; one that has passed is accepted, and never due.
pub const fn at(moment: WallTime) -> At {
    At(moment)
}

impl At {
    /// When.
    pub const fn moment(self) -> WallTime {
        self.0
    }

    /// The tick, where it is later than `after`.
    pub fn next_after(self, after: WallTime) -> Option<WallTime> {
        (self.0 > after).then_some(self.0)
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "once at {}", Zone::UTC.format(self.0))
    }
}
