use crate::{
    node::FencingToken,
    scheduler::{Misfire, every, policy::MisfireReason},
};
use {
    super::*,
    crate::scheduler::store::snapshot::tests::{SECOND, at, sealed},
};

fn job(delivery: Delivery) -> Job {
    let schedule = every(SECOND).unwrap();
    let job = Job::new("j", schedule, |_| async { Ok::<(), String>(()) });
    job.delivery(delivery).misfire(Misfire::run_all(10 * SECOND))
}

fn latest() -> Job {
    job(Delivery::AtMostOnce).misfire(Misfire::run_once(100 * SECOND))
}

fn plan(job: Job, from: WallTime) -> JobPlan {
    JobPlan::new(Arc::new(job), from, Vec::new(), false)
}

/// The tick that starts, and runs from now on.
fn start(plan: &mut JobPlan, now: WallTime) -> Option<WallTime> {
    let (start, _) = plan.start(now);
    let start = start?;
    let (key, tick, at, request) = (start.key.clone(), start.tick, start.at, start.request());
    plan.running.push(ActiveRun { key, tick, at, request, cancel: Cancel::default(), withdraw: None });
    Some(start.tick)
}

/// All that may start now if each ends at once, and whether it is made up.
fn ticks(plan: &mut JobPlan, now: WallTime) -> Vec<(WallTime, bool)> {
    let mut ticks = Vec::new();
    while let (Some(start), _) = plan.start(now) {
        ticks.push((start.tick, start.cause == RunCause::CatchUp));
    }
    ticks
}

fn asked(tick: u64) -> PendingRun {
    let cause = RunCause::Triggered { id: RequestId::from_u128(u128::from(tick)) };
    let key = format!("run/{tick}").into();
    let (tick, remembering) = (at(tick), true);
    PendingRun {
        tick,
        cause,
        key,
        at: tick,
        remembering,
        not_before: tick,
        seen: None,
        unknown: false,
        times: 0,
    }
}

#[test]
fn what_the_old_leader_did_is_not_done_again_and_what_it_missed_is_made_up() {
    let sealed = sealed(&[12], &[10, 11]);
    let once = job(Delivery::AtMostOnce);
    let (owed, lost) = unfinished(&once, &sealed);
    assert!(owed.is_empty());
    assert_eq!(lost.iter().map(|close| close.start.tick).collect::<Vec<_>>(), [at(12)], "it will never end");
    let mut plan = plan(once, at(9));
    let looked = plan.look(&sealed, at(15));
    assert_eq!(ticks(&mut plan, at(15)), [(at(13), true), (at(14), false), (at(15), false)]);
    let done = [at(10), at(11)].map(|tick| SkippedTick::Decided(tick, SkipReason::Final));
    assert_eq!(looked.not_run, done);
    assert_eq!(plan.look(&sealed, at(15)), Looked::default(), "once");
    assert!(ticks(&mut plan, at(15)).is_empty());
}

#[test]
fn at_least_once_runs_again_what_was_started_over_the_record_that_stands() {
    let sealed = sealed(&[3, 12], &[10, 11]);
    let least = job(Delivery::AtLeastOnce);
    let (owed, lost) = unfinished(&least, &sealed);
    assert!(lost.is_empty());
    let mut plan = JobPlan::new(Arc::new(least), at(11), owed, false);
    plan.look(&sealed, at(12));
    let (start, _) = plan.start(at(12));
    assert_eq!(start.map(|start| start.tick), Some(at(3)), "however long ago: it was begun");
    let (start, _) = plan.start(at(12));
    let start = start.expect("it runs again");
    assert_eq!((start.tick, start.cause), (at(12), RunCause::CatchUp));
    assert_eq!(start.seen.map(|record| record.term), Some(FencingToken::new(1)));
    assert!(plan.start(at(12)).0.is_none(), "and once");
}

#[test]
fn ticks_before_the_nodes_memory_are_unknown() {
    let sealed = sealed(&[], &[]);
    let mut most = plan(job(Delivery::AtMostOnce), at(0) - SECOND);
    most.look(&sealed, at(2));
    assert_eq!(ticks(&mut most, at(2)), [(at(1), false), (at(2), false)], "0 s is not remembered");
    let mut least = plan(job(Delivery::AtLeastOnce), at(0) - SECOND);
    least.look(&sealed, at(2));
    let (start, _) = least.start(at(2));
    assert!(start.is_some_and(|start| start.unknown && start.tick == at(0)));
}

