use super::{
    takeover::{due_after, unfinished},
    ticks::DueDecisions,
    *,
};
use crate::{
    node::FencingToken,
    scheduler::{
        job::{RunCause, RunOutcome},
        policy::{Delivery, Misfire, MisfireReason, MisfiredTicks, Overlap, Placement},
        schedule::Schedule,
        store::{
            OpenRun, RunKey, RunRecord,
            record_life::LATE_AFTER,
            snapshot::{
                LedgerSnapshot,
                tests::{SECOND, at, founded, sealed, snapshot, tick_record},
            },
            verdict::SkipReason,
        },
    },
};

fn job(delivery: Delivery) -> Job {
    let schedule = Schedule::every(SECOND).unwrap();
    let job = Job::new("j", schedule, |_| async { Ok::<(), String>(()) });
    job.delivery(delivery).misfire(Misfire::run_all(10 * SECOND))
}

fn latest() -> Job {
    job(Delivery::AtMostOnce).misfire(Misfire::run_once(100 * SECOND))
}

fn plan(job: Job, from: WallTime) -> LedJob {
    led(job, from, Vec::new())
}

fn led(job: impl Into<Arc<Job>>, from: WallTime, unfinished: Vec<PendingRun>) -> LedJob {
    LedJob::new(job.into(), JobRow::default(), from, unfinished)
}

fn pause(led: &mut LedJob, now: WallTime, until: Option<WallTime>) -> Vec<SkippedTick> {
    let paused = Paused { at: now, until, ..Paused::default() };
    led.pause(RequestId::from_u128(1), paused).expect("it was not paused")
}

/// Resumes the job. Returns the span of the ticks that the pause left out.
fn resume(led: &mut LedJob, now: WallTime) -> Option<(WallTime, WallTime)> {
    led.resume(RequestId::from_u128(2), now).expect("it was paused").span
}

/// Starts the next run, adds it to the active runs, and returns its tick.
fn start(plan: &mut LedJob, now: WallTime) -> Option<WallTime> {
    let run = plan.start(now).0?;
    let active = ActiveRun::new(&run, plan.job());
    plan.begin(active);
    Some(run.tick)
}

/// Starts and ends runs until no run is left. Returns their ticks. The flag is true for a catch-up run.
fn ticks(plan: &mut LedJob, now: WallTime) -> Vec<(WallTime, bool)> {
    let mut ticks = Vec::new();
    while let (Some(start), _) = plan.start(now) {
        ticks.push((start.tick, start.cause == RunCause::CatchUp));
    }
    ticks
}

fn requested(tick: u64) -> PendingRun {
    let cause = RunCause::Triggered { id: RequestId::from_u128(u128::from(tick)) };
    let key = format!("run/{tick}").into();
    let tick = at(tick);
    PendingRun {
        tick,
        cause,
        key,
        at: tick,
        not_before: tick,
        seen: None,
        unknown: false,
        interruptions: 0,
        payload: None,
    }
}

#[test]
fn runs_of_the_old_leader_are_not_repeated_and_missed_ticks_are_caught_up_on() {
    let sealed = sealed(&[12], &[10, 11]);
    let once = job(Delivery::AtMostOnce);
    let (runs, lost) = unfinished(&once, &sealed);
    assert!(runs.is_empty());
    assert_eq!(lost.iter().map(|run| run.tick).collect::<Vec<_>>(), [at(12)], "no leader ends it");
    let mut plan = plan(once, at(9));
    let decisions = plan.plan_due(&sealed, at(15));
    assert_eq!(ticks(&mut plan, at(15)), [(at(13), true), (at(14), false), (at(15), false)]);
    let done = [at(10), at(11)].map(|tick| SkippedTick::Decided(tick, SkipReason::Final));
    assert_eq!(decisions.skipped, done);
    assert_eq!(plan.plan_due(&sealed, at(15)), DueDecisions::default(), "once");
    assert!(ticks(&mut plan, at(15)).is_empty());
}

#[test]
fn at_least_once_runs_a_started_run_again_over_its_record() {
    let sealed = sealed(&[3, 12], &[10, 11]);
    let least = job(Delivery::AtLeastOnce);
    let (runs, lost) = unfinished(&least, &sealed);
    assert!(lost.is_empty());
    let mut plan = led(least, at(11), runs);
    plan.plan_due(&sealed, at(12));
    let (start, _) = plan.start(at(12));
    assert_eq!(start.map(|start| start.tick), Some(at(3)), "it was started, however long ago");
    let (start, _) = plan.start(at(12));
    let start = start.expect("it runs again");
    assert_eq!((start.tick, start.cause), (at(12), RunCause::CatchUp));
    assert_eq!(start.seen.map(|record| record.term()), Some(FencingToken::new(1)));
    assert!(plan.start(at(12)).0.is_none(), "and once");
}

