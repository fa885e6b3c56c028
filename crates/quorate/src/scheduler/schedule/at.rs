use crate::{env::WallTime, scheduler::schedule::zone::Zone};
use std::fmt;

/// A schedule with a single tick, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At(pub(super) WallTime);

impl At {
    /// Returns the tick if it is later than `after`, and `None` otherwise.
    pub(super) fn next_after(self, after: WallTime) -> Option<WallTime> {
        (self.0 > after).then_some(self.0)
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "once at {}", Zone::UTC.format(self.0))
    }
}
