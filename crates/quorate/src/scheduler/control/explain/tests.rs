//! Tests of the explanations. For each [`Reason`] there is a test that expects it.

use super::*;
use crate::{
    ledger::Waiting,
    node::FencingToken,
    scheduler::{
        control::status::{RegisteredJob, RunStatus},
        job::{RequestId, RunCause},
        schedule::Schedule,
        store::{JobRow, Paused},
    },
};
use std::sync::Arc;

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

/// The tick of most tests: a full hour.
const TICK: WallTime = WallTime::from_micros(500_000 * 3_600_000_000);

fn job(schedule: &Schedule) -> RegisteredJob {
    let row = JobRow {
        since: TICK - 100 * HOUR,
        schedule: schedule.to_string().into(),
        spec: schedule.spec(),
        window: Some(60 * SECOND),
        ..JobRow::default()
    };
    RegisteredJob::new(row)
}

/// Returns the facts about a job that is due every hour, half an hour after [`TICK`]. There are a leader and
/// three nodes. `change` can modify the facts.
fn facts(change: impl FnOnce(&mut JobFacts)) -> JobFacts {
    let now = TICK + HOUR / 2;
    let mut facts = JobFacts {
        job: "report".into(),
        group: "billing".into(),
        asked: Some(TICK),
        zone: None,
        now,
        local: now,
        nodes: NodeFacts { voting: 3, needed: 2, total: 3, ..NodeFacts::default() },
        ledger: Some(LedgerFacts {
            leader: Some("oak".into()),
            waiting: None,
            job: Some(job(&Schedule::every(HOUR).unwrap())),
            nearest: None,
            others: 1,
            holders: Vec::new(),
            history: Vec::new(),
        }),
    };
    change(&mut facts);
    facts
}

fn ledger(facts: &mut JobFacts) -> &mut LedgerFacts {
    facts.ledger.as_mut().unwrap()
}

fn registered(facts: &mut JobFacts) -> &mut RegisteredJob {
    ledger(facts).job.as_mut().unwrap()
}

fn entry(end: RunOutcome, reason: &str) -> HistoryEntry {
    let (job, worker): (Arc<str>, Arc<str>) = ("report".into(), "elm".into());
    let entry = HistoryEntry::new(&job, TICK, RunCause::Scheduled, end, &worker, FencingToken::new(7));
    HistoryEntry { reason: reason.into(), ..entry }
}

fn run(tick: WallTime) -> RunStatus {
    let (worker, term) = ("elm".into(), FencingToken::new(7));
    RunStatus { tick, request: None, worker, term, orphaned: false, concurrency_key: None }
}

/// Checks the reason, and checks that the explanation contains a given part of its text, its evidence and its
/// advice.
#[track_caller]
fn answers(facts: &JobFacts, reason: Reason, [text, evidence, action]: [&str; 3]) -> Explanation {
    let answer = explain(facts);
    assert_eq!(answer.reason, reason, "{answer:#?}");
    assert!(answer.text.contains(text), "{answer:#?}");
    assert!(answer.evidence.join("\n").contains(evidence), "{answer:#?}");
    assert!(answer.action.contains(action), "{answer:#?}");
    answer
}

#[test]
fn it_ran() {
    for (end, started, text, action) in [
        (RunOutcome::Done, true, "the scheduled run of 2027-01-15T08:00:00Z succeeded", "nothing"),
        (RunOutcome::Failed, true, "failed after 1.2s: exit 1", "quorate jobs history report"),
        (
            RunOutcome::TimedOut,
            true,
            "failed after 1.2s: its last attempt timed out after 5.0s",
            "quorate jobs trigger report",
        ),
        (RunOutcome::Cancelled, true, "was cancelled", "quorate jobs trigger report"),
        (RunOutcome::Lost, false, "its end is not known", "quorate jobs trigger report"),
    ] {
        let started = started.then_some(TICK + SECOND);
        let took = Some(Duration::from_millis(1_200));
        let reason = if end == RunOutcome::TimedOut { "timed out after 5.0s" } else { "exit 1" };
        let found = HistoryEntry { started, took, ..entry(end, reason) };
        let facts = facts(|facts| ledger(facts).history.push(found.clone()));
        let answer = answers(&facts, Reason::Ran, [text, "of the worker elm in term 7", action]);
        assert_eq!((answer.entry, answer.next), (Some(found), Some(TICK + HOUR)));
    }
}

