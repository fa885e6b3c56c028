use super::*;
use crate::schedule::{RunAll, RunOnce, every};

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> WallTime {
    WallTime::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
}

fn job() -> Job {
    Job::new("j", every(SECOND).unwrap(), |_| async { Ok::<_, String>(()) })
}

fn plan(job: Job, from: u64) -> Plan {
    let mut plan = Plan::new(Arc::new(job), none());
    plan.begin(at(from));
    plan
}

fn late(seconds: u64) -> WallTime {
    at(seconds) + Duration::from_millis(500)
}

fn none() -> BTreeSet<WallTime> {
    BTreeSet::new()
}

#[test]
fn a_tick_is_tried_at_its_time_and_ends_when_it_has_ended() {
    let mut plan = plan(job(), 0);
    assert_eq!(plan.wake(), Some(at(1)));
    assert_eq!(plan.look(at(1), &none()), []);
    assert_eq!(plan.wake(), Some(at(1)));
    let tried = plan.take(at(1)).unwrap();
    assert_eq!((tried.tick, tried.made_up, tried.too_late), (at(1), false, None));
    assert_eq!(plan.oldest(), Some(at(1)));
    plan.came(tried, Came::Ended, late(1), 0);
    assert_eq!((plan.oldest(), plan.wake()), (None, Some(at(2))));
}

#[test]
fn what_somebody_else_has_is_looked_at_again_and_made_up() {
    let mut plan = plan(job().misfire(RunAll::within(SECOND * 60)), 0);
    plan.look(at(1), &none());
    let tried = plan.take(late(1)).unwrap();
    plan.came(tried, Came::Elsewhere(SECOND * 9), at(1), 0);
    assert_eq!(plan.take(at(9)), None);
    let again = plan.take(at(10)).unwrap();
    assert_eq!((again.tick, again.made_up, again.too_late), (at(1), true, None));
    plan.came(again, Came::Contended, at(10), u64::MAX);
    assert!(plan.take(at(10) + CONTENDED).is_none(), "drawn as late as can be");
    let again = plan.take(at(10) + CONTENDED * 2).unwrap();
    plan.came(again, Came::NotNow, at(11), 0);
    assert_eq!(plan.take(at(11) + NOT_NOW).map(|tried| tried.tick), Some(at(1)));
}

#[test]
fn past_its_window_a_tick_is_brought_to_an_end() {
    let mut plan = plan(job().misfire(RunAll::within(SECOND * 5)), 0);
    plan.look(at(1), &none());
    let tried = plan.take(late(1)).unwrap();
    plan.came(tried, Came::Elsewhere(SECOND * 20), at(1), 0);
    assert_eq!(plan.take(at(30)).and_then(|tried| tried.too_late), Some(TickEnd::SkippedMisfire));
}

#[test]
fn one_of_a_job_at_a_time_unless_it_may_overlap() {
    for (overlap, many) in [(Overlap::Queue, 1), (Overlap::Allow, 3)] {
        let mut plan = plan(job().overlap(overlap).misfire(RunAll::within(SECOND * 60)), 0);
        plan.look(at(3), &none());
        let taken = std::iter::from_fn(|| plan.take(late(3))).count();
        assert_eq!(taken, many, "{overlap}");
    }
}

#[test]
fn what_waits_here_behind_a_run_is_overtaken_unless_each_is_made_up() {
    for (misfire, end) in
        [(RunOnce::within(SECOND * 60), Some(TickEnd::SkippedOverlap)), (RunAll::within(SECOND * 60), None)]
    {
        let mut plan = plan(job().misfire(misfire), 0);
        plan.look(at(1), &none());
        let running = plan.take(late(1)).unwrap();
        for second in 2..=4 {
            plan.look(at(second), &none());
        }
        plan.came(running, Came::Ended, late(4), 0);
        let next = plan.take(late(4)).unwrap();
        assert_eq!((next.tick, next.too_late), (at(2), end));
        plan.came(next, Came::Ended, late(4), 0);
        let next = plan.take(late(4)).unwrap();
        plan.came(next, Came::Ended, late(4), 0);
        assert_eq!(plan.take(late(4)).map(|tried| (tried.tick, tried.too_late)), Some((at(4), None)));
    }
}

#[test]
fn an_interrupted_run_is_made_again_a_few_times() {
    let mut plan = plan(job().misfire(RunAll::within(SECOND * 600)), 0);
    plan.look(at(1), &none());
    let mut runs = 0;
    while let Some(tried) = plan.take(at(1) + SECOND * (runs + 1)) {
        assert_eq!(tried.made_up, runs > 0);
        plan.came(tried, Came::Interrupted, at(1) + SECOND * (runs + 1), 0);
        runs += 1;
    }
    assert_eq!(runs, INTERRUPTED_MAX + 1);
}

#[test]
fn a_worker_that_comes_late_leaves_out_what_has_ended_and_takes_what_is_owed() {
    let mut plan = plan(job().misfire(RunAll::within(SECOND * 60)), 0);
    plan.look(at(4), &BTreeSet::from([at(1), at(3)]));
    plan.owe(at(0), at(4));
    let mut ticks = Vec::new();
    while let Some(tried) = plan.take(late(4)) {
        ticks.push((tried.tick, tried.made_up));
        plan.came(tried, Came::Ended, late(4), 0);
    }
    assert_eq!(ticks, [(at(0), true), (at(2), true), (at(4), false)]);
}