#[test]
fn ticks_before_the_founding_are_unknown() {
    let sealed = founded();
    let mut most = plan(job(Delivery::AtMostOnce), at(9));
    most.plan_due(&sealed, at(12));
    assert_eq!(ticks(&mut most, at(12)), [(at(11), false), (at(12), false)], "10 s may have been started");
    let mut least = plan(job(Delivery::AtLeastOnce), at(9));
    least.plan_due(&sealed, at(12));
    let (start, _) = least.start(at(12));
    assert!(start.is_some_and(|start| start.unknown && start.tick == at(10)));
}

#[test]
fn the_next_tick_of_a_job_waits_for_its_active_run() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce), at(10));
    plan.plan_due(&sealed, at(11));
    assert_eq!(start(&mut plan, at(11)), Some(at(11)));
    plan.plan_due(&sealed, at(12));
    assert!(plan.head().is_none() && start(&mut plan, at(12)).is_none(), "never beside itself");
    plan.active.clear();
    assert_eq!(plan.head().map(|start| start.tick), Some(at(12)));
    assert_eq!(start(&mut plan, at(13)), Some(at(12)));
    plan.active.clear();
    plan.plan_due(&sealed, at(14));
    let late = plan.start(at(40));
    assert_eq!(
        late,
        (None, vec![SkippedTick::TooLate(at(13)), SkippedTick::TooLate(at(14))]),
        "older than the window"
    );
}

#[test]
fn behind_a_slow_run_only_the_latest_tick_waits_unless_the_rule_is_run_all() {
    let sealed = sealed(&[], &[]);
    let mut once = plan(latest(), at(10));
    once.plan_due(&sealed, at(11));
    assert_eq!(start(&mut once, at(11)), Some(at(11)));
    assert_eq!(once.plan_due(&sealed, at(12)), DueDecisions::default());
    assert_eq!(once.plan_due(&sealed, at(13)).skipped, [SkippedTick::Overtaken(at(12))]);
    assert_eq!(once.plan_due(&sealed, at(14)).skipped, [SkippedTick::Overtaken(at(13))]);
    once.active.clear();
    assert_eq!(ticks(&mut once, at(14)), [(at(14), false)]);
    let mut all = plan(job(Delivery::AtMostOnce), at(10));
    all.plan_due(&sealed, at(11));
    start(&mut all, at(11));
    for second in 12..15 {
        assert_eq!(all.plan_due(&sealed, at(second)), DueDecisions::default());
    }
    all.active.clear();
    assert_eq!(ticks(&mut all, at(14)).len(), 3);
}

#[test]
fn a_tick_that_waits_for_room_is_overtaken_too() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(latest(), at(10));
    plan.plan_due(&sealed, at(11));
    assert_eq!(
        plan.plan_due(&sealed, at(12)).skipped,
        [SkippedTick::Overtaken(at(11))],
        "too many runs of other jobs are active"
    );
    assert_eq!(ticks(&mut plan, at(12)), [(at(12), false)]);
}

#[test]
fn the_rule_skip_skips_only_ticks_that_come_due_during_a_run() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce).overlap(Overlap::Skip), at(10));
    let decisions = plan.plan_due(&sealed, at(12));
    assert_eq!(decisions, DueDecisions::default(), "ticks that come due together wait for their turn");
    assert_eq!(start(&mut plan, at(12)), Some(at(11)));
    assert_eq!(plan.plan_due(&sealed, at(13)).skipped, [SkippedTick::Overlapped(at(13))]);
    plan.active.clear();
    assert_eq!(ticks(&mut plan, at(13)), [(at(12), false)]);
    plan.plan_due(&sealed, at(14));
    assert_eq!(ticks(&mut plan, at(14)), [(at(14), false)]);
}