#[test]
fn a_job_that_runs_keeps_its_own_next_tick_waiting() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce), at(10));
    plan.look(&sealed, at(11));
    assert_eq!(start(&mut plan, at(11)), Some(at(11)));
    plan.look(&sealed, at(12));
    assert!(plan.head().is_none() && start(&mut plan, at(12)).is_none(), "never beside itself");
    plan.running.clear();
    assert_eq!(plan.head().map(|start| start.tick), Some(at(12)));
    assert_eq!(start(&mut plan, at(13)), Some(at(12)));
    plan.running.clear();
    plan.look(&sealed, at(14));
    let late = plan.start(at(40));
    assert_eq!(
        late,
        (None, vec![SkippedTick::TooLate(at(13)), SkippedTick::TooLate(at(14))]),
        "older than the window"
    );
}

#[test]
fn behind_a_slow_run_only_the_latest_tick_waits_unless_all_are_to_run() {
    let sealed = sealed(&[], &[]);
    let mut once = plan(latest(), at(10));
    once.look(&sealed, at(11));
    assert_eq!(start(&mut once, at(11)), Some(at(11)));
    assert_eq!(once.look(&sealed, at(12)), Looked::default());
    assert_eq!(once.look(&sealed, at(13)).not_run, [SkippedTick::Overtaken(at(12))]);
    assert_eq!(once.look(&sealed, at(14)).not_run, [SkippedTick::Overtaken(at(13))]);
    once.running.clear();
    assert_eq!(ticks(&mut once, at(14)), [(at(14), false)]);
    let mut all = plan(job(Delivery::AtMostOnce), at(10));
    all.look(&sealed, at(11));
    start(&mut all, at(11));
    for second in 12..15 {
        assert_eq!(all.look(&sealed, at(second)), Looked::default());
    }
    all.running.clear();
    assert_eq!(ticks(&mut all, at(14)).len(), 3);
}

#[test]
fn what_waits_for_a_turn_is_overtaken_as_well() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(latest(), at(10));
    plan.look(&sealed, at(11));
    assert_eq!(
        plan.look(&sealed, at(12)).not_run,
        [SkippedTick::Overtaken(at(11))],
        "too many runs of others go on"
    );
    assert_eq!(ticks(&mut plan, at(12)), [(at(12), false)]);
}

#[test]
fn skip_skips_what_comes_due_while_a_run_goes_on_and_nothing_else() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce).overlap(Overlap::Skip), at(10));
    let looked = plan.look(&sealed, at(13));
    assert_eq!(looked, Looked::default(), "what was missed waits its turn");
    assert_eq!(start(&mut plan, at(13)), Some(at(11)));
    assert_eq!(plan.look(&sealed, at(14)).not_run, [SkippedTick::Overlapped(at(14))]);
    plan.running.clear();
    assert_eq!(ticks(&mut plan, at(14)), [(at(12), false), (at(13), false)]);
    plan.look(&sealed, at(15));
    assert_eq!(ticks(&mut plan, at(15)), [(at(15), false)]);
}

#[test]
fn cancel_old_stops_what_runs_for_the_latest_tick() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce).overlap(Overlap::CancelOld), at(10));
    assert_eq!(plan.look(&sealed, at(11)), Looked::default());
    assert_eq!(start(&mut plan, at(11)), Some(at(11)));
    assert_eq!(plan.look(&sealed, at(12)).stop_for, Some(at(12)));
    assert_eq!(plan.head(), None, "once the old one has ended");
    let looked = plan.look(&sealed, at(13));
    assert_eq!((looked.stop_for, looked.not_run), (Some(at(13)), vec![SkippedTick::Overtaken(at(12))]));
    plan.running.clear();
    assert_eq!(ticks(&mut plan, at(13)), [(at(13), false)]);
}

