//! From local times to instants: the rules for gaps and repetitions (see [`Dst`]).
//!
//! Everything here is in whole seconds since the epoch: an *instant* in UTC, a *local* time as if UTC.

use crate::scheduler::schedule::{Dst, Zone, line::Line};

/// A change of this much or more is a correction, to which the rule does not apply.
const CORRECTION: i64 = 3 * 3600;
/// How many skipped times of a fixed-time job are made up after one gap.
const MADE_UP_MAX: usize = 60;

/// The local times of a cron line.
#[derive(Debug)]
pub(super) struct LocalTimes {
    /// Their union. (Several where either day field may be met, or a day depends on the length of its month.)
    pub(super) lines: Vec<Line>,
    /// Whether the line is a fixed-time job.
    pub(super) fixed: bool,
}

impl LocalTimes {
    /// The first local time later than `local`.
    pub(super) fn next(&self, local: i64) -> Option<i64> {
        self.lines.iter().filter_map(|line| line.next(local)).min()
    }

    fn has(&self, local: i64) -> bool {
        self.next(local - 1) == Some(local)
    }
}

/// The first tick later than the instant `after`.
///
/// Walks from one change of the offset to the next: between two changes local time and real time run side by
/// side, so the first local time there is the first tick.
pub(super) fn next_after(times: &LocalTimes, zone: &Zone, rule: Dst, after: i64) -> Option<i64> {
    let (makes_up, holds_back) = (rule.makes_up(times.fixed), rule.holds_back(times.fixed));
    let mut from = after + 1;
    loop {
        let ahead = zone.ahead_at(from);
        let made_up = if makes_up { made_up_from(times, zone, from) } else { None };
        let found = times.next(from + ahead - 1).map(|local| local - ahead);
        let end = found.into_iter().chain(made_up).min()?;
        if let Some(change) = change_within(zone, from, end) {
            from = change;
            continue;
        }
        match second_pass(zone, end).filter(|_| holds_back && made_up != Some(end)) {
            Some(over) => from = over,
            None => return Some(end),
        }
    }
}

/// A change of the offset: the first instant that has the new one.
struct Change {
    at: i64,
    before: i64,
    after: i64,
}

/// The first instant in `(from, to]` whose offset is not that of `from`.
fn change_within(zone: &Zone, from: i64, to: i64) -> Option<i64> {
    let ahead = zone.ahead_at(from);
    zone.changes_after(from).take_while(|at| *at <= to).find(|at| zone.ahead_at(*at) != ahead)
}

/// The change to which the rule applies in the hours up to and including `at`.
fn recent_change(zone: &Zone, at: i64) -> Option<Change> {
    let since = at - CORRECTION;
    let changed = change_within(zone, since, at)?;
    let change = Change { at: changed, before: zone.ahead_at(since), after: zone.ahead_at(changed) };
    ((change.after - change.before).abs() < CORRECTION).then_some(change)
}

/// If the clock on the wall has shown before what it shows at `at`: when that is over.
fn second_pass(zone: &Zone, at: i64) -> Option<i64> {
    let change = recent_change(zone, at)?;
    Some(change.at + change.before - change.after).filter(|over| at < *over)
}

/// The first instant, not before `from`, at which a skipped time of a fixed-time job is made up for a gap
/// that has just passed.
fn made_up_from(times: &LocalTimes, zone: &Zone, from: i64) -> Option<i64> {
    let gap = recent_change(zone, from).filter(|change| change.after > change.before)?;
    let end = gap.at + gap.after - gap.before;
    let mut lost = gap.at + gap.before - 1;
    let mut second = gap.at;
    for _ in 0..MADE_UP_MAX {
        lost = times.next(lost).filter(|local| *local < gap.at + gap.after)?;
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
