//! Judges every tick of the plan. The verdict depends only on the journals of all workers, on the kills, and
//! on the histories of the jobs. (That no at-most-once tick starts twice is judged by `crate::histories`.)

use super::{Settings, wall};
use crate::{
    harness::{Durations, Entry, Event},
    work::lead::TICK_EVERY,
};
use quorate::{
    env::{BootTime, SystemWorld, WallTime, World},
    scheduler::{Delivery, HistoryEntry, RunOutcome},
};
use quorate_tests::support::Who;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The longest time from the claim of a slot to the first event of the run. The same limit applies from the
/// last event of a run to the record of its end.
const TO_RECORD: Duration = Duration::from_secs(2);
/// The longest time from a tick until a worker takes the slot of the tick's run. This includes the wait for a
/// slot that a killed worker had taken before.
const TO_TAKE: Duration = Duration::from_secs(10);
/// The time that a worker needs after its start until it takes its share of the runs. It has to connect, to be
/// trusted, and to read the open runs.
const TO_JOIN: Duration = Duration::from_secs(3);
/// The smallest number of runs from which the shares of the workers are judged. Only runs that started while
/// all workers lived count.
const SHARES_FROM: usize = 300;

/// Returns the delivery rule of the job with this number. The rules alternate.
pub(super) fn delivery(number: u32) -> Delivery {
    if number.is_multiple_of(2) { Delivery::AtMostOnce } else { Delivery::AtLeastOnce }
}

/// Returns the delivery rule of a job, by the beginning of its name.
pub(super) fn delivery_of(job: &str) -> Delivery {
    if job.starts_with("least") { Delivery::AtLeastOnce } else { Delivery::AtMostOnce }
}