#[test]
fn allow_lets_ticks_run_side_by_side() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce).overlap(Overlap::Allow), at(10));
    for second in 11..14 {
        assert_eq!(plan.look(&sealed, at(second)), Looked::default());
        assert_eq!(start(&mut plan, at(second)), Some(at(second)));
    }
    assert_eq!(plan.running.len(), 3);
    plan.ask(asked(20));
    plan.ask(asked(21));
    assert_eq!(start(&mut plan, at(14)), Some(at(20)));
    assert_eq!(start(&mut plan, at(14)), None, "what was asked for runs one after another under every rule");
}

#[test]
fn what_was_asked_for_waits_behind_the_schedule_and_is_never_skipped() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce).overlap(Overlap::Skip), at(10));
    plan.look(&sealed, at(11));
    plan.ask(asked(11));
    assert_eq!(start(&mut plan, at(11)), Some(at(11)));
    assert_eq!(start(&mut plan, at(11)), None);
    plan.running.clear();
    let (trigger, _) = plan.start(at(500));
    assert!(trigger.is_some_and(|start| start.request().is_some()), "however late");
}

#[test]
fn jitter_puts_the_run_off_and_what_is_late_is_counted_from_there() {
    let sealed = sealed(&[], &[]);
    let jittered = job(Delivery::AtMostOnce).misfire(Misfire::Skip).jitter(SECOND);
    let delay = jittered.jitters().of(at(11));
    assert!(delay > SECOND / 10, "else this shows nothing: {delay:?}");
    let mut early = plan(jittered.clone(), at(10));
    assert_eq!(early.next, Some(at(11) + delay));
    early.look(&sealed, at(11) + delay - Duration::from_micros(1));
    assert_eq!(early.head(), None);
    early.look(&sealed, at(11) + delay);
    assert_eq!(early.head().map(|start| start.tick), Some(at(11)), "its time is its own");
    let late = |after| {
        let mut plan = plan(jittered.clone(), at(10));
        plan.look(&sealed, at(11) + delay + after).not_run
    };
    assert_eq!(late(LATE_AFTER), []);
    let missed = MisfiredTicks { first: at(11), last: at(11), why: MisfireReason::Rule };
    assert_eq!(late(LATE_AFTER + Duration::from_micros(1)), [SkippedTick::Missed(missed)]);
}

#[test]
fn what_was_asked_for_has_its_turn_though_something_always_waits() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce).overlap(Overlap::Queue), at(10));
    plan.look(&sealed, at(13));
    plan.ask(asked(5));
    plan.ask(asked(6));
    let mut begun = Vec::new();
    // Each run lasts longer than the gap to the next tick.
    for second in [13, 15, 17, 19, 21] {
        plan.look(&sealed, at(second));
        let head = plan.head().map(|start| start.tick);
        begun.extend(start(&mut plan, at(second)));
        assert_eq!(begun.last(), head.as_ref(), "what the line says is what starts");
        plan.running.clear();
    }
    assert_eq!(begun, [at(11), at(5), at(12), at(6), at(13)]);
}

#[test]
fn a_pause_gives_up_what_waits_and_a_resumption_tells_of_the_span() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce), at(10));
    plan.look(&sealed, at(12));
    start(&mut plan, at(12));
    let given_up = plan.pause();
    assert!(matches!(&given_up[..], [SkippedTick::Paused(start)] if start.tick == at(12)), "{given_up:?}");
    assert_eq!((plan.next, plan.look(&sealed, at(20))), (None, Looked::default()));
    plan.running.clear();
    plan.ask(asked(20));
    assert_eq!(ticks(&mut plan, at(20)), [(at(20), false)], "a trigger runs all the same");
    assert_eq!(plan.resume(at(12), at(30)), Some((at(13), at(30))));
    assert_eq!(plan.next, Some(at(31)));
    plan.look(&sealed, at(31));
    assert_eq!(ticks(&mut plan, at(31)), [(at(31), false)], "nothing is made up");
}

#[test]
fn a_tick_that_comes_due_in_the_moment_of_the_pause_is_not_left_in_the_dark() {
    let mut plan = plan(job(Delivery::AtLeastOnce), at(10));
    assert_eq!(plan.decided(at(10)), at(10), "nothing has come due");
    let paused = plan.decided(at(11));
    assert!(paused < at(11));
    plan.pause();
    assert_eq!(plan.resume(paused, at(13)), Some((at(11), at(13))));
}