/// Regression: the catch-up runs of a takeover made every tick be skipped that came due meanwhile.
#[test]
fn catch_up_runs_do_not_make_the_rule_skip_leave_out_the_present_ticks() {
    let sealed = sealed(&[], &[]);
    let mut all = plan(job(Delivery::AtMostOnce).overlap(Overlap::Skip), at(10));
    all.plan_due(&sealed, at(15));
    assert_eq!(start(&mut all, at(15)), Some(at(11)));
    assert_eq!(
        all.plan_due(&sealed, at(16)).skipped,
        [SkippedTick::Overtaken(at(14)), SkippedTick::Overtaken(at(15))],
        "the latest tick replaces those that were on time at the takeover"
    );
    assert_eq!(all.plan_due(&sealed, at(17)).skipped, [SkippedTick::Overtaken(at(16))]);
    all.active.clear();
    assert_eq!(start(&mut all, at(17)), Some(at(17)), "before the remaining catch-up runs");
    assert_eq!(
        all.plan_due(&sealed, at(18)).skipped,
        [SkippedTick::Overlapped(at(18))],
        "the run of a tick is active"
    );
    all.active.clear();
    assert_eq!(ticks(&mut all, at(18)), [(at(12), true), (at(13), true)]);

    let mut once = plan(latest().overlap(Overlap::Skip), at(10));
    once.plan_due(&sealed, at(15));
    let catch_up = once.waiting.pop_front().unwrap();
    once.waiting.clear();
    once.waiting.push_back(catch_up);
    assert_eq!(
        once.plan_due(&sealed, at(16)).skipped,
        [SkippedTick::Overtaken(at(13))],
        "the one catch-up run for all missed ticks, which has not begun, is replaced"
    );
    assert_eq!(ticks(&mut once, at(16)), [(at(16), false)]);

    let least = job(Delivery::AtLeastOnce).overlap(Overlap::Skip);
    let interrupted = crate::scheduler::store::snapshot::tests::sealed(&[3], &[]);
    let (runs, _) = unfinished(&least, &interrupted);
    let mut repeats = led(least, at(14), runs);
    assert_eq!(repeats.plan_due(&interrupted, at(15)), DueDecisions::default());
    assert_eq!(
        ticks(&mut repeats, at(15)),
        [(at(3), true), (at(15), false)],
        "a run that was begun comes first"
    );
}

#[test]
fn a_tick_that_the_record_of_a_later_one_closes_has_its_decision() {
    let under = (FencingToken::new(1), at(14));
    let skipped = RunRecord::closed("old", (RunOutcome::SkippedMisfire, ""), None, under);
    let record = skipped.closing_from(Some(at(12))).to_value();
    let sealed = snapshot([(RunKey::new("j", at(14)).key(), record)]);
    let runs = |job: Job, sealed: &LedgerSnapshot| {
        let mut plan = plan(job, at(10));
        let skipped = plan.plan_due(sealed, at(16)).skipped;
        let missed = skipped.iter().filter(|skipped| matches!(skipped, SkippedTick::Missed(_))).count();
        (ticks(&mut plan, at(16)).into_iter().map(|(tick, _)| tick).collect::<Vec<_>>(), missed)
    };
    let all = || job(Delivery::AtLeastOnce);
    assert_eq!(runs(all(), &sealed), (vec![at(11), at(15), at(16)], 0));
    // All missed ticks but the latest are left out, and those that the record closes are not entered again.
    let once = latest().misfire(Misfire::run_once(100 * SECOND));
    let missed = MisfireReason::Replaced { by: at(14) };
    let missed = MisfiredTicks { first: at(11), last: at(11), why: missed };
    let mut plan = plan(once, at(10));
    let skipped = plan.plan_due(&sealed, at(16)).skipped;
    assert_eq!(skipped, [SkippedTick::Missed(missed), SkippedTick::Decided(at(14), SkipReason::Final)]);
}

#[test]
fn the_rule_cancel_old_cancels_the_active_run_for_the_latest_tick() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce).overlap(Overlap::CancelOld), at(10));
    assert_eq!(plan.plan_due(&sealed, at(11)), DueDecisions::default());
    assert_eq!(start(&mut plan, at(11)), Some(at(11)));
    assert_eq!(plan.plan_due(&sealed, at(12)).cancel_for, Some(at(12)));
    assert_eq!(plan.head(), None, "it starts once the old one has ended");
    let decisions = plan.plan_due(&sealed, at(13));
    assert_eq!(
        (decisions.cancel_for, decisions.skipped),
        (Some(at(13)), vec![SkippedTick::Overtaken(at(12))])
    );
    plan.active.clear();
    assert_eq!(ticks(&mut plan, at(13)), [(at(13), false)]);
}