#[test]
fn a_run_counts_more_than_a_tick_that_was_skipped() {
    let skipped = HistoryEntry { term: FencingToken::new(9), ..entry(RunOutcome::SkippedMisfire, "") };
    for history in [
        vec![entry(RunOutcome::Failed, "first"), skipped.clone()],
        vec![skipped.clone(), entry(RunOutcome::Failed, "first")],
    ] {
        let facts = facts(|facts| ledger(facts).history = history);
        answers(&facts, Reason::Ran, ["failed", "", ""]);
    }
    let again = HistoryEntry { term: FencingToken::new(8), ..entry(RunOutcome::Done, "") };
    let facts = facts(|facts| ledger(facts).history = vec![again, entry(RunOutcome::Cancelled, "step-down")]);
    answers(&facts, Reason::Ran, ["succeeded", "in term 8", "nothing"]);
}

#[test]
fn a_late_start_is_evidence() {
    for (late, shown) in [(38 * SECOND, true), (SECOND / 2, false)] {
        let found = HistoryEntry { started: Some(TICK + late), ..entry(RunOutcome::Done, "") };
        let facts = facts(|facts| ledger(facts).history = vec![found]);
        let answer = explain(&facts);
        let is_shown =
            answer.evidence.iter().any(|line| line.starts_with("its first attempt began 38.0s after"));
        assert_eq!(is_shown, shown, "{answer:#?}");
    }
}

#[test]
fn misfire() {
    let found =
        HistoryEntry { until: Some(TICK + HOUR), ..entry(RunOutcome::SkippedMisfire, "the rule is `skip`") };
    for at in [TICK, TICK + HOUR] {
        let facts = facts(|facts| {
            (facts.asked, facts.now) = (Some(at), TICK + 3 * HOUR);
            ledger(facts).history.push(found.clone());
        });
        let answer = answers(
            &facts,
            Reason::Misfire,
            ["no leader ran it in time", "for all ticks from", "misfire.within"],
        );
        assert!(answer.action.starts_with("to run it for that time: "), "{answer:#?}");
        assert!(answer.evidence.iter().any(|line| line.contains("the rule is `skip`")), "{answer:#?}");
    }
}

#[test]
fn a_tick_that_was_skipped_needs_nothing_if_a_later_run_did_its_work() {
    let later = HistoryEntry { tick: TICK + HOUR, ..entry(RunOutcome::Done, "") };
    for skipped in [RunOutcome::SkippedMisfire, RunOutcome::SkippedOverlap, RunOutcome::SkippedPaused] {
        let facts = facts(|facts| {
            (facts.asked, facts.now) = (Some(TICK), TICK + 3 * HOUR);
            ledger(facts).history = vec![entry(skipped, ""), later.clone()];
        });
        let answer = explain(&facts);
        assert!(answer.action.starts_with("nothing, if the later run did its work; else: "), "{answer:#?}");
        assert!(answer.evidence.iter().any(|line| line.starts_with("it has run since: ")), "{answer:#?}");
    }
}

#[test]
fn overlap() {
    let facts =
        facts(|facts| ledger(facts).history.push(entry(RunOutcome::SkippedOverlap, "a run was active")));
    let backfill = "backfill report --from 2027-01-15T08:00:00Z --until 2027-01-15T08:00:01Z";
    answers(&facts, Reason::Overlap, ["a run was active", "skipped-overlap", backfill]);
}

#[test]
fn cancelled_before_it_started() {
    let facts = facts(|facts| ledger(facts).history.push(entry(RunOutcome::Cancelled, "on request of me")));
    answers(&facts, Reason::Cancelled, ["before it started: on request of me", "cancelled", "backfill"]);
}