#[test]
fn another_schedule_counts_from_now_on() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce), at(10));
    plan.look(&sealed, at(12));
    let slower = Job::new("j", every(7 * SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
    let given_up = [at(11), at(12)].map(SkippedTick::Changed);
    assert_eq!(plan.replace(Arc::new(slower), at(12)), given_up, "and is told");
    assert!(ticks(&mut plan, at(12)).is_empty());
    assert!(plan.next.is_some_and(|next| next > at(12) && next <= at(19)));
}

#[test]
fn a_change_counts_from_what_was_looked_at_though_the_clock_has_stepped_back() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce), at(10));
    plan.look(&sealed, at(12));
    assert_eq!(ticks(&mut plan, at(12)).len(), 2);
    let same_times = job(Delivery::AtMostOnce).placement(crate::scheduler::Placement::AnyWorker);
    plan.replace(Arc::new(same_times), at(9));
    plan.replace(Arc::new(job(Delivery::AtMostOnce)), at(9));
    assert_eq!(plan.next, Some(at(13)), "neither 11 nor 12 is started a second time");
}

fn for_any_worker(overlap: Overlap) -> JobPlan {
    let mut plan = plan(job(Delivery::AtMostOnce).placement(Placement::AnyWorker).overlap(overlap), at(10));
    (plan.since, plan.ahead) = (at(10), 3 * SECOND);
    plan
}

#[test]
fn runs_for_any_worker_are_opened_ahead_where_they_may_run_side_by_side() {
    let sealed = sealed(&[], &[]);
    let mut plan = for_any_worker(Overlap::Allow);
    assert_eq!(plan.wake(), Some(at(8)), "before it is due");
    assert_eq!(plan.look(&sealed, at(10)), Looked::default());
    let (first, _) = plan.start(at(10));
    let first = first.unwrap();
    assert_eq!((first.tick, first.not_before, first.at), (at(11), at(11), at(10)));
    assert!(first.remembering && first.is_for_workers(&plan.job));
    assert_eq!(ticks(&mut plan, at(10)), [(at(12), false), (at(13), false)]);
    assert_eq!((plan.wake(), plan.looked()), (Some(at(11)), at(13)));
    assert_eq!(plan.look(&sealed, at(10)), Looked::default(), "once");
}

#[test]
fn of_runs_that_may_not_overlap_only_the_next_is_opened_ahead_and_none_behind_another() {
    let sealed = sealed(&[], &[]);
    let mut plan = for_any_worker(Overlap::Queue);
    plan.look(&sealed, at(10));
    assert_eq!(start(&mut plan, at(10)), Some(at(11)));
    assert_eq!(plan.wake(), Some(at(12)), "the next is looked at when it is due");
    plan.look(&sealed, at(12));
    assert_eq!(start(&mut plan, at(12)), None, "the first is not closed");
    plan.running.clear();
    assert_eq!(start(&mut plan, at(12)), Some(at(12)));
    plan.running.clear();
    plan.look(&sealed, at(12));
    assert_eq!(start(&mut plan, at(12)), Some(at(13)), "and the next ahead again");
}

#[test]
fn another_placement_counts_anew_after_what_was_opened_ahead() {
    let sealed = sealed(&[], &[]);
    let mut plan = for_any_worker(Overlap::Allow);
    plan.look(&sealed, at(10));
    let given_up = plan.replace(Arc::new(job(Delivery::AtMostOnce)), at(11));
    assert_eq!(given_up, [11, 12, 13].map(|tick| SkippedTick::Changed(at(tick))));
    plan.look(&sealed, at(14));
    assert_eq!((plan.since, ticks(&mut plan, at(14))), (at(13), vec![(at(14), false)]));
}

#[test]
fn a_leader_that_takes_a_pause_over_tells_of_the_whole_span() {
    let mut plan = JobPlan::new(Arc::new(job(Delivery::AtMostOnce)), at(490), Vec::new(), true);
    plan.since = at(3);
    assert_eq!(plan.resume(at(20), at(500)), Some((at(21), at(500))), "not only of the misfire window");
    let mut changed = JobPlan::new(Arc::new(job(Delivery::AtMostOnce)), at(490), Vec::new(), true);
    changed.since = at(300);
    assert_eq!(changed.resume(at(20), at(500)), Some((at(301), at(500))), "of the schedule it has now");
}

