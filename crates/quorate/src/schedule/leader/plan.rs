//! What the leader has to do for one job, as a pure function of the sealed ledger and the wall clock.

use crate::{
    env::WallTime,
    ledger::Answered,
    node::Record,
    schedule::{
        DUE_MAX, Decision, Delivery, Due, Job, Misfire, NodeAnswer, SkipReason, Skipped, TickKey,
        TickVerdict, due, verdict,
    },
};
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// A tick that starts later than this after its time is a misfire, and is made up by the rule.
pub(super) const LATE_AFTER: Duration = Duration::from_secs(1);
/// Records are kept for longer than any misfire window by this, and by twice `max_clock_offset`.
const KEPT_BESIDES: Duration = Duration::from_secs(60);
/// How often a tick is run again within one term.
const INTERRUPTED_MAX: u32 = 3;
/// What the seal found: the ledger as every node that answered has it.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) answers: Vec<Answered>,
    pub(super) quorum: usize,
    pub(super) max_clock_offset: Duration,
}

/// A tick to run, and the record that stands for it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Start {
    pub(super) tick: WallTime,
    pub(super) made_up: bool,
    pub(super) seen: Option<Record>,
    /// Too few nodes can remember a tick of this time: its start cannot reach a majority that counts.
    pub(super) unknown: bool,
    /// How often it was interrupted in this term.
    pub(super) times: u32,
}

impl Sealed {
    /// What stands for `tick` of `job`.
    pub(super) fn verdict(&self, job: &str, tick: WallTime) -> TickVerdict {
        let key = TickKey::new(job, tick).key();
        let views: Vec<NodeAnswer<'_>> = self.answers.iter().map(|answer| view(answer, &key)).collect();
        verdict(&views, self.quorum, tick, self.max_clock_offset)
    }

    /// What each node that answered has under `key`.
    pub(super) fn records<'a>(&'a self, key: &'a Arc<str>) -> impl Iterator<Item = Option<&'a Record>> {
        self.answers.iter().map(move |answer| view(answer, key).record)
    }

    /// From when on a majority can answer for a tick: a job that is new begins there, or now.
    pub(super) fn begins(&self, now: WallTime) -> WallTime {
        let mut since: Vec<WallTime> =
            self.answers.iter().map(|answer| answer.memory.since + self.max_clock_offset).collect();
        since.sort_unstable();
        since.get(self.quorum - 1).copied().unwrap_or(now).max(now)
    }
}

fn view<'a>(answer: &'a Answered, key: &Arc<str>) -> NodeAnswer<'a> {
    let records = &answer.state.records;
    let at = records.binary_search_by(|(name, _)| name.cmp(key));
    let record = at.ok().map(|at| &records[at].1);
    NodeAnswer { since: answer.memory.since, low_water: answer.state.low_water, record }
}

/// The ticks of one job that wait to be run.
#[derive(Debug)]
pub(super) struct JobPlan {
    pub(super) job: Job,
    /// Every tick up to here has been decided on.
    looked: WallTime,
    waiting: VecDeque<Start>,
    pub(super) running: Option<WallTime>,
    pub(super) next: Option<WallTime>,
}

/// A tick that will not run, and why.
#[derive(Debug, PartialEq)]
pub(super) enum NotRun {
    Missed(Skipped),
    /// Due while an earlier run of the job went on; the later tick stands for it, or there were too many.
    Overtaken(WallTime),
    Decided(WallTime, SkipReason),
}

impl JobPlan {
    /// A job whose ticks after `from` are due.
    pub(super) fn new(job: Job, from: WallTime) -> Self {
        let next = job.schedule.next_after(from);
        Self { job, looked: from, waiting: VecDeque::new(), running: None, next }
    }

    /// Decides on the ticks that have come due.
    pub(super) fn look(&mut self, sealed: &Sealed, now: WallTime) -> Vec<NotRun> {
        let Due { run, skipped, next } =
            due(&self.job.schedule, self.job.misfire, self.looked, now, LATE_AFTER);
        self.looked = self.looked.max(now);
        self.next = next;
        let mut not_run: Vec<NotRun> = skipped.into_iter().map(NotRun::Missed).collect();
        for tick in run {
            let standing = sealed.verdict(&self.job.name, tick);
            match self.job.delivery.decide(&standing) {
                Decision::Run | Decision::AskAgain => {
                    let (seen, unknown) = match standing {
                        TickVerdict::Started { record, .. } => (Some(record), false),
                        TickVerdict::Unknown => (None, true),
                        _ => (None, false),
                    };
                    let made_up = seen.is_some() || unknown || tick + LATE_AFTER < now;
                    self.waiting.push_back(Start { tick, made_up, seen, unknown, times: 0 });
                }
                Decision::Skip(why) => not_run.push(NotRun::Decided(tick, why)),
            }
        }
        if self.running.is_some() {
            self.overtake(&mut not_run);
        }
        not_run
    }