#[test]
fn the_rule_allow_lets_runs_overlap() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce).overlap(Overlap::Allow), at(10));
    for second in 11..14 {
        assert_eq!(plan.plan_due(&sealed, at(second)), DueDecisions::default());
        assert_eq!(start(&mut plan, at(second)), Some(at(second)));
    }
    assert_eq!(plan.active.len(), 3);
    plan.add_requested(requested(20));
    plan.add_requested(requested(21));
    assert_eq!(start(&mut plan, at(14)), Some(at(20)));
    assert_eq!(start(&mut plan, at(14)), None, "requested runs go one after another under every rule");
}

#[test]
fn a_requested_run_waits_behind_a_scheduled_one_and_is_never_skipped() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce).overlap(Overlap::Skip), at(10));
    plan.plan_due(&sealed, at(11));
    plan.add_requested(requested(11));
    assert_eq!(start(&mut plan, at(11)), Some(at(11)));
    assert_eq!(start(&mut plan, at(11)), None);
    plan.active.clear();
    let (trigger, _) = plan.start(at(500));
    assert!(trigger.is_some_and(|start| start.request().is_some()), "however late");
}

#[test]
fn jitter_delays_the_run_and_lateness_counts_from_the_delayed_time() {
    let sealed = sealed(&[], &[]);
    let jittered = job(Delivery::AtMostOnce).misfire(Misfire::Skip).jitter(SECOND);
    let delay = jittered.jitters().of(at(11));
    assert!(delay > SECOND / 10, "a delay of {delay:?} would show nothing");
    let mut early = plan(jittered.clone(), at(10));
    assert_eq!(early.next, Some(at(11) + delay));
    early.plan_due(&sealed, at(11) + delay - Duration::from_micros(1));
    assert_eq!(early.head(), None);
    early.plan_due(&sealed, at(11) + delay);
    assert_eq!(early.head().map(|start| start.tick), Some(at(11)), "the tick keeps its time");
    let late = |after| {
        let mut plan = plan(jittered.clone(), at(10));
        plan.plan_due(&sealed, at(11) + delay + after).skipped
    };
    assert_eq!(late(LATE_AFTER), []);
    let missed = MisfiredTicks { first: at(11), last: at(11), why: MisfireReason::Rule };
    assert_eq!(late(LATE_AFTER + Duration::from_micros(1)), [SkippedTick::Missed(missed)]);
}

#[test]
fn a_requested_run_has_its_turn_even_if_a_tick_always_waits() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce).overlap(Overlap::Queue), at(10));
    plan.plan_due(&sealed, at(13));
    plan.add_requested(requested(5));
    plan.add_requested(requested(6));
    let mut begun = Vec::new();
    // In this test, each run lasts longer than the gap to the next tick.
    for second in [13, 15, 17, 19, 21] {
        plan.plan_due(&sealed, at(second));
        let head = plan.head().map(|start| start.tick);
        begun.extend(start(&mut plan, at(second)));
        assert_eq!(begun.last(), head.as_ref(), "the head is what starts");
        plan.active.clear();
    }
    assert_eq!(begun, [at(11), at(5), at(12), at(6), at(13)]);
}

#[test]
fn a_pause_skips_waiting_ticks_and_a_resumption_returns_the_span() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce), at(10));
    plan.plan_due(&sealed, at(12));
    start(&mut plan, at(12));
    let given_up = pause(&mut plan, at(12), None);
    assert!(matches!(&given_up[..], [SkippedTick::Paused(start)] if start.tick == at(12)), "{given_up:?}");
    assert_eq!((plan.next, plan.plan_due(&sealed, at(20))), (None, DueDecisions::default()));
    plan.active.clear();
    plan.add_requested(requested(20));
    assert_eq!(ticks(&mut plan, at(20)), [(at(20), false)], "a requested run starts in a pause too");
    assert_eq!(resume(&mut plan, at(30)), Some((at(13), at(30))));
    assert_eq!(plan.next, Some(at(31)));
    plan.plan_due(&sealed, at(31));
    assert_eq!(ticks(&mut plan, at(31)), [(at(31), false)], "no tick of the pause is caught up on");
}

