//! Converts local times to instants. For skipped and repeated local times, the rules of [`Dst`] apply.
//!
//! All values are whole seconds since the epoch. An *instant* is in UTC. A *local* time is what a clock in the
//! zone shows, converted to a number as if local time were UTC.

use crate::scheduler::schedule::{dst::Dst, line::Line, zone::Zone};
use std::ops::Range;

/// A change of the offset by at least this number of seconds is a correction of the calendar. The rules for
/// skipped and repeated local times do not apply to a correction.
const CORRECTION: i64 = 3 * 3600;
/// The largest number of skipped times of a fixed-time job that run after one gap.
const CATCH_UP_MAX: usize = 60;

/// The local times that match a cron line.
#[derive(Debug)]
pub(super) struct LocalTimes {
    /// The lines whose times together are the local times of the cron line. There are several lines if a day
    /// matches when it matches either day field, or if a day depends on the length of its month.
    pub(super) lines: Vec<Line>,
    /// True if the line is a fixed-time job, as [`Dst`] defines it.
    pub(super) fixed: bool,
}

impl LocalTimes {
    /// Returns the first local time later than `local`.
    pub(super) fn next(&self, local: i64) -> Option<i64> {
        self.lines.iter().filter_map(|line| line.next(local)).min()
    }

    pub(super) fn count_within(&self, span: Range<i64>) -> u64 {
        let mut count = 0;
        let mut local = span.start - 1;
        while let Some(next) = self.next(local).filter(|next| *next < span.end) {
            count += 1;
            local = next;
        }
        count
    }

    fn has(&self, local: i64) -> bool {
        self.next(local - 1) == Some(local)
    }
}

/// Returns the first tick later than the instant `after`.
///
/// The search goes from one change of the offset to the next. Between two changes the offset is constant. So
/// the first matching local time there gives the first tick.
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

/// A change of the offset, with the offset before the change and the offset after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockChange {
    /// The first instant with the new offset.
    pub(super) at: i64,
    pub(super) before: i64,
    pub(super) after: i64,
}

impl ClockChange {
    /// Returns the first change of the offset later than the instant `after`.
    pub(super) fn next(zone: &Zone, after: i64) -> Option<Self> {
        let before = zone.ahead_at(after);
        let at = zone.changes_after(after).find(|at| zone.ahead_at(*at) != before)?;
        Some(Self { at, before, after: zone.ahead_at(at) })
    }

    /// Returns whether the change is a correction of the calendar, to which the rules of [`Dst`] do not apply.
    pub(super) const fn is_correction(&self) -> bool {
        (self.after - self.before).abs() >= CORRECTION
    }

    /// Returns the local times that the clock skips.
    pub(super) const fn skipped(&self) -> Range<i64> {
        self.at + self.before..self.at + self.after
    }

    /// Returns the local times that the clock shows twice.
    pub(super) const fn repeated(&self) -> Range<i64> {
        self.at + self.after..self.at + self.before
    }

    /// Returns the instants, right after the change, at which a job runs for the skipped local times.
    pub(super) fn late_ticks(&self, times: &LocalTimes, zone: &Zone, rule: Dst) -> Vec<i64> {
        let mut ticks = Vec::new();
        let mut from = self.at;
        while rule.runs_skipped(times.fixed)
            && let Some(tick) = catch_up_from(times, zone, from)
        {
            ticks.push(tick);
            from = tick + 1;
        }
        ticks
    }
}

/// Returns the first instant in `(from, to]` whose offset differs from that of `from`.
fn change_within(zone: &Zone, from: i64, to: i64) -> Option<i64> {
    let ahead = zone.ahead_at(from);
    zone.changes_after(from).take_while(|at| *at <= to).find(|at| zone.ahead_at(*at) != ahead)
}

/// Returns the change of the offset in the three hours up to `at`, included. Returns `None` if there is no such
/// change, or if it is a correction of the calendar.
fn recent_change(zone: &Zone, at: i64) -> Option<ClockChange> {
    let since = at - CORRECTION;
    let changed = change_within(zone, since, at)?;
    let change = ClockChange { at: changed, before: zone.ahead_at(since), after: zone.ahead_at(changed) };
    (!change.is_correction()).then_some(change)
}

/// If the instant `at` has a local time that the clock shows for the second time, returns the instant at which
/// the repetition ends. Otherwise returns `None`.
fn second_pass(zone: &Zone, at: i64) -> Option<i64> {
    let change = recent_change(zone, at)?;
    Some(change.at + change.before - change.after).filter(|over| at < *over)
}

/// Returns the first instant, at or after `from`, at which a fixed-time job runs for a local time that was
/// skipped by a recent gap.
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