#[test]
fn the_ledger_remembers_what_runs_and_what_waits() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce), at(10));
    plan.look(&sealed, at(11));
    start(&mut plan, at(11));
    assert_eq!(plan.oldest(), Some(at(11)), "a run of an hour is not forgotten");
    plan.ask(asked(5));
    assert_eq!(plan.oldest(), Some(at(5)));
    assert_eq!(kept(window(&plan.job), SECOND), 22 * SECOND);
}

#[test]
fn what_is_interrupted_again_and_again_is_put_off_and_never_dropped() {
    let mut plan = plan(job(Delivery::AtLeastOnce), at(10));
    let start = |times| PendingRun { times, seen: Some(record()), cause: RunCause::CatchUp, ..asked(11) };
    fn record() -> Record {
        crate::scheduler::store::snapshot::tests::tick_record(11, 1, false).1
    }
    assert_eq!(plan.again(start(3), at(20)), None);
    assert_eq!(ticks(&mut plan, at(20)), [(at(11), true)], "at once");
    assert_eq!(plan.again(start(4), at(20)), Some(at(22)));
    assert_eq!(plan.again(start(5), at(20)), Some(at(24)));
    assert_eq!(plan.again(start(u32::MAX), at(20)), Some(at(620)), "and no longer than that");
    assert_eq!((plan.head(), plan.oldest()), (None, Some(at(11))), "the ledger remembers it");
    plan.next = None;
    assert_eq!(plan.wake(), Some(at(22)));
    plan.look(&sealed(&[], &[]), at(23));
    assert_eq!(plan.start(at(23)).0.map(|start| start.tick), Some(at(11)));
    plan.waiting.clear();
    assert_eq!(plan.pause().len(), 2, "a pause gives it up");
    // A run that came to nothing is the next leader's: this one has the ledger remember it.
    plan.leave(at(9));
    plan.leave(at(12));
    assert_eq!(plan.oldest(), Some(at(9)));
}

#[test]
fn an_open_record_holds_the_mark_back_for_a_day_and_no_more_records_than_can_be_read() {
    let (now, kept, day) = (at(10_000_000), 100 * SECOND, Duration::from_secs(86_400));
    let once = job(Delivery::AtMostOnce);
    let held = |job: &Job| held([job].into_iter());
    assert_eq!(held(&once), day);
    assert_eq!(held(&once.clone().timeout(day * 2)), day * 2, "what may run so long");
    let often = Job::new("j", every(SECOND / 100).unwrap(), |_| async { Ok::<(), String>(()) });
    assert_eq!(held(&often), day / 9, "864,000 and 0.64 million of two ticks a second were a million");
    let mark = |wanted: Option<WallTime>| low_water(now, kept, wanted, day);
    assert_eq!(mark(None), now - kept);
    assert_eq!(mark(Some(now)), now - kept);
    assert_eq!(mark(Some(now - day)), now - day);
    assert_eq!(mark(Some(at(0))), now - kept - day, "however long it hangs");
}

#[test]
fn a_leader_looks_back_as_far_as_its_window_or_to_where_the_last_one_looked() {
    let sealed = sealed(&[], &[100]);
    let once = job(Delivery::AtMostOnce);
    let from = |looked: Option<u64>| from(&once, &sealed, at(20), looked.map(at), at(500));
    assert_eq!(from(None), at(490));
    assert_eq!(from(Some(495)), at(490), "what was decided on may not have run");
    assert_eq!(from(Some(300)), at(300), "nobody ran it since, which is told");
    assert_eq!(from(Some(95)), at(100), "that one has run");
    assert_eq!(super::from(&once, &sealed, at(495), Some(at(300)), at(500)), at(495), "not before it was");
    let mut plan = plan(once.clone(), from(Some(300)));
    let looked = plan.look(&sealed, at(500));
    let why = MisfireReason::Window { within: 10 * SECOND };
    assert_eq!(looked.not_run[0], SkippedTick::Missed(MisfiredTicks { first: at(301), last: at(489), why }));
}