/// Returns the beginning of the name of the job with this number. It shows the job's delivery rule.
pub(super) fn rule(number: u32) -> &'static str {
    match delivery(number) {
        Delivery::AtMostOnce => "most",
        Delivery::AtLeastOnce => "least",
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Kill {
    pub(super) who: Who,
    /// The time just before the kill.
    pub(super) at: BootTime,
}

/// The events of all workers' journals, and the kills, from which every tick is judged. The histories are
/// passed to [`Story::judge`].
#[derive(Debug)]
pub(super) struct Story {
    /// The time of the last tick that is judged.
    pub(super) until: WallTime,
    /// One moment, as read on the wall clock and on the boot clock.
    clocks: (WallTime, BootTime),
    jobs: Vec<(Arc<str>, Delivery)>,
    ready: Vec<(Who, BootTime)>,
    kills: Vec<Kill>,
    starts: BTreeMap<(Arc<str>, u64), Vec<Start>>,
    /// Ends of runs for which the journals have no start, as descriptions.
    unknown: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct Start {
    who: Who,
    term: u64,
    at: BootTime,
    done: Option<BootTime>,
    interrupted: bool,
}

/// The result of judging a story.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) ticks: usize,
    /// The number of ticks with a run that completed.
    pub(super) done: usize,
    /// The number of ticks that started more than once.
    pub(super) again: usize,
    /// The number of ticks without a run that completed.
    pub(super) lost: usize,
    /// For each worker, the number of its runs that started while all workers lived.
    pub(super) shares: Vec<usize>,
    /// The times from a tick to its first start, including catch-up runs.
    pub(super) late: Durations,
    pub(super) violations: Vec<String>,
}

impl Story {
    pub(super) fn new(settings: &Settings) -> Self {
        let jobs = (0..).zip(settings.jobs()).map(|(number, name)| (name, delivery(number))).collect();
        Self {
            until: WallTime::default(),
            clocks: (SystemWorld.wall(), SystemWorld.now()),
            jobs,
            ready: Vec::new(),
            kills: Vec::new(),
            starts: BTreeMap::new(),
            unknown: Vec::new(),
        }
    }

    /// Returns whether each job has run.
    pub(super) fn has_begun(&self) -> bool {
        self.jobs.iter().all(|(job, _)| self.first(job).is_some())
    }

    pub(super) fn kills(&self) -> usize {
        self.kills.len()
    }

    pub(super) fn killed(&mut self, kill: Kill) {
        self.kills.push(kill);
    }

    pub(super) fn ready(&mut self, who: Who, at: BootTime) {
        self.ready.push((who, at));
    }

    /// Adds an event of a worker's journal. The events of one worker must be added in order.
    pub(super) fn add(&mut self, who: Who, entry: &Entry) {
        let (Event::RunStarted { job, tick, term }
        | Event::RunDone { job, tick, term }
        | Event::RunInterrupted { job, tick, term }) = &entry.event
        else {
            return;
        };
        let starts = self.starts.entry((Arc::clone(job), *tick)).or_default();
        if let Event::RunStarted { .. } = entry.event {
            let (term, at) = (*term, entry.at());
            starts.push(Start { who, term, at, done: None, interrupted: false });
            starts.sort_by_key(|start| start.at);
            return;
        }
        match starts.iter_mut().find(|start| (start.who, start.term) == (who, *term)) {
            Some(start) if matches!(entry.event, Event::RunDone { .. }) => start.done = Some(entry.at()),
            Some(start) => start.interrupted = true,
            None => self.unknown.push(format!("{job}: {tick} ended at {who:?} and never started there")),
        }
    }

    /// Returns whether the histories have an entry for every tick that is judged.
    pub(super) fn is_entered(&self, histories: &BTreeMap<Arc<str>, Vec<HistoryEntry>>) -> bool {
        self.jobs.iter().all(|(job, _)| {
            let entries = entered(histories.get(job));
            self.ticks(job).all(|tick| entries.contains_key(&tick))
        })
    }

    /// Judges every tick.
    pub(super) fn judge(&self, histories: &BTreeMap<Arc<str>, Vec<HistoryEntry>>) -> Verdict {
        let mut verdict = Verdict { violations: self.unknown.clone(), ..Verdict::default() };
        for (job, delivery) in &self.jobs {
            if self.first(job).is_none() {
                verdict.violations.push(format!("{job}: no tick of it ever started"));
            }
            let entries = entered(histories.get(job));
            for tick in self.ticks(job) {
                let none = Vec::new();
                let starts = self.starts.get(&(Arc::clone(job), tick)).unwrap_or(&none);
                let ends = entries.get(&tick).map(Vec::as_slice).unwrap_or_default();
                if let Some(why) = self.wrong(*delivery, tick, starts, ends) {
                    verdict.violations.push(format!("{job}: {tick}: {why}: {starts:?}, {ends:?}"));
                }
                let done = starts.iter().any(|start| start.done.is_some());
                verdict.ticks += 1;
                verdict.done += usize::from(done);
                verdict.again += usize::from(starts.len() > 1);
                verdict.lost += usize::from(!done);
                if let Some(start) = starts.first() {
                    verdict.late.add(self.boot(tick).until(start.at));
                }
            }
        }
        verdict.shares = self.shares();
        let (least, most) = (verdict.shares.iter().min(), verdict.shares.iter().max());
        if let (Some(least), Some(most)) = (least, most)
            && verdict.shares.iter().sum::<usize>() >= SHARES_FROM
            && *most > least * 2
        {
            verdict.violations.push(format!("shares: {:?} runs while all workers lived", verdict.shares));
        }
        verdict
    }

    /// Returns a description of the tick's violation, if there is one. A tick must start again only after a kill, and
    /// the history must have exactly one entry that fits the starts.
    fn wrong(&self, delivery: Delivery, tick: u64, starts: &[Start], ends: &[RunOutcome]) -> Option<String> {
        let done = starts.iter().any(|start| start.done.is_some());
        for pair in starts.windows(2) {
            if !pair[0].interrupted && !self.is_hit(pair[0].who, pair[0].at, self.ended(&pair[0])) {
                return Some("started again, and its first worker was not killed".to_owned());
            }
        }
        if delivery == Delivery::AtLeastOnce && !done {
            return Some("lost: it was never done".to_owned());
        }
        let ([end], 1) = (ends, ends.len()) else {
            return Some(format!("{} entries in the history", ends.len()));
        };
        match end {
            RunOutcome::Done if done => None,
            RunOutcome::Lost if delivery == Delivery::AtMostOnce => {
                let from = self.boot(tick);
                let hit = match starts.first() {
                    Some(start) => self.is_hit(start.who, start.at, self.ended(start)),
                    // The journals show no start. This is explained if a worker took the slot and was killed
                    // before the first event of the run.
                    None => {
                        self.kills.iter().any(|kill| from <= kill.at + TO_RECORD && kill.at <= from + TO_TAKE)
                    }
                };
                (!hit).then(|| "lost, and its worker was not killed".to_owned())
            }
            end => Some(format!("its end is {end}")),
        }
    }

    /// Returns the latest time at which a kill of the worker explains that the end of this run was not
    /// recorded.
    fn ended(&self, start: &Start) -> BootTime {
        start.done.unwrap_or(start.at + TO_RECORD) + TO_RECORD
    }

    fn is_hit(&self, who: Who, from: BootTime, until: BootTime) -> bool {
        self.kills.iter().any(|kill| kill.who == who && from <= kill.at + TO_RECORD && kill.at <= until)
    }

    /// Returns the number of starts of each worker while all workers took part. Such a time begins when the
    /// last worker has joined, and ends at the next kill. Only the first start of a tick counts.
    fn shares(&self) -> Vec<usize> {
        let members: BTreeSet<usize> = self.ready.iter().map(|(who, _)| who.member).collect();
        let mut shares = vec![0; members.len()];
        for start in self.starts.values().filter_map(|starts| starts.first()) {
            let last = self.kills.iter().filter(|kill| kill.at <= start.at).map(|kill| kill.at).max();
            let joined = !members.is_empty()
                && members.iter().all(|member| {
                    self.ready.iter().any(|(who, at)| {
                        who.member == *member
                            && *at + TO_JOIN <= start.at
                            && !self.kills.iter().any(|kill| kill.who == *who && kill.at <= start.at)
                    })
                });
            if joined && last.is_none_or(|last| last + TO_JOIN <= start.at) {
                shares[start.who.member] += 1;
            }
        }
        shares
    }

    fn first(&self, job: &Arc<str>) -> Option<u64> {
        let first = self.starts.range((Arc::clone(job), 0)..).next();
        first.filter(|((of, _), _)| of == job).map(|((_, tick), _)| *tick)
    }

    /// Returns those ticks of a job that are judged.
    fn ticks(&self, job: &Arc<str>) -> impl Iterator<Item = u64> {
        let first = self.first(job).unwrap_or(u64::MAX);
        let period = TICK_EVERY.as_micros() as usize;
        (first..=self.until.as_micros().max(first)).step_by(period).filter(move |_| first != u64::MAX)
    }

    fn boot(&self, tick: u64) -> BootTime {
        let (wall_then, boot) = self.clocks;
        if wall(tick) < wall_then {
            boot - wall(tick).until(wall_then)
        } else {
            boot + wall_then.until(wall(tick))
        }
    }
}

/// Returns the outcomes of each tick in the entries of a history.
fn entered(entries: Option<&Vec<HistoryEntry>>) -> BTreeMap<u64, Vec<RunOutcome>> {
    let mut ends: BTreeMap<u64, Vec<RunOutcome>> = BTreeMap::new();
    for entry in entries.into_iter().flatten() {
        ends.entry(entry.tick.as_micros()).or_default().push(entry.end);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{at, done, entered as entry_of, started, who};

    const SECOND: u64 = 1_000_000;
    const MOST: &str = "most-000";
    const LEAST: &str = "least-001";

    /// Returns a story of two jobs with one tick each. Worker 0 starts both ticks after one second. If `ends`
    /// is true, it completes them 20 ms later.
    fn story(ends: bool) -> Story {
        let settings =
            Settings { ticks: 2, jobs: 2, kill_every: Duration::from_secs(10), ttl: Duration::from_secs(1) };
        let mut story = Story { clocks: (wall(0), at(0)), until: wall(SECOND), ..Story::new(&settings) };
        for job in [MOST, LEAST] {
            story.add(who(0), &started(1_000, job, SECOND, 7));
            if ends {
                story.add(who(0), &done(1_020, job, SECOND, 7));
            }
        }
        story
    }

    fn histories(most: &[RunOutcome], least: &[RunOutcome]) -> BTreeMap<Arc<str>, Vec<HistoryEntry>> {
        let entries = |job: &str, ends: &[RunOutcome]| {
            let entry = |end: &RunOutcome| entry_of(job, *end, 4, wall(SECOND));
            (job.into(), ends.iter().map(entry).collect())
        };
        BTreeMap::from([entries(MOST, most), entries(LEAST, least)])
    }

    fn kill(ms: u64) -> Kill {
        Kill { who: who(0), at: at(ms) }
    }

    #[test]
    fn a_sound_story_has_no_violation() {
        let (sound, whole) = (story(true), histories(&[RunOutcome::Done], &[RunOutcome::Done]));
        assert!(sound.has_begun() && sound.is_entered(&whole));
        let verdict = sound.judge(&whole);
        assert_eq!(verdict.violations, Vec::<String>::new());
        assert_eq!((verdict.ticks, verdict.done, verdict.again, verdict.lost), (2, 2, 0, 0));
        assert!(!sound.is_entered(&histories(&[], &[RunOutcome::Done])));
    }

    #[test]
    fn a_second_start_needs_a_kill() {
        let again = |job, killed: Option<u64>| {
            let mut story = story(true);
            killed.into_iter().for_each(|ms| story.killed(kill(ms)));
            story.add(who(1), &started(5_000, job, SECOND, 9));
            story.add(who(1), &done(5_020, job, SECOND, 9));
            story.judge(&histories(&[RunOutcome::Done], &[RunOutcome::Done])).violations.len()
        };
        assert_eq!((again(LEAST, Some(1_030)), again(LEAST, None), again(LEAST, Some(9_000))), (0, 1, 1));
    }

    #[test]
    fn what_is_not_done_is_lost_by_a_kill_and_only_at_most_once() {
        let lost = |killed: Option<u64>, end| {
            let mut story = story(false);
            killed.into_iter().for_each(|ms| story.killed(kill(ms)));
            story.add(who(1), &started(5_000, LEAST, SECOND, 9));
            story.add(who(1), &done(5_020, LEAST, SECOND, 9));
            story.judge(&histories(&[end], &[RunOutcome::Done])).violations.len()
        };
        assert_eq!(lost(Some(1_010), RunOutcome::Lost), 0);
        assert_eq!(lost(None, RunOutcome::Lost), 2, "neither the lost nor the second start is explained");
        assert_eq!(lost(Some(1_010), RunOutcome::Done), 1, "it is not done");
        assert_eq!(lost(Some(1_010), RunOutcome::SkippedMisfire), 1);
        let mut never = story(false);
        never.killed(kill(1_010));
        assert_eq!(never.judge(&histories(&[RunOutcome::Lost], &[RunOutcome::Lost])).violations.len(), 1);
    }

    #[test]
    fn each_tick_has_one_entry() {
        for (most, found) in [(vec![], 1), (vec![RunOutcome::Done, RunOutcome::Done], 1)] {
            assert_eq!(story(true).judge(&histories(&most, &[RunOutcome::Done])).violations.len(), found);
        }
    }

    #[test]
    fn shares_count_while_all_workers_live() {
        let mut story = story(true);
        for member in 0..2 {
            story.ready(who(member), at(0));
        }
        story.starts.clear();
        for n in 0..400 {
            let member = usize::from(n % 5 == 0);
            story.add(who(member), &started(4_000 + n, MOST, n * SECOND, 7));
        }
        assert_eq!(story.shares(), [320, 80]);
        let found = story.judge(&BTreeMap::new()).violations;
        assert!(found.iter().any(|found| found.starts_with("shares:")), "{found:?}");
        story.killed(kill(4_100));
        assert_eq!(story.shares(), [80, 20], "not after the kill");
    }
}
