use super::{Check, HORIZON, JUST_PAUSED};
use crate::{
    harness::{Entry, Event, Truth},
    work::lead::{AT_LEAST_ONCE, AT_MOST_ONCE, CATCH_UP, TERM, TICK_EVERY},
};
use quorate::env::{BootTime, WallTime};
use quorate_tests::support::Who;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// A tick is judged this long after its catch-up window has passed, when it can no longer start.
const SETTLED: Duration = Duration::from_secs(30);
/// A node that lost its data may not know the ticks that are due within this time after the loss. The leader
/// may not have written its records to that node again yet.
const UNKNOWN: Duration = Duration::from_secs(5);
/// The longest time, on a busy machine, from the moment at which a leader may start a tick to the start. It
/// includes earlier catch-up runs, the seal, and the rest of the lease of a leader that is cut off.
const TO_START: Duration = Duration::from_secs(5);
/// The longest time from the beginning of a term until its leader has sealed the ledger and has the answers of
/// all nodes.
const TO_SEAL: Duration = Duration::from_secs(2);
/// The longest time for which a leader may still lead after its last event.
const LAST_EVENT: Duration = Duration::from_millis(500);

/// Checks that ticks start and end. An at-most-once tick starts, and an at-least-once tick is done, and does not start again
/// once a majority has recorded its end. (That an at-most-once tick starts once only is judged by `crate::histories`.)
///
/// A leader decides by the records of the nodes that answer its seal (its first request to the ledger). So
/// there are these excuses:
///
/// * A tick may be *unknown* to a leader. A node knows the tick if it has kept its data since the tick and
///   since the end of the previous term. The tick is unknown if the nodes that know the tick and can answer
///   the leader are no majority. (A lost job is registered again, and earlier ticks do not belong to the new
///   registration.) Then an at-most-once tick need not start, and an at-least-once tick need not be done. The
///   loss of one node's data is no excuse while a majority of the other nodes answers. If several nodes lost
///   their data one after the other, this is no excuse if a leader in between knew the tick.
/// * An at-most-once tick need not start if its leader recorded the start and then lost its term. The leader
///   must have lost the term within [`TO_START`] of the time at which it could start the tick.
/// * An at-least-once tick may start again if the new leader may not know the tick's end. A node knows the end
///   if it stored the record of the end, has kept its data since, and can answer the new leader. The new
///   leader may not know the end if fewer than a majority of the nodes know it. The tick may also start again
///   if the process that starts it was paused before the end was recorded.
#[derive(Debug)]
pub(crate) struct Ticks {
    /// The wall clock and the boot clock at one moment.
    clocks: (WallTime, BootTime),
    jobs: BTreeMap<Arc<str>, BTreeMap<u64, Tick>>,
    /// For each job, the time of the last tick that was judged.
    judged: BTreeMap<Arc<str>, u64>,
    counts: BTreeMap<Arc<str>, Counts>,
    /// The times of the first and the last event of each term.
    terms: BTreeMap<u64, (BootTime, BootTime)>,
    suspects: Vec<Suspect>,
}

#[derive(Clone, Debug, Default)]
struct Tick {
    starts: Vec<(u64, Who, BootTime)>,
    done: Option<(u64, BootTime)>,
    /// The time at which the same term started another tick of the job. By then, the leader of this term has
    /// recorded the end of this tick.
    recorded: Option<BootTime>,
}

/// A start of a tick after the tick's end was recorded. It is a violation, unless the process later reports a
/// pause that excuses the start.
#[derive(Debug)]
struct Suspect {
    who: Who,
    recorded: BootTime,
    at: BootTime,
    violation: String,
}

/// The numbers of a job's ticks, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    /// The number of ticks that were due and have been judged.
    pub(crate) due: usize,
    /// The number of due ticks that started at least once.
    pub(crate) started: usize,
    /// The number of ticks that started more than once.
    pub(crate) again: usize,
    /// The number of ticks that completed at least once.
    pub(crate) done: usize,
    /// The number of ticks that did not start, and whose missing start was excused.
    pub(crate) excused: usize,
}