#[test]
fn paused() {
    let pause = |at| Paused { by: "ann@host".into(), at, ..Paused::default() };
    let facts_of = |asked, at| {
        facts(|facts| {
            facts.asked = asked;
            registered(facts).row.paused = Some(pause(at));
        })
    };
    let parts = ["by ann@host since 2027-01-15T07:00:00Z", "", "quorate jobs resume report"];
    let answer = answers(&facts_of(Some(TICK), TICK - HOUR), Reason::Paused, parts);
    assert_eq!((answer.tick, answer.next), (Some(TICK), None));
    answers(&facts_of(None, TICK - HOUR), Reason::Paused, parts);
    answers(&facts_of(Some(TICK + HOUR), TICK - HOUR), Reason::Paused, parts);
    let limited = |until: WallTime, asked| {
        facts(|facts| {
            facts.asked = asked;
            let (reason, until) = (Some("the disk is full".into()), Some(until));
            registered(facts).row.paused = Some(Paused { reason, until, ..pause(TICK - HOUR) });
        })
    };
    let parts = ["until 2027-01-15T10:00:00Z: the disk is full", "", "resume"];
    let answer = answers(&limited(TICK + 2 * HOUR, None), Reason::Paused, parts);
    assert_eq!(answer.next, Some(TICK + 2 * HOUR), "a tick at the end of the pause runs");
    let after = limited(TICK + 2 * HOUR, Some(TICK + 2 * HOUR));
    assert_eq!(explain(&after).reason, Reason::Schedule);
    let over = limited(TICK + SECOND, None);
    assert_eq!(explain(&over).reason, Reason::Paused, "the tick was in the pause that has ended");
    let later = facts_of(Some(TICK), TICK + SECOND);
    assert_eq!(explain(&later).reason, Reason::NoRecord, "the pause began after the tick");
    let earlier = facts(|facts| {
        ledger(facts).history.push(entry(RunOutcome::SkippedPaused, "the job was paused by ann"));
    });
    answers(&earlier, Reason::Paused, ["the job was paused by ann", "skipped-paused", "backfill"]);
}

#[test]
fn frozen() {
    let facts_of = |asked, from: WallTime, until: WallTime| {
        facts(|facts| {
            facts.asked = asked;
            let reason = Some("a migration".into());
            let freeze = Paused { by: "ann@host".into(), at: from, reason, until: Some(until) };
            registered(facts).frozen = Some(freeze);
        })
    };
    let parts = ["is frozen by ann@host since 2027-01-15T07:00:00Z", "", "quorate unfreeze"];
    let answer = answers(&facts_of(None, TICK - HOUR, TICK + 2 * HOUR), Reason::Frozen, parts);
    assert_eq!(answer.next, Some(TICK + 2 * HOUR), "a tick at the end of the freeze runs");
    assert!(answer.text.ends_with("until 2027-01-15T10:00:00Z: a migration"), "{}", answer.text);
    answers(&facts_of(Some(TICK), TICK - HOUR, TICK + 2 * HOUR), Reason::Frozen, parts);
    let both = facts(|facts| {
        let job = registered(facts);
        job.row.paused = Some(Paused { by: "bob".into(), at: TICK - HOUR, ..Paused::default() });
        job.frozen = Some(Paused { until: Some(TICK + HOUR), ..job.row.paused.clone().unwrap() });
    });
    let answer = answers(&both, Reason::Frozen, ["frozen by bob", "stays paused afterwards", "unfreeze"]);
    assert_eq!(answer.next, None, "the pause has no end");
    let over = facts_of(Some(TICK), TICK - 2 * HOUR, TICK - HOUR);
    assert_eq!(explain(&over).reason, Reason::NoRecord, "the freeze ended before the tick");
    let later = facts_of(Some(TICK), TICK + SECOND, TICK + HOUR);
    assert_eq!(explain(&later).reason, Reason::NoRecord, "the freeze began after the tick");
    let earlier = facts(|facts| {
        let why = "the group was frozen by ann: a migration";
        ledger(facts).history.push(entry(RunOutcome::SkippedFrozen, why));
    });
    answers(&earlier, Reason::Frozen, ["because the group was frozen by ann", "skipped-frozen", "backfill"]);
}

#[test]
fn no_leader() {
    for asked in [None, Some(TICK)] {
        let facts = facts(|facts| {
            facts.asked = asked;
            ledger(facts).leader = None;
        });
        let parts = ["no worker leads group \"billing\"", "3 of 3 nodes vote, 2 required", "quorate run"];
        let answer = answers(&facts, Reason::NoLeader, parts);
        assert_eq!(answer.tick, Some(TICK));
    }
    let facts = facts(|facts| {
        ledger(facts).leader = None;
        registered(facts).running.push(run(TICK));
    });
    answers(&facts, Reason::NoLeader, ["", "was started by elm", ""]);
}

