//! The invariants, one a file. Each is fed every line of every journal, as it comes, and what the parent knows;
//! none depends on the order in which the lines of different workers arrive.

mod claims;
mod exclusion;
mod fencing;
mod leftovers;
mod liveness;
mod step_down;
mod ticks;

pub(crate) use claims::Claims;
pub(crate) use exclusion::Exclusion;
pub(crate) use fencing::Fencing;
pub(crate) use leftovers::leftover;
pub(crate) use liveness::Liveness;
pub(crate) use step_down::StepDown;
pub(crate) use ticks::{Counts, Ticks};

use super::{journal::Entry, truth::Truth};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::time::Duration;

/// How long a line may be under way: longer than any process is stopped, and then some.
pub(crate) const HORIZON: Duration = Duration::from_secs(15);

/// One invariant.
pub(crate) trait Check {
    /// A line has come.
    fn take(&mut self, who: Who, entry: &Entry, truth: &Truth) -> Vec<String>;

    /// Now and then: judges what no line can change any more, and forgets it.
    fn settle(&mut self, now: BootTime, truth: &Truth) -> Vec<String>;

    /// How many things it is watching: must stay bounded.
    fn watching(&self) -> usize;
}

#[cfg(test)]
mod testing {
    //! Journals by hand.

    use super::*;
    use crate::journal::Event;

    pub(crate) fn at(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    pub(crate) fn who(member: usize) -> Who {
        Who { member, run: 1 }
    }

    pub(crate) fn line(ms: u64, event: Event) -> Entry {
        Entry { at: ms * 1_000_000, event }
    }

    pub(crate) fn held(ms: u64, token: u64, until: u64) -> Entry {
        line(
            ms,
            Event::Held { res: "x".into(), token, asked: (ms - 1) * 1_000_000, until: until * 1_000_000 },
        )
    }

    pub(crate) fn look(ms: u64, token: u64, until: u64) -> Entry {
        line(ms, Event::Look { res: "x".into(), token, until: until * 1_000_000 })
    }

    pub(crate) fn ending(ms: u64, token: u64) -> Entry {
        line(ms, Event::Ending { res: "x".into(), token })
    }

    /// What a check finds in lines of members, and long after.
    pub(crate) fn judge(check: &mut dyn Check, truth: &Truth, lines: &[(usize, Entry)]) -> Vec<String> {
        let mut found = Vec::new();
        for (member, entry) in lines {
            found.extend(check.take(who(*member), entry, truth));
        }
        found.extend(check.settle(at(1_000_000), truth));
        found
    }
}