impl Ticks {
    pub(crate) fn new(wall: WallTime, boot: BootTime) -> Self {
        let (jobs, judged, counts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { clocks: (wall, boot), jobs, judged, counts, terms: BTreeMap::new(), suspects: Vec::new() }
    }

    /// Returns the numbers of the ticks that were judged, for each job.
    pub(crate) fn counts(&self) -> &BTreeMap<Arc<str>, Counts> {
        &self.counts
    }

    /// Returns whether all ticks due by `when` have been decided. Ticks of a job run in order. So if a later
    /// tick is done, all earlier ticks of the job have been decided.
    pub(crate) fn decided(&self, when: BootTime) -> bool {
        let when = self.wall(when);
        let done = |ticks: &BTreeMap<u64, Tick>| ticks.range(when..).any(|(_, tick)| tick.done.is_some());
        [AT_MOST_ONCE, AT_LEAST_ONCE].iter().all(|job| self.jobs.get(*job).is_some_and(done))
    }

    /// Judges, at the end of the test, all ticks that were due by `when`.
    pub(crate) fn finish(&mut self, when: BootTime, truth: &Truth) -> Vec<String> {
        let mut found = self.judge_suspects(BootTime::from_nanos(u64::MAX), truth);
        found.extend(self.judge(self.wall(when), truth));
        found
    }

    fn judge_suspects(&mut self, until: BootTime, truth: &Truth) -> Vec<String> {
        let ripe = self.suspects.extract_if(.., |suspect| suspect.at < until);
        let excused = |s: &Suspect| truth.delayed(s.who, s.recorded, s.at, JUST_PAUSED);
        ripe.filter(|suspect| !excused(suspect)).map(|suspect| suspect.violation).collect()
    }

    fn wall(&self, at: BootTime) -> u64 {
        (self.clocks.0 + self.clocks.1.until(at)).as_micros()
    }

    /// Returns the time of a tick, converted to the boot clock.
    fn boot(&self, tick: u64) -> BootTime {
        self.clocks.1 + self.clocks.0.until(WallTime::from_micros(tick))
    }

    /// Judges the ticks before `until`. Each tick is judged only once.
    fn judge(&mut self, until: u64, truth: &Truth) -> Vec<String> {
        let (mut found, mut judged) = (Vec::new(), Vec::new());
        for (job, ticks) in &self.jobs {
            let Some((&first, _)) = ticks.first_key_value() else { continue };
            let from = self.judged.get(job).copied().unwrap_or(first);
            let mut counts = self.counts.get(job).copied().unwrap_or_default();
            let mut next = from;
            for at in (from..until).step_by(TICK_EVERY.as_micros() as usize) {
                next = at + TICK_EVERY.as_micros() as u64;
                let tick = ticks.get(&at).cloned().unwrap_or_default();
                let terms: BTreeSet<u64> = tick.starts.iter().map(|(term, _, _)| *term).collect();
                let at_most_once = &**job == AT_MOST_ONCE;
                let missed = if at_most_once { terms.is_empty() } else { tick.done.is_none() };
                let due = self.boot(at);
                let excused = missed && (self.unknown(due, truth) || (at_most_once && self.leader_fell(due)));
                counts.due += 1;
                counts.started += usize::from(!terms.is_empty());
                counts.again += usize::from(tick.starts.len() > 1);
                counts.done += usize::from(tick.done.is_some());
                counts.excused += usize::from(terms.is_empty() && excused);
                if missed && !excused {
                    found.push(format!(
                        "ticks: {job}: the tick {at} was passed over; started under {terms:?}"
                    ));
                }
            }
            judged.push((Arc::clone(job), next, counts));
        }
        for (job, next, counts) in judged {
            self.judged.insert(Arc::clone(&job), next);
            self.counts.insert(job, counts);
        }
        found
    }

    /// Returns whether the tick due at `due` may have been unknown to a leader that had to start it.
    fn unknown(&self, due: BootTime, truth: &Truth) -> bool {
        let mut led_until = due;
        self.terms.values().any(|(from, last)| {
            let starts = due.max(*from);
            let decides = *last + LAST_EVENT >= starts && starts <= due + CATCH_UP;
            // If no worker led when the tick was due, only the previous leader can have known the tick.
            let kept_from = if *from > due { due.min(led_until) } else { due } - UNKNOWN;
            led_until = *last;
            let asked = [(*from, *from + TO_SEAL), (starts, starts + TO_START)];
            decides && truth.remembering(kept_from, &asked) < truth.majority()
        })
    }

    /// Returns whether a leader may have recorded the tick due at `due` as started, and then lost its term
    /// before the run began.
    fn leader_fell(&self, due: BootTime) -> bool {
        self.terms.values().any(|(from, last)| {
            let starts = due.max(*from);
            *last <= due + CATCH_UP && starts <= *last + LAST_EVENT && *last <= starts + TO_START
        })
    }

    fn led(&mut self, term: u64, at: BootTime) {
        let (from, last) = self.terms.entry(term).or_insert((at, at));
        (*from, *last) = (at.min(*from), at.max(*last));
    }

    fn start(&mut self, job: &Arc<str>, at: u64, start: (u64, Who, BootTime), truth: &Truth) {
        let due = self.boot(at);
        let (term, who, now) = start;
        let elected = self.terms.get(&term).map_or(now, |(from, _)| *from);
        let ticks = self.jobs.entry(Arc::clone(job)).or_default();
        // The ticks of a job run one after the other. So when the leader of this term starts a tick, it has
        // recorded the ends of the earlier ticks.
        for tick in ticks.values_mut().filter(|tick| tick.recorded.is_none()) {
            if tick.done.is_some_and(|(by, when)| by == term && when < now) {
                tick.recorded = Some(now);
            }
        }
        let tick = ticks.entry(at).or_default();
        if let (Some((by, done)), Some(recorded)) = (tick.done, tick.recorded)
            && recorded < now
        {
            let asked = [(done, recorded), (elected, elected + TO_SEAL)];
            if truth.remembering(due.min(done) - UNKNOWN, &asked) >= truth.majority() {
                let violation = format!(
                    "ticks: {job}: the tick {at} started at {now:?} under {term}, was done at {done:?} under {by}, and \
                     that was recorded by {recorded:?}"
                );
                self.suspects.push(Suspect { who, recorded, at: now, violation });
            }
        }
        tick.starts.push(start);
    }
}

impl Check for Ticks {
    fn on_event(&mut self, who: Who, entry: &Entry, truth: &Truth) -> Vec<String> {
        let term = match &entry.event {
            Event::Acquired { resource, token, .. }
            | Event::Valid { resource, token, .. }
            | Event::SteppedDown { resource, token }
            | Event::Ended { resource, token }
            | Event::Releasing { resource, token } => (&**resource == TERM).then_some(*token),
            Event::RunStarted { term, .. } | Event::RunDone { term, .. } => Some(*term),
            _ => None,
        };
        term.into_iter().for_each(|term| self.led(term, entry.at()));
        match &entry.event {
            Event::RunStarted { job, tick, term } => self.start(job, *tick, (*term, who, entry.at()), truth),
            Event::RunDone { job, tick, term } => {
                let ticks = self.jobs.entry(Arc::clone(job)).or_default();
                ticks.entry(*tick).or_default().done.get_or_insert((*term, entry.at()));
            }
            _ => {}
        }
        Vec::new()
    }

