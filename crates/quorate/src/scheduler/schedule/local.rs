//! Converts local times to instants, by the rules for gaps and repetitions (see [`Dst`]).
//!
//! All values are whole seconds since the epoch. An *instant* is in UTC. A *local* time is the number that a
//! clock in the zone shows, converted as if it were UTC.

use crate::scheduler::schedule::{dst::Dst, line::Line, zone::Zone};

/// The smallest change of the offset, in seconds, that counts as a correction of the calendar. The rules for
/// gaps and repetitions do not apply to a correction.
const CORRECTION: i64 = 3 * 3600;
/// The maximal number of skipped times of a fixed-time job that run after one gap.
const CATCH_UP_MAX: usize = 60;

/// The local times that match a cron line.
#[derive(Debug)]
pub(super) struct LocalTimes {
    /// The lines whose times together are the local times. There are several lines if either day field may
    /// match, or if a day depends on the length of its month.
    pub(super) lines: Vec<Line>,
    /// True if the line is a fixed-time job, as [`Dst`] defines it.
    pub(super) fixed: bool,
}

impl LocalTimes {
    /// Returns the first local time later than `local`.
    pub(super) fn next(&self, local: i64) -> Option<i64> {
        self.lines.iter().filter_map(|line| line.next(local)).min()
    }

    fn has(&self, local: i64) -> bool {
        self.next(local - 1) == Some(local)
    }
}

/// Returns the first tick later than the instant `after`.
///
/// The search goes from one change of the offset to the next. Between two changes the offset is constant, so
/// the first matching local time gives the first tick.
pub(super) fn next_after(times: &LocalTimes, zone: &Zone, rule: Dst, after: i64) -> Option<i64> {
    let (runs_skipped, ignores_second_pass) =
        (rule.runs_skipped(times.fixed), rule.ignores_second_pass(times.fixed));
    let mut from = after + 1;
    loop {
        let ahead = zone.ahead_at(from);
        let catch_up = if runs_skipped { catch_up_from(times, zone, from) } else { None };
        let found = times.next(from + ahead - 1).map(|local| local - ahead);
        let end = found.into_iter().chain(catch_up).min()?;
        if let Some(change) = change_within(zone, from, end) {
            from = change;
            continue;
        }
        match second_pass(zone, end).filter(|_| ignores_second_pass && catch_up != Some(end)) {
            Some(over) => from = over,
            None => return Some(end),
        }
    }
}

/// A change of the offset, with the offsets before and after it.
struct Change {
    /// The first instant with the new offset.
    at: i64,
    before: i64,
    after: i64,
}

/// Returns the first instant in `(from, to]` whose offset differs from that of `from`.
fn change_within(zone: &Zone, from: i64, to: i64) -> Option<i64> {
    let ahead = zone.ahead_at(from);
    zone.changes_after(from).take_while(|at| *at <= to).find(|at| zone.ahead_at(*at) != ahead)
}

/// Returns the last change of the offset, if it was in the three hours up to and including `at`. A change by
/// [`CORRECTION`] or more corrects the calendar of the zone, and does not count.
fn recent_change(zone: &Zone, at: i64) -> Option<Change> {
    let since = at - CORRECTION;
    let changed = change_within(zone, since, at)?;
    let change = Change { at: changed, before: zone.ahead_at(since), after: zone.ahead_at(changed) };
    ((change.after - change.before).abs() < CORRECTION).then_some(change)
}

/// If the clock shows the local time of the instant `at` for the second time, returns the instant at which the
/// repetition ends. Otherwise returns `None`.
fn second_pass(zone: &Zone, at: i64) -> Option<i64> {
    let change = recent_change(zone, at)?;
    Some(change.at + change.before - change.after).filter(|over| at < *over)
}

/// Returns the first instant, at or after `from`, at which a fixed-time job runs for a time that a recent gap
/// skipped.
fn catch_up_from(times: &LocalTimes, zone: &Zone, from: i64) -> Option<i64> {
    let gap = recent_change(zone, from).filter(|change| change.after > change.before)?;
    let end = gap.at + gap.after - gap.before;
    let mut skipped = gap.at + gap.before - 1;
    let mut second = gap.at;
    for _ in 0..CATCH_UP_MAX {
        skipped = times.next(skipped).filter(|local| *local < gap.at + gap.after)?;
        while second < end && times.has(second + gap.after) {
            second += 1;
        }
        if second >= end {
            return None;
        }
        if second >= from {
            return Some(second);
        }
        second += 1;
    }
    None
}