#[test]
fn what_comes_due_in_a_pause_is_one_span() {
    let mut plan = plan(job(), 0);
    assert_eq!(plan.look_paused(late(3)), Some((at(1), at(3))));
    assert_eq!(plan.look_paused(late(3)), None);
    plan.look(at(4), &none());
    assert_eq!(plan.take(late(4)).map(|tried| tried.tick), Some(at(4)));
}

#[test]
fn spans_are_told_without_what_others_ran() {
    let why = MisfireReason::Rule;
    let span = |first, last| Skipped { first: at(first), last: at(last), why };
    let unrun = |spans: &[Skipped], stands: &[u64]| {
        let stands = stands.iter().map(|second| at(*second)).collect();
        let spans = super::unrun(&job(), spans, &stands);
        spans.into_iter().map(|(first, last, _)| (first, last)).collect::<Vec<_>>()
    };
    assert_eq!(unrun(&[span(1, 9)], &[]), [(at(1), at(9))]);
    assert_eq!(unrun(&[span(1, 9)], &[1, 4, 5, 20]), [(at(2), at(3)), (at(6), at(9))]);
    assert_eq!(unrun(&[span(1, 3), span(5, 6)], &[1, 2, 3, 6]), [(at(5), at(5))]);
    assert_eq!(unrun(&[span(1, 3)], &[1, 2, 3]), []);
}

#[test]
fn records_are_kept_for_the_longest_window_and_what_has_not_ended() {
    let mut plan = plan(job().misfire(RunAll::within(SECOND * 600)).timeout(SECOND * 5), 0);
    let now = at(100_000);
    let low = |plan: &Plan, others| low_water(std::iter::once(plan), now, others, SECOND);
    let own = low(&plan, SECOND);
    assert!(own < (now - SECOND * 665).as_micros() && own > (now - SECOND * 1_000).as_micros());
    assert_eq!(low(&plan, SECOND * 9_000), (now - SECOND * 9_000).as_micros(), "another worker's job");
    plan.owe(at(3), now);
    assert_eq!(low(&plan, SECOND), at(3).as_micros());
}

#[test]
fn nothing_is_begun_of_the_leaders_ticks_and_it_begins_anew_afterwards() {
    let mut plan = plan(job().misfire(RunAll::within(SECOND * 600)).overlap(Overlap::Allow), 0);
    plan.look(at(4), &none());
    let tried = std::iter::from_fn(|| plan.take(late(4))).last().unwrap();
    plan.hold(at(2));
    plan.came(tried, Came::NotNow, at(4), 0);
    assert_eq!(plan.take(at(6)), None, "{tried:?}");
    for second in 1..=2 {
        plan.came(Try { tick: at(second), ..tried }, Came::Contended, at(0), 0);
    }
    assert_eq!(plan.look(at(6), &none()), []);
    assert_eq!((plan.look_paused(at(6)), plan.wake()), (None, Some(at(0) + CONTENDED)));
    let taken: Vec<_> = std::iter::from_fn(|| plan.take(at(6))).map(|tried| tried.tick).collect();
    assert_eq!(taken, [at(1), at(2)], "what came due before is nobody else's");
    plan.begin(at(8));
    plan.look(at(9), &none());
    assert_eq!(plan.take(late(9)).map(|tried| tried.tick), Some(at(9)), "those between were the leader's");
    assert_eq!(plan.take(late(9)), None);
}

#[test]
fn what_runs_here_keeps_a_changed_job_busy() {
    let mut plan = plan(job().misfire(RunAll::within(SECOND * 600)), 0);
    plan.look(at(2), &none());
    let running = plan.take(late(1)).unwrap();
    plan.renew(Arc::new(job().misfire(RunAll::within(SECOND * 600)).timeout(SECOND)));
    plan.owe(running.tick, late(2));
    plan.look(at(3), &none());
    assert_eq!((plan.take(late(3)), plan.oldest()), (None, Some(at(1))));
    plan.renew(Arc::new(Job::new("j", every(SECOND * 2).unwrap(), |_| async { Ok::<_, String>(()) })));
    assert!(!plan.is_awake(), "another schedule begins anew");
    assert_eq!(plan.look(at(9), &none()), []);
    plan.begin(at(0));
    plan.look(at(4), &none());
    assert_eq!((plan.take(late(4)), plan.wake().is_some()), (None, true), "it still runs");
    plan.came(running, Came::Ended, late(4), 0);
    assert_eq!(plan.take(late(4)).map(|tried| tried.tick), Some(at(2)));
}

#[test]
fn what_nobody_was_there_for_is_one_span() {
    let stands = |seconds: &[u64]| seconds.iter().map(|second| (at(*second), true)).collect();
    let dark = |stands, known| dark(&job(), &stands, at(known), at(30));
    assert_eq!(dark(stands(&[3, 7]), 5), Some((at(8), at(30))));
    assert_eq!(dark(stands(&[3, 7]), 9), Some((at(10), at(30))), "what is older is forgotten");
    assert_eq!(dark(stands(&[3, 31]), 0), None, "others are at it");
    assert_eq!(dark(stands(&[]), 30), None);
}
