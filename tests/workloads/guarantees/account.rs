//! Every tick is accounted for: a pure look at all journals and at the faults that were made.

use super::{
    journal::{Entry, Event},
    settings::{JOBS, JobKind, MAKE_UP, TICK_EVERY},
};
use quorate::{
    env::{BootTime, WallTime},
    schedule::Delivery,
};
use quorate_tests::support::Who;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

/// From the moment in which a leader may start a tick until its first word, with a machine that is busy: a fault
/// within this explains a tick whose start was recorded and never written down.
const TO_BEGIN: Duration = Duration::from_secs(1);
/// From the end of a run until that is recorded.
const TO_RECORD: Duration = Duration::from_secs(1);
/// From the cut of a run at a step-down until its leader is known to lead no more, with a machine that is busy.
const TO_FALL: Duration = Duration::from_secs(10);
/// The time of a fault is taken before it: its victim may have gone on for as long.
const TO_HIT: Duration = Duration::from_millis(50);

/// How a leader was brought down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Killed,
    Told,
    Stopped,
    CutOff,
    /// Nobody did anything: the machine was too busy for its TTL.
    ByItself,
}

impl Kind {
    /// Those that are made on purpose.
    pub(crate) const MADE: [Self; 4] = [Self::Killed, Self::Told, Self::Stopped, Self::CutOff];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Killed => "SIGKILL",
            Self::Told => "SIGTERM",
            Self::Stopped => "SIGSTOP",
            Self::CutOff => "cut off",
            Self::ByItself => "by itself",
        })
    }
}

/// A change of the leader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) kind: Kind,
    /// Who led.
    pub(crate) who: Who,
    pub(crate) term: u64,
    /// When it was hit.
    pub(crate) at: BootTime,
}

/// All that happened.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) lines: Vec<(Who, Entry)>,
    pub(crate) changes: Vec<Change>,
    /// One moment on both clocks.
    pub(crate) clocks: (WallTime, BootTime),
    /// Ticks that are due after this are not judged.
    pub(crate) until: WallTime,
}

/// What came of a job's ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Account {
    /// Due.
    pub(crate) due: usize,
    /// Their handler came to its end, at least once.
    pub(crate) done: usize,
    /// Started more than once.
    pub(crate) again: usize,
    /// Not done: which, and what caught them.
    pub(crate) named: Vec<String>,
}

/// The verdict.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Verdict {
    pub(crate) jobs: BTreeMap<Arc<str>, Account>,
    /// From a tick's time to its first start, in milliseconds, sorted; made-up ticks included.
    #[serde(skip)]
    pub(crate) late_ms: Vec<u64>,
    /// The longest time without the start of any tick, in milliseconds.
    pub(crate) worst_gap_ms: u64,
    pub(crate) violations: Vec<String>,
}

#[derive(Debug, Default)]
struct Tick {
    starts: Vec<Start>,
}

#[derive(Clone, Copy, Debug)]
struct Start {
    who: Who,
    term: u64,
    at: BootTime,
    done: Option<BootTime>,
    cut: Option<BootTime>,
}

impl Story {
    /// Judges all of it.
    pub(crate) fn judge(&self) -> Verdict {
        let mut verdict = Verdict::default();
        let terms = self.terms(&mut verdict.violations);
        let ticks = self.ticks(&mut verdict.violations);
        for kind in JOBS {
            let job: Arc<str> = kind.name.into();
            match ticks.get(&job) {
                None => verdict.violations.push(format!("{job}: no tick of it ever started")),
                Some(ticks) => {
                    let account = self.account(kind, ticks, &terms, &mut verdict);
                    verdict.jobs.insert(job, account);
                }
            }
        }
        self.nothing_by_the_late(&terms, &mut verdict.violations);
        verdict.late_ms.sort_unstable();
        let mut starts: Vec<BootTime> = ticks
            .values()
            .flat_map(BTreeMap::values)
            .flat_map(|tick| &tick.starts)
            .map(|start| start.at)
            .collect();
        starts.sort_unstable();
        let gaps = starts.windows(2).map(|pair| pair[0].until(pair[1]).as_millis() as u64);
        verdict.worst_gap_ms = gaps.max().unwrap_or_default();
        verdict
    }