    fn settle(&mut self, now: BootTime, truth: &Truth) -> Vec<String> {
        let mut found = self.judge_suspects(now - HORIZON, truth);
        found.extend(self.judge(self.wall(now - CATCH_UP - SETTLED), truth));
        self.terms.retain(|_, (_, last)| *last + CATCH_UP * 4 > now);
        // Ticks are kept for longer than they are judged, because the check must also notice if one starts again later.
        let old = self.wall(now - CATCH_UP * 4);
        for ticks in self.jobs.values_mut() {
            let last = ticks.last_key_value().map(|(at, _)| *at).unwrap_or_default();
            ticks.retain(|at, _| *at >= old || *at == last);
        }
        found
    }

    fn held(&self) -> usize {
        self.jobs.values().map(BTreeMap::len).sum::<usize>() + self.suspects.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{self, at, truth, valid, who},
        *,
    };

    const SECOND: u64 = 1_000_000;

    /// Returns a check for which the wall clock and the boot clock show the same time. Tick `n` is due at `n`
    /// seconds.
    fn ticks() -> Ticks {
        Ticks::new(WallTime::from_micros(0), at(0))
    }

    fn start(ms: u64, job: &str, n: u64, term: u64) -> Entry {
        testing::started(ms, job, n * SECOND, term)
    }