#[test]
fn a_tick_that_comes_due_at_the_moment_of_the_pause_belongs_to_the_pause() {
    let mut plan = plan(job(Delivery::AtLeastOnce), at(10));
    assert_eq!(plan.decided(at(10)), at(10), "nothing has come due");
    assert!(plan.decided(at(11)) < at(11));
    pause(&mut plan, at(11), None);
    assert_eq!(resume(&mut plan, at(13)), Some((at(11), at(13))));
}

#[test]
fn another_schedule_counts_from_now_on() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce), at(10));
    plan.plan_due(&sealed, at(12));
    let slower = Job::new("j", Schedule::every(7 * SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
    let given_up = [at(11), at(12)].map(SkippedTick::Changed);
    let replaced = plan.replace(Arc::new(slower), at(12)).unwrap();
    assert_eq!(replaced.skipped, given_up, "the waiting ticks are reported");
    assert!(ticks(&mut plan, at(12)).is_empty());
    assert!(plan.next.is_some_and(|next| next > at(12) && next <= at(19)));
}

#[test]
fn a_change_counts_from_the_planned_ticks_after_a_backward_clock_step() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce), at(10));
    plan.plan_due(&sealed, at(12));
    assert_eq!(ticks(&mut plan, at(12)).len(), 2);
    let same_times = job(Delivery::AtMostOnce).placement(crate::scheduler::policy::Placement::AnyWorker);
    plan.replace(Arc::new(same_times), at(9));
    plan.replace(Arc::new(job(Delivery::AtMostOnce)), at(9));
    assert_eq!(plan.next, Some(at(13)), "neither 11 nor 12 starts a second time");
}

fn for_any_worker(overlap: Overlap) -> LedJob {
    let mut plan = plan(job(Delivery::AtMostOnce).placement(Placement::AnyWorker).overlap(overlap), at(10));
    (plan.row.since, plan.ahead) = (at(10), 3 * SECOND);
    plan
}

#[test]
fn runs_for_any_worker_are_opened_ahead_if_they_may_overlap() {
    let sealed = sealed(&[], &[]);
    let mut plan = for_any_worker(Overlap::Allow);
    assert_eq!(plan.wake(), Some(at(8)), "before it is due");
    assert_eq!(plan.plan_due(&sealed, at(10)), DueDecisions::default());
    let (first, _) = plan.start(at(10));
    let first = first.unwrap();
    assert_eq!((first.tick, first.not_before, first.at), (at(11), at(11), at(10)));
    assert!(first.is_for_workers(&plan.job));
    assert_eq!(ticks(&mut plan, at(10)), [(at(12), false), (at(13), false)]);
    assert_eq!((plan.wake(), plan.planned), (Some(at(11)), at(13)));
    assert_eq!(plan.plan_due(&sealed, at(10)), DueDecisions::default(), "once");
}

#[test]
fn only_the_next_run_is_opened_ahead_if_runs_may_not_overlap_and_none_is_active() {
    let sealed = sealed(&[], &[]);
    let mut plan = for_any_worker(Overlap::Queue);
    plan.plan_due(&sealed, at(10));
    assert_eq!(start(&mut plan, at(10)), Some(at(11)));
    assert_eq!(plan.wake(), Some(at(12)), "the next is planned when it is due");
    plan.plan_due(&sealed, at(12));
    assert_eq!(start(&mut plan, at(12)), None, "the first is not closed");
    plan.active.clear();
    assert_eq!(start(&mut plan, at(12)), Some(at(12)));
    plan.active.clear();
    plan.plan_due(&sealed, at(12));
    assert_eq!(start(&mut plan, at(12)), Some(at(13)), "and the next ahead again");
}

#[test]
fn ticks_of_another_placement_count_after_the_runs_that_were_opened_ahead() {
    let sealed = sealed(&[], &[]);
    let mut plan = for_any_worker(Overlap::Allow);
    plan.plan_due(&sealed, at(10));
    let replaced = plan.replace(Arc::new(job(Delivery::AtMostOnce)), at(11)).unwrap();
    assert_eq!(replaced.skipped, [11, 12, 13].map(|tick| SkippedTick::Changed(at(tick))));
    plan.plan_due(&sealed, at(14));
    assert_eq!((plan.row.since, ticks(&mut plan, at(14))), (at(13), vec![(at(14), false)]));
}