    /// The ticks that were started, by job and by their time, with what came of each start.
    fn ticks(&self, violations: &mut Vec<String>) -> BTreeMap<Arc<str>, BTreeMap<u64, Tick>> {
        let mut jobs: BTreeMap<Arc<str>, BTreeMap<u64, Tick>> = BTreeMap::new();
        for (who, entry) in &self.lines {
            if let Event::Start { job, tick, term, .. } = &entry.event {
                let start = Start { who: *who, term: *term, at: entry.at(), done: None, cut: None };
                jobs.entry(Arc::clone(job)).or_default().entry(*tick).or_default().starts.push(start);
            }
        }
        for (who, entry) in &self.lines {
            let (Event::Done { job, tick, term } | Event::Cut { job, tick, term }) = &entry.event else {
                continue;
            };
            let starts = jobs.get_mut(job).and_then(|ticks| ticks.get_mut(tick)).map(|tick| &mut tick.starts);
            let mut starts = starts.into_iter().flatten();
            let begun = starts.find(|start| start.who == *who && start.term == *term && start.done.is_none());
            match (begun, &entry.event) {
                (Some(start), Event::Done { .. }) => start.done = Some(entry.at()),
                (Some(start), _) => start.cut = Some(entry.at()),
                (None, _) => {
                    violations.push(format!("{job}: {tick} ended at {who:?} and never started there"));
                }
            }
        }
        jobs.values_mut()
            .flat_map(BTreeMap::values_mut)
            .for_each(|tick| tick.starts.sort_by_key(|start| start.at));
        jobs
    }

    /// When each term began, and under whom. They grow.
    fn terms(&self, violations: &mut Vec<String>) -> Vec<(BootTime, u64, Who)> {
        let leads = self.lines.iter().filter_map(|(who, entry)| match entry.event {
            Event::Leads { term } => Some((entry.at(), term, *who)),
            _ => None,
        });
        let mut terms: Vec<_> = leads.collect();
        terms.sort_unstable();
        for pair in terms.windows(2).filter(|pair| pair[0].1 >= pair[1].1) {
            violations.push(format!("terms: {:?} began after {:?}", pair[1], pair[0]));
        }
        terms
    }

    /// No tick starts under a term after a later one has begun.
    fn nothing_by_the_late(&self, terms: &[(BootTime, u64, Who)], violations: &mut Vec<String>) {
        for (who, entry) in &self.lines {
            let Event::Start { job, tick, term, .. } = &entry.event else { continue };
            if let Some((at, later, by)) =
                terms.iter().find(|(at, later, _)| later > term && *at < entry.at())
            {
                let late = at.until(entry.at());
                violations.push(format!(
                    "late start: {job}: {tick} started at {who:?} under {term}, {late:?} after {later} had begun at {by:?}"
                ));
            }
        }
    }

    fn account(
        &self,
        JobKind { name: job, delivery, takes }: JobKind,
        ticks: &BTreeMap<u64, Tick>,
        terms: &[(BootTime, u64, Who)],
        verdict: &mut Verdict,
    ) -> Account {
        let mut account = Account::default();
        let Some((&first, _)) = ticks.first_key_value() else { return account };
        let began = terms.first().map_or(self.clocks.1, |(at, ..)| *at);
        if self.boot(first) > began + TICK_EVERY * 2 + TO_BEGIN {
            verdict.violations.push(format!("{job}: its first tick was {first}, long after the first term"));
        }
        let none = Tick::default();
        for at in (first..=self.until.as_micros()).step_by(TICK_EVERY.as_micros() as usize) {
            let tick = ticks.get(&at).unwrap_or(&none);
            let (due, starts) = (self.boot(at), &tick.starts);
            account.due += 1;
            account.again += usize::from(starts.len() > 1);
            verdict.late_ms.extend(starts.first().map(|start| due.until(start.at).as_millis() as u64));
            if delivery == Delivery::AtMostOnce && starts.len() > 1 {
                verdict.violations.push(format!("started twice: {job}: {at}: {starts:?}"));
            }
            for pair in starts.windows(2) {
                if let Some(why) = self.again_without_cause(&pair[0], takes) {
                    verdict.violations.push(format!("started again: {job}: {at}: {why}: {starts:?}"));
                }
            }
            match starts.iter().filter_map(|start| start.done).min() {
                Some(done) => {
                    account.done += 1;
                    if due.until(done) > MAKE_UP {
                        verdict
                            .violations
                            .push(format!("too late: {job}: {at} was done {:?} after", due.until(done)));
                    }
                }
                None if delivery == Delivery::AtLeastOnce => {
                    verdict.violations.push(format!("lost: {job}: {at} was never done: {starts:?}"));
                }
                None => match self.caught(due, starts, takes, terms) {
                    Some(how) => account.named.push(format!("{at}: {how}")),
                    None => verdict
                        .violations
                        .push(format!("in the dark: {job}: {at}, and no fault tells why: {starts:?}")),
                },
            }
        }
        for at in ticks.keys().filter(|at| (**at - first) % TICK_EVERY.as_micros() as u64 != 0) {
            verdict.violations.push(format!("{job}: {at} is no tick of it"));
        }
        account
    }