#[test]
fn no_quorum() {
    let reasons = vec!["b: connection refused".to_owned()];
    let nodes =
        || NodeFacts { voting: 1, needed: 2, total: 3, reasons: reasons.clone(), ..NodeFacts::default() };
    let unread = facts(|facts| (facts.nodes, facts.ledger) = (nodes(), None));
    answers(&unread, Reason::NoQuorum, ["1 of 3 answered, 2 required", "b: connection refused", "doctor"]);
    let quarantined = facts(|facts| {
        facts.nodes = nodes();
        ledger(facts).leader = None;
    });
    answers(&quarantined, Reason::NoQuorum, ["too few nodes vote", "1 of 3 nodes vote", "quarantine"]);
    let led = facts(|facts| facts.nodes = nodes());
    assert_eq!(explain(&led).reason, Reason::NoRecord, "a leader leads: the nodes vote for it");
    // A run has perhaps ended, and the nodes refuse the record of its end.
    let unrecorded = facts(|facts| {
        (facts.asked, facts.nodes) = (None, nodes());
        registered(facts).running.push(run(TICK));
    });
    let parts = ["so oak starts no run", "by elm; its end cannot be recorded before", "doctor"];
    answers(&unrecorded, Reason::NoQuorum, parts);
    // The nodes extend the leader's lease, and refuse what it writes.
    for (asked, now) in [(None, TICK + HOUR / 2), (Some(TICK), TICK + SECOND)] {
        let refusing = facts(|facts| {
            let reasons = vec!["b: refuses writes: OOM".to_owned()];
            (facts.asked, facts.now, facts.nodes) = (asked, now, NodeFacts { reasons, ..nodes() });
        });
        answers(&refusing, Reason::NoQuorum, ["so oak starts no run", "refuses writes: OOM", "doctor"]);
    }
}

#[test]
fn incomplete() {
    let waiting = || Some(Waiting { why: "the records wait for c".to_owned(), fix: "replace it" });
    let reasons = vec!["c: connection refused".to_owned()];
    for (asked, now) in [(None, TICK + HOUR / 2), (Some(TICK), TICK + SECOND)] {
        let facts = facts(|facts| {
            (facts.asked, facts.now, facts.nodes.reasons) = (asked, now, reasons.clone());
            ledger(facts).waiting = waiting();
        });
        answers(
            &facts,
            Reason::Incomplete,
            ["the records wait for c", "c: connection refused", "replace it"],
        );
    }
    let leaderless = facts(|facts| {
        facts.asked = None;
        (ledger(facts).waiting, ledger(facts).leader) = (waiting(), None);
    });
    answers(&leaderless, Reason::NoLeader, ["no worker leads", "", ""]);
    let recorded = facts(|facts| {
        ledger(facts).waiting = waiting();
        ledger(facts).history.push(entry(RunOutcome::Done, ""));
    });
    answers(&recorded, Reason::Ran, ["succeeded", "", ""]);
}

#[test]
fn clock() {
    let behind = facts(|facts| {
        (facts.asked, facts.local) = (Some(TICK + HOUR), facts.now + HOUR);
    });
    let parts = ["3600.0s behind this machine's", "the quorum's clock: 2027-01-15T08:30:00Z", "NTP"];
    answers(&behind, Reason::Clock, parts);
    // The tick of 08:00 ran, and then the clocks were set back from 09:10 to 08:30.
    let set_back = facts(|facts| {
        (facts.asked, facts.local) = (None, facts.now);
        registered(facts).decided = Some(facts.now + HOUR * 2 / 3);
        ledger(facts).history.push(entry(RunOutcome::Done, ""));
    });
    let parts =
        ["2400s behind the time up to which", "decided on up to: 2027-01-15T09:10:00Z", "jobs trigger"];
    let answer = answers(&set_back, Reason::Clock, parts);
    assert_eq!(answer.next, Some(TICK + 2 * HOUR), "the tick of 09:00 has run");
    let nodes = |far_apart| NodeFacts {
        voting: 1,
        by_clock: 1,
        far_apart,
        needed: 2,
        total: 3,
        reasons: vec!["b: stepped".into()],
    };
    for (leads, far_apart) in [(false, 0), (false, 1), (true, 0)] {
        let stepped = facts(|facts| {
            (facts.asked, facts.nodes) = (None, nodes(far_apart));
            ledger(facts).leader.take_if(|_| !leads);
        });
        answers(&stepped, Reason::Clock, ["clocks differ or have stepped", "b: stepped", "NTP"]);
    }
    // A node whose clock is far off still serves the leader. So the leader runs the job, or stands still.
    let far_apart = facts(|facts| {
        (facts.asked, facts.nodes) = (None, nodes(1));
        ledger(facts).history.push(entry(RunOutcome::Done, ""));
    });
    answers(&far_apart, Reason::Ran, ["succeeded", "", "nothing"]);
    let set_back = facts(|facts| {
        (facts.asked, facts.local, facts.nodes) = (None, facts.now, nodes(1));
        registered(facts).decided = Some(facts.now + HOUR * 2 / 3);
    });
    answers(&set_back, Reason::Clock, ["were set back: they are 2400s", "decided on up to", "NTP"]);
}

