//! Judges every tick of the plan. The verdict depends only on the journals of all workers and on the faults. (That no
//! at-most-once tick starts twice is judged by `crate::histories`.)

use super::to_boot;
use crate::{
    harness::{Durations, Entry, Event},
    work::{
        TERM,
        lead::{CATCH_UP, GUARANTEES, JobKind, TICK_EVERY},
    },
};
use quorate::{
    env::{BootTime, WallTime},
    scheduler::Delivery,
};
use quorate_tests::support::Who;
use serde::Serialize;
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

/// The longest time, on a busy machine, from the moment at which a leader may start a tick to the first event
/// of the tick's run. If a fault hits the leader within this time, the start may be recorded although the
/// journal has no event of the run.
const TO_START: Duration = Duration::from_secs(1);
/// The longest time from the end of a run until the leader has recorded that end.
const TO_RECORD: Duration = Duration::from_secs(1);
/// The longest time, on a busy machine, from the step-down that interrupts a run to the line of the journal
/// that shows the end of the leader's term.
const TO_FALL: Duration = Duration::from_secs(10);
/// The longest time from the director's note of a fault to the effect of the fault. The leader may still work
/// during this time.
const TO_HIT: Duration = Duration::from_millis(50);

/// The way in which a leader lost its term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Killed,
    Terminated,
    Stopped,
    CutOff,
    /// The leader lost its term without a fault: the machine was busy for longer than the TTL.
    ByItself,
}

impl Kind {
    /// The faults that the director causes.
    pub(super) const MADE: [Self; 4] = [Self::Killed, Self::Terminated, Self::Stopped, Self::CutOff];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Killed => "SIGKILL",
            Self::Terminated => "SIGTERM",
            Self::Stopped => "SIGSTOP",
            Self::CutOff => "cut off",
            Self::ByItself => "by itself",
        })
    }
}

/// The loss of a term by its leader, usually through a fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) kind: Kind,
    pub(super) who: Who,
    pub(super) term: u64,
    /// The time at which the fault hit the leader.
    pub(super) at: BootTime,
}

/// All events and faults of the run.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) lines: Vec<(Who, Entry)>,
    pub(super) changes: Vec<Change>,
    /// One moment, as read on the wall clock and on the boot clock.
    pub(super) clocks: (WallTime, BootTime),
    /// The time of the last tick that is judged.
    pub(super) until: WallTime,
}

/// The outcomes of a job's ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Account {
    pub(super) due: usize,
    /// The number of ticks with a run that completed.
    pub(super) done: usize,
    /// The number of ticks that started more than once.
    pub(super) again: usize,
    /// Descriptions of the ticks that are not done. Each description contains the fault that is the reason.
    pub(super) explained: Vec<String>,
}

/// The result of judging all ticks.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict {
    pub(super) jobs: BTreeMap<Arc<str>, Account>,
    /// The times from a tick to its first start, including catch-up runs.
    pub(super) late: Durations,
    /// The longest time without the start of any tick.
    pub(super) longest_gap: Duration,
    pub(super) violations: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct Start {
    who: Who,
    term: u64,
    at: BootTime,
    done: Option<BootTime>,
    interrupted: Option<BootTime>,
}

/// The starts of each tick, by the name of the job and the time of the tick.
type Ticks = BTreeMap<Arc<str>, BTreeMap<u64, Vec<Start>>>;
/// The terms in order. Each has the time at which it began, its number, and its leader.
type Terms = Vec<(BootTime, u64, Who)>;

/// Returns the terms that began, in order.
pub(super) fn terms(lines: &[(Who, Entry)]) -> Terms {
    let began = lines.iter().filter_map(|(who, entry)| match &entry.event {
        Event::Acquired { resource, token, .. } if &**resource == TERM => Some((entry.at(), *token, *who)),
        _ => None,
    });
    let mut terms: Terms = began.collect();
    terms.sort_unstable();
    terms
}

impl Story {
    /// Judges every tick.
    pub(super) fn judge(&self) -> Verdict {
        let mut verdict = Verdict::default();
        let terms = terms(&self.lines);
        let ticks = self.ticks(&mut verdict.violations);
        for kind in GUARANTEES {
            match ticks.get(kind.name) {
                None => verdict.violations.push(format!("{}: no tick of it ever started", kind.name)),
                Some(ticks) => {
                    let account = self.account(*kind, ticks, &terms, &mut verdict);
                    verdict.jobs.insert(kind.name.into(), account);
                }
            }
        }
        self.late_starts(&terms, &mut verdict.violations);
        let starts = ticks.values().flat_map(BTreeMap::values).flatten();
        let mut starts: Vec<BootTime> = starts.map(|start| start.at).collect();
        starts.sort_unstable();
        let gaps = starts.windows(2).map(|pair| pair[0].until(pair[1]));
        verdict.longest_gap = gaps.max().unwrap_or_default();
        verdict
    }

    /// Returns the ticks that were started. Each has its starts, with their outcomes.
    fn ticks(&self, violations: &mut Vec<String>) -> Ticks {
        let mut jobs = Ticks::new();
        for (who, entry) in &self.lines {
            if let Event::RunStarted { job, tick, term } = &entry.event {
                let start = Start { who: *who, term: *term, at: entry.at(), done: None, interrupted: None };
                jobs.entry(Arc::clone(job)).or_default().entry(*tick).or_default().push(start);
            }
        }
        for (who, entry) in &self.lines {
            let (Event::RunDone { job, tick, term } | Event::RunInterrupted { job, tick, term }) =
                &entry.event
            else {
                continue;
            };
            let starts = jobs.get_mut(job).and_then(|ticks| ticks.get_mut(tick)).into_iter().flatten();
            let active =
                |start: &&mut Start| start.who == *who && start.term == *term && start.done.is_none();
            match (starts.into_iter().find(active), &entry.event) {
                (Some(start), Event::RunDone { .. }) => start.done = Some(entry.at()),
                (Some(start), _) => start.interrupted = Some(entry.at()),
                (None, _) => {
                    violations.push(format!("{job}: {tick} ended at {who:?} and never started there"));
                }
            }
        }
        jobs.values_mut()
            .flat_map(BTreeMap::values_mut)
            .for_each(|starts| starts.sort_by_key(|start| start.at));
        jobs
    }