    /// Why a tick should not have started again after this start, if it should not.
    fn again_without_cause(&self, first: &Start, takes: Duration) -> Option<String> {
        // A run that was cut at a step-down has said so itself, and then its term must have ended.
        let (until, why) = match first.cut {
            Some(cut) => (cut + TO_FALL, "it was cut, and its term did not end"),
            None => {
                let ended = first.done.unwrap_or(first.at + takes);
                (ended + TO_RECORD, "no fault came between its start and the record of its end")
            }
        };
        self.hit(first.who, first.term, first.at, until).is_none().then(|| why.to_owned())
    }

    /// What caught a tick between its start and its end, or between the record of its start and its first word.
    fn caught(
        &self,
        due: BootTime,
        starts: &[Start],
        takes: Duration,
        terms: &[(BootTime, u64, Who)],
    ) -> Option<String> {
        if let Some(start) = starts.first() {
            let hit = self.hit(start.who, start.term, start.at, start.at + takes + TO_RECORD);
            return match (start.cut, hit) {
                (Some(_), Some(change)) => {
                    Some(format!("cut at the step-down of {:?} ({})", start.who, change.kind))
                }
                (None, Some(change)) => Some(format!("{:?} was in it when hit ({})", start.who, change.kind)),
                (_, None) => None,
            };
        }
        // Its start was recorded by whoever led when it could begin.
        let mut could = terms.iter().filter_map(|(began, term, who)| {
            let begins = due.max(*began);
            self.hit(*who, *term, begins, begins + TO_BEGIN)
        });
        let change = could.find(|change| due.until(change.at) <= MAKE_UP)?;
        Some(format!(
            "recorded as started, and {:?} was hit before its first word ({})",
            change.who, change.kind
        ))
    }

    /// The change that ended this term, if it hit between these.
    fn hit(&self, who: Who, term: u64, from: BootTime, until: BootTime) -> Option<&Change> {
        let of = |change: &&Change| change.who == who && change.term == term;
        self.changes.iter().find(of).filter(|change| from <= change.at + TO_HIT && change.at <= until)
    }

    /// A tick's time on the boot clock.
    fn boot(&self, tick: u64) -> BootTime {
        let (wall, boot) = self.clocks;
        let tick = WallTime::from_micros(tick);
        if tick < wall { boot - tick.until(wall) } else { boot + wall.until(tick) }
    }
}

impl Verdict {
    /// The lateness of which this share is below, in milliseconds.
    pub(crate) fn late(&self, percent: usize) -> u64 {
        let at = (self.late_ms.len() * percent / 100).min(self.late_ms.len().saturating_sub(1));
        self.late_ms.get(at).copied().unwrap_or_default()
    }
}

/// The terms that began, in their order.
pub(crate) fn number_of_terms(lines: &[(Who, Entry)]) -> usize {
    let leads = lines.iter().filter_map(|(_, entry)| match entry.event {
        Event::Leads { term } => Some(term),
        _ => None,
    });
    leads.collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