#[test]
fn a_leader_that_takes_over_a_pause_returns_its_whole_span() {
    let paused = |since| {
        let paused = Some(Paused { at: at(20), ..Paused::default() });
        let row = JobRow { since, paused, ..JobRow::default() };
        LedJob::new(Arc::new(job(Delivery::AtMostOnce)), row, at(490), Vec::new())
    };
    let spans = [at(3), at(300)].map(|since| resume(&mut paused(since), at(500)));
    assert_eq!(spans[0], Some((at(21), at(500))), "not only of the misfire window");
    assert_eq!(spans[1], Some((at(301), at(500))), "of the schedule it has now");
}

#[test]
fn the_ledger_keeps_the_records_of_active_and_waiting_runs() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce), at(10));
    plan.plan_due(&sealed, at(11));
    start(&mut plan, at(11));
    assert_eq!(plan.oldest(), Some(at(11)), "the record of a run of an hour is kept");
    plan.add_requested(requested(5));
    assert_eq!(plan.oldest(), Some(at(5)));
}

#[test]
fn a_run_that_is_often_interrupted_is_postponed_and_never_dropped() {
    let mut plan = plan(job(Delivery::AtLeastOnce), at(10));
    let record = RunRecord::parse(&tick_record(11, 1, false).1).unwrap();
    let start = |times| PendingRun {
        interruptions: times,
        seen: Some(record.clone()),
        cause: RunCause::CatchUp,
        ..requested(11)
    };
    assert_eq!(plan.again(start(3), at(20)), None);
    assert_eq!(ticks(&mut plan, at(20)), [(at(11), true)], "at once");
    assert_eq!(plan.again(start(4), at(20)), Some(at(22)));
    assert_eq!(plan.again(start(5), at(20)), Some(at(24)));
    assert_eq!(plan.again(start(u32::MAX), at(20)), Some(at(620)), "the pause has an upper bound");
    assert_eq!((plan.head(), plan.oldest()), (None, Some(at(11))), "its record is kept");
    plan.next = None;
    assert_eq!(plan.wake(), Some(at(22)));
    plan.plan_due(&sealed(&[], &[]), at(23));
    assert_eq!(plan.start(at(23)).0.map(|start| start.tick), Some(at(11)));
    plan.waiting.clear();
    assert_eq!(pause(&mut plan, at(23), None).len(), 2, "a pause skips it");
    // The leader leaves these runs to the next leader. The low-water mark must keep their records.
    plan.leave_to_next(at(9));
    plan.leave_to_next(at(12));
    assert_eq!(plan.oldest(), Some(at(9)));
}

#[test]
fn the_ticks_between_the_mark_of_the_last_leader_and_the_window_are_reported_as_missed() {
    let sealed = sealed(&[], &[100]);
    let once = job(Delivery::AtMostOnce);
    let from = due_after(&once, &sealed, at(20), Some(at(300)), at(500));
    let decisions = plan(once, from).plan_due(&sealed, at(500));
    let why = MisfireReason::Window { within: 10 * SECOND };
    assert_eq!(
        decisions.skipped[0],
        SkippedTick::Missed(MisfiredTicks { first: at(301), last: at(489), why })
    );
}

#[test]
fn the_next_leader_reports_no_tick_as_missed_that_has_run() {
    let why = MisfireReason::Replaced { by: at(20) };
    let takes_over = |done: &[u64]| {
        let sealed = sealed(&[], done);
        let mut plan = plan(latest(), at(10));
        let skipped = plan.plan_due(&sealed, at(20) + 2 * LATE_AFTER).skipped;
        let decided = |not: &SkippedTick| matches!(not, SkippedTick::Decided(_, SkipReason::Final));
        skipped.into_iter().filter(|not| !decided(not)).collect::<Vec<_>>()
    };
    let span = |first, last| SkippedTick::Missed(MisfiredTicks { first: at(first), last: at(last), why });
    assert_eq!(takes_over(&(11..=20).collect::<Vec<_>>()), [], "all are done");
    assert_eq!(takes_over(&[11, 12, 15, 16, 18, 20]), [span(13, 14), span(17, 17), span(19, 19)]);
    assert_eq!(takes_over(&[]), [span(11, 19)]);
}

#[test]
fn after_a_backward_clock_step_no_tick_starts_twice() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce), at(10));
    plan.plan_due(&sealed, at(12));
    assert_eq!(ticks(&mut plan, at(12)).len(), 2);
    plan.plan_due(&sealed, at(5));
    plan.plan_due(&sealed, at(12));
    assert!(ticks(&mut plan, at(12)).is_empty());
}