    /// Of the ticks that wait behind a run, all stay under run-all (up to a limit), else the latest. What has
    /// been started before, or may have been, stays: it is owed a run of its own.
    fn overtake(&mut self, not_run: &mut Vec<NotRun>) {
        let most = match self.job.misfire {
            Misfire::RunAll { .. } => DUE_MAX,
            _ => 1,
        };
        while self.waiting.len() > most {
            let Some(at) = self.waiting.iter().position(|start| start.seen.is_none() && !start.unknown)
            else {
                return;
            };
            not_run.extend(self.waiting.remove(at).map(|start| NotRun::Overtaken(start.tick)));
        }
    }

    /// A run was interrupted though the term goes on: it has another, before all others. After some, it is
    /// left to the next leader.
    pub(super) fn again(&mut self, start: Start) {
        if start.times <= INTERRUPTED_MAX {
            self.waiting.push_front(start);
        }
    }

    /// The earliest tick that has not ended: the ledger must remember it.
    fn oldest(&self) -> Option<WallTime> {
        self.waiting.iter().map(|start| start.tick).chain(self.running).min()
    }

    /// The tick to start now, unless one of this job runs. One that has waited past the misfire window is
    /// misfired.
    pub(super) fn start(&mut self, now: WallTime) -> (Option<Start>, Vec<WallTime>) {
        let mut too_late = Vec::new();
        while self.running.is_none()
            && let Some(start) = self.waiting.pop_front()
        {
            let window = self.job.misfire.within().max(LATE_AFTER);
            // What is being made up was within the window when it was decided on.
            if start.tick + window < now && !start.made_up {
                too_late.push(start.tick);
                continue;
            }
            self.running = Some(start.tick);
            return (Some(start), too_late);
        }
        (None, too_late)
    }
}

/// Before which time records are of no more use to any job.
pub(super) fn low_water(jobs: &[JobPlan], now: WallTime, max_clock_offset: Duration) -> u64 {
    let longest = jobs.iter().map(|plan| plan.job.misfire.within()).max().unwrap_or_default();
    let kept = longest.max(LATE_AFTER) + max_clock_offset * 2 + KEPT_BESIDES;
    let oldest = jobs.iter().filter_map(JobPlan::oldest).min().unwrap_or(now);
    (now - kept).min(oldest).as_micros()
}

/// How many ticks of a job the ledger has to keep, at the job's busiest.
pub(in crate::schedule) fn ticks_kept(job: &Job) -> u128 {
    let kept = job.misfire.within() + KEPT_BESIDES;
    kept.as_nanos() / job.schedule.busiest_gap().as_nanos().max(1) + 1
}