    /// Checks that no tick starts under a term after a later term has begun.
    fn late_starts(&self, terms: &Terms, violations: &mut Vec<String>) {
        for (who, entry) in &self.lines {
            let Event::RunStarted { job, tick, term } = &entry.event else { continue };
            if let Some(later) = terms.iter().find(|(at, later, _)| later > term && *at < entry.at()) {
                let at = entry.at();
                violations.push(format!(
                    "late start: {job}: {tick} at {who:?} under {term} at {at:?}, after {later:?}"
                ));
            }
        }
    }

    fn account(
        &self,
        JobKind { name: job, delivery, takes: [takes, _] }: JobKind,
        ticks: &BTreeMap<u64, Vec<Start>>,
        terms: &Terms,
        verdict: &mut Verdict,
    ) -> Account {
        let mut account = Account::default();
        let Some((&first, _)) = ticks.first_key_value() else { return account };
        let mut violate = |text: String| verdict.violations.push(text);
        let began = terms.first().map_or(self.clocks.1, |(at, ..)| *at);
        if self.boot(first) > began + TICK_EVERY * 2 + TO_START {
            violate(format!("{job}: its first tick was {first}, long after the first term"));
        }
        let none = Vec::new();
        for at in (first..=self.until.as_micros()).step_by(TICK_EVERY.as_micros() as usize) {
            let starts = ticks.get(&at).unwrap_or(&none);
            let due = self.boot(at);
            account.due += 1;
            account.again += usize::from(starts.len() > 1);
            starts.first().into_iter().for_each(|start| verdict.late.add(due.until(start.at)));
            for pair in starts.windows(2) {
                if let Some(why) = self.again_without_cause(&pair[0], takes) {
                    violate(format!("started again: {job}: {at}: {why}: {starts:?}"));
                }
            }
            match starts.iter().filter_map(|start| start.done).min() {
                Some(done) => {
                    account.done += 1;
                    if due.until(done) > CATCH_UP {
                        violate(format!("too late: {job}: {at} was done {:?} after", due.until(done)));
                    }
                }
                None if delivery == Delivery::AtLeastOnce => {
                    violate(format!("lost: {job}: {at} was never done: {starts:?}"));
                }
                None => match self.explanation(due, starts, takes, terms) {
                    Some(how) => account.explained.push(format!("{at}: {how}")),
                    None => violate(format!("unexplained: {job}: {at} is not done: {starts:?}")),
                },
            }
        }
        for at in ticks.keys().filter(|at| (**at - first) % TICK_EVERY.as_micros() as u64 != 0) {
            violate(format!("{job}: {at} is no tick of it"));
        }
        account
    }

    /// Returns `None` if the tick may start again after this start. Otherwise returns the reason why it must
    /// not.
    fn again_without_cause(&self, first: &Start, takes: Duration) -> Option<&'static str> {
        // If the journal shows that a step-down interrupted the run, the term of the run must have ended soon
        // after that.
        let (until, why) = match first.interrupted {
            Some(interrupted) => (interrupted + TO_FALL, "it was interrupted, and its term did not end"),
            None => {
                let ended = first.done.unwrap_or(first.at + takes);
                (ended + TO_RECORD, "no fault came between its start and the record of its end")
            }
        };
        self.hit(first.who, first.term, first.at, until).is_none().then_some(why)
    }

    /// Returns, as text, the fault that explains why a tick is not done. If the journal shows a start, the
    /// fault must have hit the leader between that start and the record of the run's end. Otherwise, the fault
    /// must have hit the leader within [`TO_START`] of the moment at which the leader could start the tick.
    fn explanation(&self, due: BootTime, starts: &[Start], takes: Duration, terms: &Terms) -> Option<String> {
        if let Some(start) = starts.first() {
            let change = self.hit(start.who, start.term, start.at, start.at + takes + TO_RECORD)?;
            let how = if start.interrupted.is_some() {
                "interrupted at the step-down of"
            } else {
                "active when hit:"
            };
            return Some(format!("{how} {:?} ({})", start.who, change.kind));
        }
        // No journal has a start of this tick. So a leader must have recorded the start, and a fault must have
        // hit that leader before the first event of the run.
        let mut hits = terms.iter().filter_map(|(began, term, who)| {
            let starts = due.max(*began);
            self.hit(*who, *term, starts, starts + TO_START)
        });
        let change = hits.find(|change| due.until(change.at) <= CATCH_UP)?;
        Some(format!("recorded as started before {:?} was hit ({})", change.who, change.kind))
    }

    /// Returns the change that ended this term, if its fault hit the leader between `from` and `until`.
    fn hit(&self, who: Who, term: u64, from: BootTime, until: BootTime) -> Option<&Change> {
        let of = |change: &&Change| change.who == who && change.term == term;
        self.changes.iter().find(of).filter(|change| from <= change.at + TO_HIT && change.at <= until)
    }

    fn boot(&self, tick: u64) -> BootTime {
        to_boot(self.clocks, tick)
    }
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