#[test]
fn a_tick_before_the_end_of_a_freeze_is_explained_by_its_entry() {
    // The ticks of the row count from the end of the freeze, and no tick has been due since.
    let thawed = facts(|facts| {
        facts.asked = None;
        registered(facts).row.since = facts.now - SECOND;
        ledger(facts).history.push(entry(RunOutcome::SkippedFrozen, "the group was frozen by ann"));
    });
    let answer = answers(&thawed, Reason::Frozen, ["frozen by ann", "", "backfill"]);
    assert_eq!(answer.tick, Some(TICK));
    // What was requested is no tick.
    let requested = facts(|facts| {
        facts.asked = None;
        registered(facts).row.since = facts.now - SECOND;
        let cause = RunCause::Triggered { id: RequestId::from_u128(1) };
        ledger(facts).history.push(HistoryEntry { cause, ..entry(RunOutcome::Done, "") });
    });
    answers(&requested, Reason::Schedule, ["it has not been due yet", "", ""]);
}

#[test]
fn a_tick_that_is_older_than_the_history_may_have_run() {
    let trimmed = facts(|facts| {
        facts.asked = Some(TICK - HOUR);
        registered(facts).row.since = facts.now - SECOND;
        ledger(facts).history.push(entry(RunOutcome::Done, ""));
    });
    let parts = ["the history begins later", "or a freeze ended then", "if it did not run"];
    answers(&trimmed, Reason::NoRecord, parts);
}

#[test]
fn schedule() {
    let between = facts(|facts| facts.asked = Some(TICK + SECOND));
    let answer = answers(
        &between,
        Reason::Schedule,
        ["not due at 2027-01-15T08:00:01Z", "the time after: 2027-01-15T09:00", "quorate jobs next report"],
    );
    assert_eq!(answer.next, Some(TICK + HOUR));
    assert!(answer.evidence.join("\n").contains("the time before: 2027-01-15T08:00:00Z"), "{answer:#?}");
    let later = facts(|facts| facts.asked = Some(TICK + 2 * HOUR));
    answers(&later, Reason::Schedule, ["2027-01-15T10:00:00Z, which has not come yet", "every 3600s", ""]);
    let new = facts(|facts| {
        facts.asked = None;
        registered(facts).row.since = TICK + SECOND;
    });
    answers(&new, Reason::Schedule, ["it has not been due yet", "the time after: 2027-01-15T09:00", ""]);
    let requested = facts(|facts| {
        facts.asked = Some(TICK + SECOND);
        let cause = RunCause::Triggered { id: RequestId::from_u128(1) };
        let found = HistoryEntry { tick: TICK + HOUR / 3, cause, ..entry(RunOutcome::Failed, "exit 4") };
        ledger(facts).history.push(found);
    });
    answers(
        &requested,
        Reason::Schedule,
        ["it is not due at", "its last outcome: 2027-01-15T08:20:00Z failed (exit 4), triggered", ""],
    );
    let after_end = facts(|facts| {
        ledger(facts).job = Some(job(&crate::scheduler::schedule::Schedule::delay(HOUR).unwrap()));
        registered(facts).row.ended = Some(TICK);
    });
    let answer = answers(&after_end, Reason::Schedule, ["it is not due at", "", ""]);
    assert_eq!(answer.next, Some(TICK + HOUR), "an hour after the last end");
}