fn counts_from_ends() -> (LedJob, LedgerSnapshot) {
    let schedule = crate::scheduler::schedule::Schedule::delay(7 * SECOND).unwrap();
    let job = Job::new("j", schedule, |_| async { Ok::<(), String>(()) });
    let mut plan = plan(job.misfire(Misfire::Skip), at(0));
    plan.begin_after_end(at(10), None);
    (plan, sealed(&[], &[]))
}

#[test]
fn ticks_that_count_from_ends_come_one_at_a_time_and_are_never_too_late() {
    let (mut plan, sealed) = counts_from_ends();
    assert_eq!(plan.next, Some(at(10)), "the first is when the job was first seen");
    assert_eq!(plan.plan_due(&sealed, at(500)), DueDecisions::default());
    assert_eq!(start(&mut plan, at(900)), Some(at(10)));
    plan.plan_due(&sealed, at(2_000));
    assert_eq!((plan.next, plan.head()), (None, None), "without an end no tick follows");
    plan.active.clear();
    plan.begin_after_end(at(2_000), Some(at(2_000)));
    assert_eq!(plan.next, Some(at(2_007)));
    let mut taken_over = led(plan.job.clone(), at(0), Vec::new());
    taken_over.begin_after_end(at(10), Some(at(2_000)));
    assert_eq!(taken_over.next, Some(at(2_007)), "every leader finds the same tick");
}

#[test]
fn a_schedule_that_counts_from_ends_goes_on_after_a_pause_and_after_an_unfinished_run() {
    let (mut plan, sealed) = counts_from_ends();
    plan.plan_due(&sealed, at(10));
    pause(&mut plan, at(10), None);
    assert_eq!(resume(&mut plan, at(100)), None);
    assert_eq!(plan.next, Some(at(107)));
    let started = crate::scheduler::store::snapshot::tests::sealed(&[10], &[]);
    let found = unfinished(&plan.job, &started);
    let mut interrupted = led(plan.job.clone(), at(0), found.0);
    interrupted.begin_after_end(at(0), Some(at(3)));
    let head = interrupted.head().map(|start| start.tick);
    assert_eq!((interrupted.next, head), (None, Some(at(10))), "the next tick follows its end");
}

/// Regression: while a requested run was active, nothing planned the next tick, and no end of a tick followed that
/// would have planned it.
#[test]
fn a_schedule_that_counts_from_ends_goes_on_beside_a_requested_run() {
    let beside = |plan: &mut LedJob| plan.begin(ActiveRun::new(&requested(5), &plan.job.clone()));
    let (mut paused, sealed) = counts_from_ends();
    beside(&mut paused);
    paused.plan_due(&sealed, at(10));
    pause(&mut paused, at(10), None);
    resume(&mut paused, at(100));
    assert_eq!(paused.next, Some(at(107)), "after a pause");
    let (mut ended, sealed) = counts_from_ends();
    ended.plan_due(&sealed, at(10));
    start(&mut ended, at(10));
    beside(&mut ended);
    ended.active.retain(|run| run.request().is_some());
    ended.begin_after_end(at(20), Some(at(20)));
    assert_eq!(ended.next, Some(at(27)), "after the end of the run before");
    let (mut changed, _) = counts_from_ends();
    beside(&mut changed);
    let job = changed.job.clone();
    let slower = Job::new("j", crate::scheduler::schedule::Schedule::delay(9 * SECOND).unwrap(), |_| async {
        Ok::<(), String>(())
    });
    changed.replace(Arc::new(slower.misfire(job.misfire_rule())), at(30));
    assert!(changed.next.is_some(), "after a change");
    let (mut waits, _) = counts_from_ends();
    waits.postponed.push((at(99), PendingRun { cause: RunCause::Scheduled, ..requested(10) }));
    (waits.after_end, waits.next) = (None, None);
    waits.begin_after_end(at(20), Some(at(20)));
    assert_eq!(waits.next, None, "an interrupted tick comes first");
}

/// Returns a run that an earlier leader has opened. A worker may have started it.
fn opened(tick: u64) -> PendingRun {
    opened_by(1, tick)
}

