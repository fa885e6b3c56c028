//! The invariants that need the director's record of the faults, one in each file. Each check reads every event of every
//! journal when it arrives. No check depends on the order in which events of different workers arrive. (What the operations
//! of processes show alone is judged by `crate::histories`.)

mod all_done;
mod fenced_writes;
mod leftovers;
mod liveness;
mod step_down;
mod ticks;

pub(crate) use all_done::AllDone;
pub(crate) use fenced_writes::FencedWrites;
pub(crate) use leftovers::leftover;
pub(crate) use liveness::Liveness;
pub(crate) use step_down::StepDown;
pub(crate) use ticks::Ticks;

use crate::harness::{Entry, Truth};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::time::Duration;

/// The longest time until a line of a journal has arrived. It is longer than any stop of a process.
pub(crate) const HORIZON: Duration = Duration::from_secs(15);
/// The time for which a process may still act late after it continues from a pause.
const JUST_PAUSED: Duration = Duration::from_millis(300);

/// One invariant.
pub(crate) trait Check {
    /// Reads an event, and returns the violations that it shows.
    fn on_event(&mut self, who: Who, entry: &Entry, truth: &Truth) -> Vec<String>;

    /// Judges the entries that no later event can change, and removes them. The plan calls this method
    /// regularly.
    fn settle(&mut self, now: BootTime, truth: &Truth) -> Vec<String>;

    /// Returns the number of entries that the check has in memory. This number must stay limited.
    fn held(&self) -> usize;
}

#[cfg(test)]
pub(crate) mod testing {
    //! Helpers for tests that write the lines of a journal themselves.

    use super::*;
    use crate::harness::Event;
    use quorate::{
        env::WallTime,
        node::FencingToken,
        scheduler::{HistoryEntry, RunCause, RunOutcome},
    };

    pub(crate) fn at(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    pub(crate) fn who(member: usize) -> Who {
        Who { member, run: 1 }
    }

    pub(crate) fn line(ms: u64, event: Event) -> Entry {
        Entry { at: ms * 1_000_000, event }
    }

    /// Returns a record of faults in which five nodes could always vote.
    pub(crate) fn truth() -> Truth {
        Truth::new(5)
    }

    pub(crate) fn acquired(ms: u64, resource: &str, token: u64, until: u64) -> Entry {
        let requested = ms.saturating_sub(1) * 1_000_000;
        line(ms, Event::Acquired { resource: resource.into(), token, requested, until: until * 1_000_000 })
    }

    pub(crate) fn valid(ms: u64, resource: &str, token: u64, until: u64) -> Entry {
        line(ms, Event::Valid { resource: resource.into(), token, until: until * 1_000_000 })
    }

    pub(crate) fn started(ms: u64, job: &str, tick: u64, term: u64) -> Entry {
        line(ms, Event::RunStarted { job: job.into(), tick, term })
    }

    pub(crate) fn done(ms: u64, job: &str, tick: u64, term: u64) -> Entry {
        line(ms, Event::RunDone { job: job.into(), tick, term })
    }

    /// Returns an entry of a job's history.
    pub(crate) fn entered(name: &str, end: RunOutcome, term: u64, tick: WallTime) -> HistoryEntry {
        HistoryEntry {
            job: name.into(),
            tick,
            until: None,
            cause: RunCause::Scheduled,
            end,
            reason: "".into(),
            worker: "w".into(),
            term: FencingToken::new(term),
            started: None,
            took: None,
            attempts: 1,
            attempt_error: None,
            output: None,
        }
    }

    /// Gives the check the events of workers, and then lets much time pass. Returns the violations that it
    /// finds.
    pub(crate) fn judge(check: &mut dyn Check, truth: &Truth, lines: &[(usize, Entry)]) -> Vec<String> {
        let events = lines.iter().flat_map(|(member, entry)| check.on_event(who(*member), entry, truth));
        let mut found: Vec<String> = events.collect();
        found.extend(check.settle(at(1_000_000), truth));
        found
    }
}