#[test]
fn a_leader_that_follows_tells_no_tick_as_missed_that_has_run() {
    let why = MisfireReason::Replaced { by: at(20) };
    let takes_over = |done: &[u64]| {
        let sealed = sealed(&[], done);
        let mut plan = plan(latest(), at(10));
        let not_run = plan.look(&sealed, at(20) + 2 * LATE_AFTER).not_run;
        let decided = |not: &SkippedTick| matches!(not, SkippedTick::Decided(_, SkipReason::Final));
        not_run.into_iter().filter(|not| !decided(not)).collect::<Vec<_>>()
    };
    let span = |first, last| SkippedTick::Missed(MisfiredTicks { first: at(first), last: at(last), why });
    assert_eq!(takes_over(&(11..=20).collect::<Vec<_>>()), [], "all are done");
    assert_eq!(takes_over(&[11, 12, 15, 16, 18, 20]), [span(13, 14), span(17, 17), span(19, 19)]);
    assert_eq!(takes_over(&[]), [span(11, 19)]);
}

#[test]
fn the_ticks_that_the_ledger_keeps_are_counted() {
    assert_eq!(ticks_kept(&job(Delivery::AtMostOnce)), 36);
    let hour = Misfire::run_all(Duration::from_secs(3600));
    let cron = |line| {
        let schedule = crate::scheduler::Cron::parse(line).unwrap();
        ticks_kept(&Job::new("c", schedule, |_| async { Ok::<(), String>(()) }).misfire(hour))
    };
    assert_eq!(cron("0 3 * * *"), 1);
    assert_eq!(cron("*/5 * * * *"), 13);
    assert_eq!(cron("* * 9 * * MON"), 3626, "at its busiest, whenever that is asked");
}

#[test]
fn a_clock_that_steps_back_starts_nothing_twice() {
    let sealed = sealed(&[], &[]);
    let mut plan = plan(job(Delivery::AtMostOnce), at(10));
    plan.look(&sealed, at(12));
    assert_eq!(ticks(&mut plan, at(12)).len(), 2);
    plan.look(&sealed, at(5));
    plan.look(&sealed, at(12));
    assert!(ticks(&mut plan, at(12)).is_empty());
}

fn chain() -> (JobPlan, LedgerSnapshot) {
    let schedule = crate::scheduler::delay(7 * SECOND).unwrap();
    let job = Job::new("j", schedule, |_| async { Ok::<(), String>(()) });
    let mut plan = plan(job.misfire(Misfire::Skip), at(0));
    plan.begin_chain(at(10), None);
    (plan, sealed(&[], &[]))
}

#[test]
fn ticks_that_hang_on_ends_come_one_at_a_time_and_are_never_too_late() {
    let (mut plan, sealed) = chain();
    assert_eq!(plan.next, Some(at(10)), "the first is when the job was first seen");
    assert_eq!(plan.look(&sealed, at(500)), Looked::default());
    assert_eq!(start(&mut plan, at(900)), Some(at(10)));
    plan.look(&sealed, at(2_000));
    assert_eq!((plan.next, plan.head()), (None, None), "no end, no next one");
    plan.running.clear();
    plan.begin_chain(at(2_000), Some(at(2_000)));
    assert_eq!(plan.next, Some(at(2_007)));
    let mut taken_over = super::JobPlan::new(plan.job.clone(), at(0), Vec::new(), false);
    taken_over.begin_chain(at(10), Some(at(2_000)));
    assert_eq!(taken_over.next, Some(at(2_007)), "every leader comes to the same");
}

#[test]
fn a_chain_goes_on_after_a_pause_and_after_what_is_owed() {
    let (mut plan, sealed) = chain();
    plan.look(&sealed, at(10));
    plan.pause();
    assert_eq!(plan.resume(at(10), at(100)), None);
    assert_eq!(plan.next, Some(at(107)));
    let owed = super::unfinished(&plan.job, &crate::scheduler::store::snapshot::tests::sealed(&[10], &[]));
    let mut interrupted = JobPlan::new(plan.job.clone(), at(0), owed.0, false);
    interrupted.begin_chain(at(0), Some(at(3)));
    let head = interrupted.head().map(|start| start.tick);
    assert_eq!((interrupted.next, head), (None, Some(at(10))), "its end brings the next");
}