    fn done(ms: u64, job: &str, n: u64, term: u64) -> Entry {
        testing::done(ms, job, n * SECOND, term)
    }

    fn read(check: &mut Ticks, truth: &Truth, lines: &[Entry]) -> usize {
        lines.iter().map(|line| check.on_event(who(0), line, truth).len()).sum()
    }

    fn found(truth: &Truth, lines: &[Entry]) -> usize {
        let mut check = ticks();
        read(&mut check, truth, lines) + check.settle(at(15_001) + HORIZON, truth).len()
    }

    /// Returns a record of faults in which these nodes lost their data at `ms` milliseconds.
    fn lost(nodes: std::ops::Range<usize>, ms: u64) -> Truth {
        let mut truth = truth();
        nodes.for_each(|node| truth.lost_data(node, at(ms)));
        truth
    }

    #[test]
    fn a_start_after_a_recorded_end_is_found_unless_no_majority_has_the_record() {
        let job = AT_LEAST_ONCE;
        let lines =
            [start(8000, job, 8, 7), done(8030, job, 8, 7), start(9000, job, 9, 7), start(15_000, job, 8, 8)];
        assert_eq!(found(&truth(), &lines), 1);
        let unrecorded = [lines[0].clone(), lines[1].clone(), lines[3].clone()];
        assert_eq!(
            found(&truth(), &unrecorded),
            0,
            "the leader may have been killed before it recorded the end"
        );
        assert_eq!(found(&lost(3..5, 12_000), &lines), 1, "three nodes have the record");
        assert_eq!(found(&lost(2..5, 12_000), &lines), 0);
        let mut two_away = lost(4..5, 12_000);
        two_away.observe(at(14_000), &[true, true, false, false, true], 4);
        assert_eq!(found(&two_away, &lines), 0, "two of the four others do not answer");
        // The process reports its pause only after the start that the pause excuses.
        let (mut check, mut stalled) = (ticks(), truth());
        assert_eq!(read(&mut check, &stalled, &lines), 0);
        assert!(check.settle(at(15_000) + HORIZON, &stalled).is_empty(), "too early");
        stalled.stalled(who(0), at(8500), at(15_200));
        assert!(check.settle(at(15_001) + HORIZON, &stalled).is_empty());
    }

    #[test]
    fn a_tick_that_is_passed_over_is_found_unless_its_leader_cannot_have_known_it() {
        let judge = |job, truth: &Truth| {
            let lines = [
                start(1000, job, 1, 7),
                done(1030, job, 1, 7),
                start(3000, job, 3, 7),
                done(3030, job, 3, 7),
            ];
            let mut check = ticks();
            // In this case the same leader continues to lead.
            check.led(7, at(60_000));
            read(&mut check, truth, &lines);
            (check.finish(at(3500), truth).len(), check.counts()[job])
        };
        let counts = Counts { due: 3, started: 2, again: 0, done: 2, excused: 0 };
        let excused = (0, Counts { excused: 1, ..counts });
        for job in [AT_MOST_ONCE, AT_LEAST_ONCE] {
            assert_eq!(judge(job, &truth()), (1, counts));
            let mut disturbed = truth();
            disturbed.disturb(at(1500));
            assert_eq!(judge(job, &disturbed), (1, counts), "another fault is no excuse");
            assert_eq!(judge(job, &lost(0..1, 1500)), (1, counts), "four nodes remember");
            assert_eq!(judge(job, &lost(0..3, 1500)), excused);
            assert_eq!(judge(job, &lost(0..3, 30_000)), (1, counts), "the leader had long known it");
            let mut away = lost(0..1, 1500);
            away.observe(at(2000), &[true, true, true, false, false], 4);
            assert_eq!(judge(job, &away), excused, "two of the four others do not answer");
        }
    }