#[test]
fn not_registered() {
    for asked in [None, Some(TICK)] {
        let unknown = facts(|facts| {
            facts.asked = asked;
            let ledger = ledger(facts);
            (ledger.job, ledger.nearest) = (None, Some("reports".into()));
        });
        answers(
            &unknown,
            Reason::NotRegistered,
            ["no job of this name", "a similar name is \"reports\"", "jobs list"],
        );
    }
    let later = facts(|facts| registered(facts).row.since = TICK + SECOND);
    answers(&later, Reason::NotRegistered, ["count from 2027-01-15T08:00:01Z", "every 3600s", "backfill"]);
    let removed = facts(|facts| {
        ledger(facts).job = None;
        ledger(facts).history.push(entry(RunOutcome::Done, ""));
    });
    answers(&removed, Reason::Ran, ["succeeded", "", ""]);
}

#[test]
fn running() {
    for asked in [None, Some(TICK)] {
        let active = facts(|facts| {
            facts.asked = asked;
            registered(facts).running.push(run(TICK));
        });
        answers(&active, Reason::Running, ["running on elm", "under term 7", "jobs cancel report"]);
    }
    let requested = RunStatus { request: Some(RequestId::from_u128(1)), ..run(TICK) };
    let only_requested = |asked| {
        facts(|facts| {
            facts.asked = asked;
            registered(facts).running.push(requested.clone());
        })
    };
    answers(
        &only_requested(None),
        Reason::Running,
        ["running on elm", "it was requested", "jobs cancel report"],
    );
    let of_the_tick = explain(&only_requested(Some(TICK)));
    assert_eq!(of_the_tick.reason, Reason::NoRecord, "the run of a request is no run of the tick");
    let both = facts(|facts| {
        registered(facts)
            .running
            .extend([requested.clone(), RunStatus { worker: "ash".into(), ..run(TICK) }]);
    });
    answers(&both, Reason::Running, ["running on ash", "", ""]);
    let elsewhere = facts(|facts| {
        ledger(facts).leader = None;
        registered(facts).row.placement = Placement::AnyWorker;
        registered(facts).running.push(run(TICK));
    });
    answers(&elsewhere, Reason::Running, ["running on elm", "", ""]);
}

#[test]
fn waiting() {
    let soon = facts(|facts| facts.now = TICK + 59 * SECOND);
    answers(&soon, Reason::Waiting, ["up to 60s after its time", "the quorum's clock", "ask again"]);
    let open = facts(|facts| registered(facts).waiting.push(TICK));
    answers(&open, Reason::Waiting, ["no worker has started it", "", "start a worker"]);
}

#[test]
fn no_record() {
    answers(
        &facts(|_| {}),
        Reason::NoRecord,
        ["the nodes keep no outcome", "the history has no entries", "logs"],
    );
    let newer = HistoryEntry { tick: TICK + SECOND, ..entry(RunOutcome::Done, "") };
    let pruned = facts(|facts| ledger(facts).history.push(newer));
    answers(&pruned, Reason::NoRecord, ["", "older entries were removed", "`history` keeps more"]);
}

#[test]
fn without_a_time_the_latest_tick_counts() {
    let facts = facts(|facts| {
        facts.asked = None;
        ledger(facts).history.push(entry(RunOutcome::Failed, "exit 2"));
    });
    let answer = answers(&facts, Reason::Ran, ["exit 2", "", ""]);
    assert_eq!((answer.tick, answer.next), (Some(TICK), Some(TICK + HOUR)));
}

#[test]
fn names_from_outside_cannot_control_a_terminal() {
    let facts = facts(|facts| {
        facts.job = "a\u{1b}[2Jb".into();
        facts.group = "g\u{1b}".into();
        let ledger = ledger(facts);
        (ledger.leader, ledger.nearest) = (Some("w\u{1b}".into()), Some("n\u{1b}".into()));
        ledger.job = None;
    });
    let answer = explain(&facts);
    assert!(!format!("{} {:?} {}", answer.text, answer.evidence, answer.action).contains('\u{1b}'));
    assert!(!answer.evidence.join("").contains('\u{1b}'), "{answer:#?}");
}