/// Returns a run that the leader of the term `term` has opened.
fn opened_by(term: u64, tick: u64) -> PendingRun {
    let open = OpenRun {
        generation: 1,
        at: at(tick),
        not_before: at(tick),
        take_by: at(tick + 10),
        delivery: Delivery::AtMostOnce,
        cause: RunCause::Scheduled,
        term: FencingToken::new(term),
        labels: Default::default(),
        uses: None,
        state: None,
        cancel: None,
        payload: None,
        job: None,
        token: FencingToken::new(1),
        to: None,
    };
    let seen = Some(RunRecord::Open(open));
    PendingRun { cause: RunCause::Scheduled, key: RunKey::new("j", at(tick)).key(), seen, ..requested(tick) }
}

/// Tests rule R7 of `docs/design/scheduler.md`: a worker may have started an open run. So
/// the leader watches the run from the beginning of the term, even if the run is late or other runs are active.
#[test]
fn an_open_run_is_watched_at_once_and_never_skipped() {
    let job = || job(Delivery::AtMostOnce).overlap(Overlap::Allow);
    let runs = vec![PendingRun { cause: RunCause::CatchUp, seen: None, ..opened(9) }, opened(2), opened(3)];
    let mut plan = led(job(), at(9), runs);
    let (first, skipped) = plan.start(at(1_000));
    assert_eq!((first.as_ref().map(|run| run.tick), skipped), (Some(at(2)), vec![]), "long past its window");
    plan.begin(ActiveRun::new(&first.unwrap(), plan.job()));
    assert_eq!(start(&mut plan, at(1_000)), Some(at(3)), "beside an active run");
    assert_eq!(start(&mut plan, at(1_000)), Some(at(9)), "what is not open comes last");
    plan.add_requested(requested(20));
    plan.add_requested(PendingRun { cause: requested(21).cause, ..opened(21) });
    assert_eq!(start(&mut plan, at(1_000)), Some(at(21)));
}

/// Regression (simulation, plan `contact-all`, seed 40574). The first leader stored its open run on one node
/// only. The second leader did not find this run, and opened a later run, which a worker took. The third leader
/// found both runs and continued both, so that the runs overlapped.
#[test]
fn of_two_open_runs_that_must_not_overlap_the_one_of_the_later_term_goes_first() {
    let runs = vec![opened_by(1, 2), opened_by(3, 4), PendingRun { seen: None, ..opened(3) }];
    let mut plan = led(job(Delivery::AtMostOnce), at(9), runs);
    assert_eq!(start(&mut plan, at(10)), Some(at(4)));
    assert_eq!(start(&mut plan, at(10)), None, "no worker has started the earlier one");
    plan.end(&RunKey::new("j", at(4)).key());
    assert_eq!(start(&mut plan, at(10)), Some(at(2)));
    assert_eq!(start(&mut plan, at(10)), None);
}

#[test]
fn a_pause_leaves_open_runs_to_their_workers() {
    let runs = vec![opened(2), PendingRun { seen: None, ..opened(3) }];
    let mut plan = led(job(Delivery::AtMostOnce), at(9), runs);
    let skipped = pause(&mut plan, at(10), None);
    assert!(matches!(&skipped[..], [SkippedTick::Paused(run)] if run.tick == at(3)), "{skipped:?}");
    assert_eq!(start(&mut plan, at(10)), Some(at(2)));
}

#[test]
fn a_pause_with_an_end_keeps_the_later_ticks_that_were_opened_ahead() {
    let sealed = sealed(&[], &[]);
    let any_worker = job(Delivery::AtMostOnce).overlap(Overlap::Allow).placement(Placement::AnyWorker);
    let mut plan = plan(any_worker, at(10));
    plan.row.since = at(9);
    plan.open_ahead_by(10 * SECOND);
    plan.plan_due(&sealed, at(10));
    assert_eq!(plan.planned, at(20));
    let skipped: Vec<WallTime> = pause(&mut plan, at(10), Some(at(15)))
        .into_iter()
        .map(|tick| match tick {
            SkippedTick::Paused(run) => run.tick,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(skipped, [11, 12, 13, 14].map(at));
    assert_eq!(start(&mut plan, at(10)), Some(at(15)), "a tick at the end of the pause");
    let ended = plan.end_pause(at(15)).expect("its end has come");
    assert_eq!(ended.span, None, "each of them is reported");
    // Regression: the next leader counted the ticks that were opened ahead as decided, also those without a record (simulation,
    // plan `stored`, seed 1202311).
    assert!(plan.row.since < at(15), "the next leader looks for the runs of the ticks after the pause");
    plan.plan_due(&sealed, at(15));
    assert_eq!((start(&mut plan, at(15)), plan.planned), (Some(at(16)), at(25)), "none is planned twice");
}