    #[test]
    fn ticks_between_the_loss_of_a_registration_and_the_next_leader_are_excused() {
        let judge = |truth: &Truth| {
            let mut check = ticks();
            let lines = [start(1000, AT_LEAST_ONCE, 1, 7), done(1030, AT_LEAST_ONCE, 1, 7)];
            read(&mut check, truth, &lines);
            // No worker leads from 1 s to 16 s. The next leader never starts the ticks from 2 to 15 s, and
            // those of 19 s and 20 s.
            for n in [16, 17, 18, 21] {
                let lines = [start(n * 1000, AT_LEAST_ONCE, n, 8), done(n * 1000 + 30, AT_LEAST_ONCE, n, 8)];
                read(&mut check, truth, &lines);
            }
            check.finish(at(22_000), truth).len()
        };
        assert_eq!(judge(&lost(0..3, 2000)), 2, "the next leader knew its own ticks");
        assert_eq!(judge(&lost(0..2, 2000)), 16, "three nodes have the registration");
    }

    #[test]
    fn an_at_most_once_tick_is_passed_over_only_where_its_leader_fell() {
        let job = AT_MOST_ONCE;
        let leads = |ms, token| valid(ms, TERM, token, 0);
        // The tick of 20 s never starts. The first leader loses its term at `fell`, and the second one is
        // elected 2 s later.
        let judge = |fell: u64| {
            let mut check = ticks();
            let mut lines = vec![leads(500, 7), leads(fell, 7), leads(fell + 2000, 8), leads(60_000, 8)];
            for n in (1..=40).filter(|n| *n != 20) {
                let term = if n * 1000 <= fell { 7 } else { 8 };
                let began = (n * 1000).max(if term == 8 { fell + 2000 } else { 0 });
                lines.extend([start(began, job, n, term), done(began + 10, job, n, term)]);
            }
            read(&mut check, &truth(), &lines);
            check.finish(at(40_500), &truth()).len()
        };
        assert_eq!(judge(20_100), 0, "recorded as started, and its leader fell");
        assert_eq!(judge(19_900), 0, "its last event came just before");
        assert_eq!(judge(19_000), 1, "the next leader had to run it");
        assert_eq!(judge(27_000), 1, "the leader had seven seconds to start it");
    }

    #[test]
    fn an_at_least_once_tick_that_starts_and_is_never_done_is_found() {
        let mut check = ticks();
        read(&mut check, &truth(), &[start(1000, AT_LEAST_ONCE, 1, 7), start(2000, AT_LEAST_ONCE, 2, 7)]);
        assert!(!check.decided(at(2500)));
        assert_eq!(check.finish(at(2500), &truth()).len(), 2);
        assert!(check.finish(at(2500), &truth()).is_empty(), "once");
    }

    #[test]
    fn old_ticks_are_judged_and_forgotten() {
        let mut check = ticks();
        for n in 1..2000 {
            let lines = [start(n * 1000, AT_LEAST_ONCE, n, 7), done(n * 1000 + 30, AT_LEAST_ONCE, n, 7)];
            assert_eq!(read(&mut check, &truth(), &lines), 0);
            assert!(check.settle(at(n * 1000), &truth()).is_empty());
        }
        assert!(check.held() < 300, "{}", check.held());
        assert!(check.counts()[AT_LEAST_ONCE].due > 1800);
    }
}