/// Whether a failed start may be tried under `delivery` over a record that the seal did not show.
pub(super) fn start_over(delivery: Delivery, standing: &Record) -> bool {
    !standing.last && delivery == Delivery::AtLeastOnce
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ledger::Memory,
        node::{FencingToken, LedgerState},
        schedule::{RunAll, RunOnce, TickRecord, every},
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> WallTime {
        WallTime::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    fn job(delivery: Delivery) -> Job {
        let schedule = every(SECOND).unwrap();
        let job = Job::new("j", schedule, |_| async { Ok::<(), String>(()) });
        job.delivery(delivery).misfire(RunAll::within(10 * SECOND))
    }

    /// Three nodes whose memory began at 0; `started` stands on two of them.
    fn sealed(started: &[u64], done: &[u64]) -> Sealed {
        let record = |tick: u64, last| {
            let written = if last { TickRecord::done("old", SECOND, "") } else { TickRecord::started("old") };
            (TickKey::new("j", at(tick)).key(), written.into_record(at(tick), FencingToken::new(1), last))
        };
        let mut records: Vec<_> = started.iter().map(|&tick| record(tick, false)).collect();
        records.extend(done.iter().map(|&tick| record(tick, true)));
        records.sort_by(|a, b| a.0.cmp(&b.0));
        let memory = Memory { since: at(0), max_clock_offset: SECOND };
        let full = Answered { memory, state: LedgerState { records, ..LedgerState::default() } };
        let empty = Answered { memory, state: LedgerState::default() };
        Sealed { answers: vec![full.clone(), full, empty], quorum: 2, max_clock_offset: SECOND }
    }

    fn ticks(plan: &mut JobPlan, now: WallTime) -> Vec<(WallTime, bool)> {
        let mut ticks = Vec::new();
        while let (Some(start), _) = plan.start(now) {
            plan.running = None;
            ticks.push((start.tick, start.made_up));
        }
        ticks
    }

    #[test]
    fn what_the_old_leader_did_is_not_done_again_and_what_it_missed_is_made_up() {
        let sealed = sealed(&[12], &[10, 11]);
        let mut plan = JobPlan::new(job(Delivery::AtMostOnce), at(9));
        let not_run = plan.look(&sealed, at(15));
        assert_eq!(ticks(&mut plan, at(15)), [(at(13), true), (at(14), false), (at(15), false)]);
        let reasons: Vec<_> = not_run
            .iter()
            .map(|not| match not {
                NotRun::Decided(tick, why) => (*tick, *why),
                other => panic!("{other:?}"),
            })
            .collect();
        let (done, started) = (SkipReason::Final, SkipReason::Started);
        assert_eq!(reasons, [(at(10), done), (at(11), done), (at(12), started)]);
        assert!(plan.look(&sealed, at(15)).is_empty() && ticks(&mut plan, at(15)).is_empty(), "once");
    }

    #[test]
    fn at_least_once_runs_again_what_was_started_over_the_record_that_stands() {
        let sealed = sealed(&[12], &[10, 11]);
        let mut plan = JobPlan::new(job(Delivery::AtLeastOnce), at(11));
        plan.look(&sealed, at(12));
        let (start, _) = plan.start(at(12));
        let start = start.expect("it runs again");
        assert_eq!((start.tick, start.made_up), (at(12), true));
        assert_eq!(start.seen.map(|record| record.term), Some(FencingToken::new(1)));
    }

    #[test]
    fn ticks_before_the_nodes_memory_are_unknown() {
        let sealed = sealed(&[], &[]);
        let mut most = JobPlan::new(job(Delivery::AtMostOnce), at(0) - SECOND);
        most.look(&sealed, at(2));
        assert_eq!(ticks(&mut most, at(2)), [(at(1), false), (at(2), false)], "0 s is not remembered");
        let mut least = JobPlan::new(job(Delivery::AtLeastOnce), at(0) - SECOND);
        least.look(&sealed, at(2));
        let (start, _) = least.start(at(2));
        assert!(start.is_some_and(|start| start.unknown && start.tick == at(0)));
    }

    #[test]
    fn a_job_that_runs_keeps_its_own_next_tick_waiting() {
        let sealed = sealed(&[], &[]);
        let mut plan = JobPlan::new(job(Delivery::AtMostOnce), at(10));
        plan.look(&sealed, at(11));
        assert!(plan.start(at(11)).0.is_some());
        plan.look(&sealed, at(12));
        assert!(plan.start(at(12)).0.is_none(), "never beside itself");
        plan.running = None;
        assert_eq!(plan.start(at(13)).0.map(|start| start.tick), Some(at(12)));
        plan.running = None;
        plan.look(&sealed, at(14));
        let (late, too_late) = plan.start(at(40));
        assert_eq!((late, too_late), (None, vec![at(13), at(14)]), "older than the window");
    }

    #[test]
    fn behind_a_slow_run_only_the_latest_tick_waits_unless_all_are_to_run() {
        let sealed = sealed(&[], &[]);
        let mut plan = JobPlan::new(job(Delivery::AtMostOnce).misfire(RunOnce::within(100 * SECOND)), at(10));
        plan.look(&sealed, at(11));
        assert_eq!(plan.start(at(11)).0.map(|start| start.tick), Some(at(11)));
        assert!(plan.look(&sealed, at(12)).is_empty());
        assert_eq!(plan.look(&sealed, at(13)), [NotRun::Overtaken(at(12))]);
        assert_eq!(plan.look(&sealed, at(14)), [NotRun::Overtaken(at(13))]);
        plan.running = None;
        assert_eq!(ticks(&mut plan, at(14)), [(at(14), false)]);
    }

    #[test]
    fn the_ledger_remembers_what_runs_and_what_waits() {
        let sealed = sealed(&[], &[]);
        let mut plan = JobPlan::new(job(Delivery::AtMostOnce), at(10));
        plan.look(&sealed, at(11));
        plan.start(at(11));
        let hour = at(3600);
        let plans = [plan];
        assert_eq!(low_water(&plans, hour, SECOND), at(11).as_micros(), "a run of an hour is not forgotten");
        let [mut plan] = plans;
        plan.running = None;
        assert_eq!(low_water(&[plan], hour, SECOND), (hour - 72 * SECOND).as_micros());
    }

    #[test]
    fn the_ticks_that_the_ledger_keeps_are_counted() {
        assert_eq!(ticks_kept(&job(Delivery::AtMostOnce)), 71);
        let hour = RunAll::within(Duration::from_secs(3600));
        let cron = |line| {
            let schedule = crate::schedule::Cron::parse(line).unwrap();
            ticks_kept(&Job::new("c", schedule, |_| async { Ok::<(), String>(()) }).misfire(hour))
        };
        assert_eq!(cron("0 3 * * *"), 1);
        assert_eq!(cron("*/5 * * * *"), 13);
        assert_eq!(cron("* * 9 * * MON"), 3661, "at its busiest, whenever that is asked");
    }

    #[test]
    fn a_clock_that_steps_back_starts_nothing_twice() {
        let sealed = sealed(&[], &[]);
        let mut plan = JobPlan::new(job(Delivery::AtMostOnce), at(10));
        plan.look(&sealed, at(12));
        assert_eq!(ticks(&mut plan, at(12)).len(), 2);
        plan.look(&sealed, at(5));
        plan.look(&sealed, at(12));
        assert!(ticks(&mut plan, at(12)).is_empty());
    }

    #[test]
    fn a_new_job_begins_when_a_majority_can_answer_for_it() {
        let sealed = sealed(&[], &[]);
        assert_eq!(sealed.begins(at(0)), at(1));
        assert_eq!(sealed.begins(at(9)), at(9));
    }
}
