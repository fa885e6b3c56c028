//! The histories of locks, stores, ticks and messages, which a linearizability checker judges at the end of a run. The
//! checker is not ours (see [`history`](crate::history)), and it knows nothing of the other invariants.
//!
//! The exceptions are those of the other invariants, and each makes a history say less, not more:
//!
//! * A grant that had ended before its worker saw it, and one whose worker's clock stood still, is no operation. A grant
//!   whose worker's clock stands still later ends at the last moment before that, and is not judged again.
//! * A grant that an operator releases by force ends at the last moment before that, and is not judged again.
//! * The end of a run may take effect at any time since its start, because a paused worker's run is active and does
//!   nothing. So no overlap of two runs is judged here; *succession* and *runs* do that.
//! * If a majority no longer stores the record of an end, because servers forgot, an operation says so. The message or
//!   tick may then begin again.
//! * The start of a tick of an at-least-once job under a term whose worker's clock stood still is no operation.

mod grants;
mod locks;
mod messages;
mod registers;
mod runs;
mod ticks;

pub(super) use locks::LockHistory;
pub(super) use messages::MessageHistory;
pub(super) use registers::RegisterHistory;
pub(super) use runs::RunHistory;
pub(super) use ticks::TickHistory;

use crate::history::{Findings, History, Limits, Moment, Specification};
use std::time::Duration;

/// Returns the counts of an invariant of this module: the operations that were checked, and the parts of histories
/// that were not judged.
macro_rules! judged {
    ($findings:expr, $of:literal) => {
        vec![
            (concat!("history operation of ", $of), $findings.operations as u64),
            (concat!("history undecided of ", $of), $findings.undecided.len() as u64),
        ]
    };
}
use judged;

use super::Event;

/// Gives each event a moment of its own. The events of one millisecond keep their order.
#[derive(Debug, Default)]
struct Moments {
    last: Duration,
    count: u64,
}

impl Moments {
    fn next(&mut self, now: Duration) -> Moment {
        self.count = if now == self.last { self.count + 1 } else { 0 };
        self.last = now;
        Moment::from_nanos(nanos(now) + self.count)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Checks a history, adds the findings to `total`, and returns the first violation.
fn judge<S: Specification>(history: &History<S>, total: &mut Findings) -> Result<(), String> {
    let found = history.check(&Limits::default());
    let first = found.violations.first().cloned();
    total.merge(found);
    first.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_millisecond_keep_their_order() {
        let mut moments = Moments::default();
        let ms = Duration::from_millis;
        let all = [ms(0), ms(0), ms(1), ms(1), ms(1), ms(3)].map(|now| moments.next(now));
        assert!(all.is_sorted_by(|one, two| one < two), "{all:?}");
    }
}
