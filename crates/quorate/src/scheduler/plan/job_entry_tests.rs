use crate::{
    ledger::Answered,
    node::{FencingToken, Record},
    scheduler::{Delivery, Misfire, Paused, every, store::FOR_EVER, store::saved_state::StateRow},
};
use {
    super::*,
    crate::scheduler::store::snapshot::tests::{SECOND, at, node, tick_record},
};

fn job(seconds: u32) -> Arc<Job> {
    let job = Job::new("j", every(seconds * SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
    Arc::new(job.misfire(Misfire::run_all(100 * SECOND)))
}

fn row(term: u64, row: &JobRow) -> (Arc<str>, Record) {
    let value = row.to_value();
    (JobRow::key("j"), Record { at: FOR_EVER.as_micros(), term: FencingToken::new(term), last: false, value })
}

/// Returns the row of a new job, written by a leader that found the job at `since`.
fn written(job: &Arc<Job>, since: u64) -> JobRow {
    let new = find(Arc::clone(job), &sealed(vec![node(at(0), vec![]); 2]), None, None, at(since));
    assert!(new.is_new && new.write);
    new.entry.row
}

fn sealed(answers: Vec<Answered>) -> LedgerSnapshot {
    LedgerSnapshot::new(answers, 2, SECOND)
}

fn nodes(rows: &[Option<(u64, JobRow)>]) -> LedgerSnapshot {
    let records = |found: &Option<(u64, JobRow)>| found.iter().map(|(term, is)| row(*term, is)).collect();
    sealed(rows.iter().map(|found| node(at(0), records(found))).collect())
}

#[test]
fn an_unknown_job_begins_now_and_a_row_that_all_nodes_have_is_not_written_again() {
    let new = written(&job(1), 9);
    assert_eq!((new.since, new.rev), (at(9), 1));
    let all = nodes(&[Some((1, new.clone())), Some((4, new.clone())), Some((1, new.clone()))]);
    let found = find(job(1), &all, None, None, at(50));
    assert!(!found.is_new && !found.write, "whichever leader wrote it");
    assert_eq!(found.entry.row, new);
}

#[test]
fn the_row_of_one_node_counts_and_is_written_to_the_others() {
    let found = find(job(1), &nodes(&[None, Some((1, written(&job(1), 3))), None]), None, None, at(9));
    assert!(!found.is_new && found.write);
    assert_eq!(found.entry.row.since, at(3));
}

#[test]
fn of_several_rows_the_highest_term_counts_with_the_earliest_beginning() {
    let paused = JobRow {
        paused: Some(Paused { by: "me".into(), at: at(20), ..Paused::default() }),
        rev: 2,
        ..written(&job(1), 7)
    };
    let rows = [Some((5, written(&job(1), 7))), Some((2, written(&job(1), 3))), Some((6, paused))];
    let found = find(job(1), &nodes(&rows), None, None, at(30));
    assert_eq!(found.entry.row.since, at(3));
    assert!(found.entry.plan().is_paused() && found.write && found.entry.plan().next().is_none());
}

#[test]
fn rows_of_older_versions_count_as_the_same_schedule() {
    let value: Arc<str> = at(3).as_micros().to_string().into();
    let old = Record { at: FOR_EVER.as_micros(), term: FencingToken::new(1), last: false, value };
    let all = sealed(vec![node(at(0), vec![(JobRow::key("j"), old)]); 3]);
    let found = find(job(1), &all, None, None, at(9));
    assert!(!found.is_new && found.write, "it is written as rows are now");
    assert_eq!((found.entry.row.since, &*found.entry.row.schedule), (at(3), "every 1s"));
}

#[test]
fn another_schedule_counts_from_now_on_and_unfinished_runs_still_run() {
    let old = written(&job(1), 3);
    let mut records = vec![row(1, &old), tick_record(11, 1, false), tick_record(10, 1, true)];
    records.sort_by(|a, b| a.0.cmp(&b.0));
    let all = sealed(vec![node(at(0), records); 2]);
    let mut moved = find(job(7), &all, None, None, at(13));
    assert_eq!((moved.entry.row.since, moved.entry.row.rev), (at(13), 2));
    let (start, _) = moved.entry.plan_mut().start(at(13));
    assert_eq!(start.map(|start| start.tick), Some(at(11)), "at least once");
    let next = moved.entry.plan().next().unwrap();
    assert!(next > at(13) && next <= at(20), "no tick from before is caught up on");
    let once = Arc::new((*job(7)).clone().delivery(Delivery::AtMostOnce));
    let mut moved = find(once, &all, None, None, at(13));
    assert_eq!(moved.closes.iter().map(|close| close.run.tick).collect::<Vec<_>>(), [at(11)]);
    assert!(moved.entry.plan_mut().start(at(13)).0.is_none());
}

#[test]
fn a_row_of_an_older_version_gets_its_window() {
    let old = JobRow { window: None, ..written(&job(1), 3) };
    let found = find(job(1), &nodes(&[Some((1, old.clone())), Some((1, old))]), None, None, at(9));
    assert!(found.write && found.entry.row.since == at(3));
    assert_eq!(found.entry.row.window, Some(100 * SECOND));
}

#[test]
fn a_removed_job_starts_afresh() {
    let old = written(&job(1), 3);
    let (key, record) = row(1, &old);
    let closed = sealed(vec![node(at(0), vec![(key, Record { at: at(5).as_micros(), ..record })]); 2]);
    let found = find(job(1), &closed, None, None, at(9));
    assert!(found.is_new);
    assert_eq!(found.entry.row.since, at(9));
    let again = find(
        job(1),
        &nodes(&[Some((1, old.clone())), Some((1, old.clone()))]),
        None,
        removed(old, at(5)),
        at(9),
    );
    assert!(!again.is_new && again.write);
    assert_eq!(again.entry.row.since, at(9), "in the same term");
}

#[test]
fn a_node_that_was_away_does_not_restore_a_removed_job() {
    let old = JobRow {
        paused: Some(Paused { by: "me".into(), at: at(4), ..Paused::default() }),
        ..written(&job(1), 3)
    };
    let closed = |term, rev| {
        let (key, record) = row(term, &JobRow { rev, ..old.clone() });
        vec![(key, Record { at: at(5).as_micros(), ..record })]
    };
    let away = || node(at(0), vec![row(1, &old)]);
    let found = find(job(1), &sealed(vec![node(at(0), closed(2, 2)), away()]), None, None, at(9));
    assert!(found.is_new && found.entry.row.paused.is_none() && found.entry.row.since == at(9));
    // Later the job was added again. One node still has the row from before the removal. Its earlier
    // `since` must not count.
    let back = JobRow { since: at(8), rev: 3, paused: None, ..old.clone() };
    let nodes = vec![node(at(0), vec![row(2, &back)]), node(at(0), closed(2, 2)), away()];
    let found = find(job(1), &sealed(nodes), None, None, at(9));
    assert!(!found.is_new && found.entry.row.since == at(8) && found.entry.row.paused.is_none());
}

fn pause(until: Option<u64>) -> Paused {
    let (reason, until) = (Some("the disk is full".into()), until.map(at));
    Paused { by: "me".into(), at: at(20), reason, until }
}

#[test]
fn a_pause_ends_at_its_time_and_a_tick_at_that_time_is_due() {
    let all = nodes(&[Some((1, written(&job(1), 7))), Some((1, written(&job(1), 7)))]);
    let mut entry = find(job(1), &all, None, None, at(20)).entry;
    entry.plan_mut().plan_due(&all, at(20));
    let requests = [1, 2, 3].map(RequestId::from_u128);
    assert!(entry.pause(requests[0], pause(Some(25))).is_some());
    assert_eq!(
        (entry.wake(), entry.is_paused_at(at(24)), entry.is_paused_at(at(25))),
        (Some(at(25)), true, false)
    );
    assert_eq!(entry.pause(requests[0], pause(Some(90))), None, "the same request again");
    let plain = Paused { reason: None, until: None, ..pause(None) };
    assert_eq!(entry.pause(requests[1], plain), None, "the pause keeps its reason and its end");
    assert!(entry.pause(requests[1], pause(Some(30))).is_some(), "another end");
    assert_eq!(
        entry.row().paused.as_ref().map(|paused| (paused.at, paused.until)),
        Some((at(20), Some(at(30))))
    );
    let rev = entry.row().rev;
    assert_eq!(entry.end_pause(at(29)), None);
    let (paused, span) = entry.end_pause(at(32)).unwrap();
    assert_eq!(
        (paused.until, span),
        (Some(at(30)), Some((at(21), at(29)))),
        "the tick at the end is not left out"
    );
    assert_eq!((entry.row().paused.as_ref(), entry.row().rev), (None, rev + 1));
    assert_eq!(entry.plan().next(), Some(at(30)));
    assert!(entry.row().since < at(30) && entry.row().since > at(29));
    assert_eq!(entry.end_pause(at(40)), None);
    assert!(entry.pause(requests[2], pause(None)).is_some());
    assert_eq!(entry.end_pause(at(10_000)), None, "a pause without an end");
}

#[test]
fn a_leader_that_comes_after_the_end_of_a_pause_ends_it() {
    let row = JobRow { paused: Some(pause(Some(25))), rev: 2, ..written(&job(1), 7) };
    let all = nodes(&[Some((1, row.clone())), Some((1, row))]);
    let mut entry = find(job(1), &all, Some(at(22)), None, at(28)).entry;
    assert_eq!(entry.wake(), Some(at(25)), "its timer is due at once");
    let (_, span) = entry.end_pause(at(28)).unwrap();
    assert_eq!(span, Some((at(21), at(24))));
    entry.plan_mut().plan_due(&all, at(28));
    assert_eq!(entry.plan_mut().start(at(28)).0.map(|run| run.tick), Some(at(25)), "the first catch-up run");
}

fn removed(row: JobRow, planned: WallTime) -> Option<RemovedJob> {
    let state = SavedState::new("j", StateRow::default());
    Some(RemovedJob { row, planned, state, closed: planned })
}

#[test]
fn a_job_that_comes_back_in_one_term_begins_after_the_ticks_that_were_planned() {
    let old = JobRow { ended: Some(at(4)), ..written(&job(1), 3) };
    let (rev, none) = (old.rev, nodes(&[None, None]));
    let again = find(job(1), &none, None, removed(old.clone(), at(12)), at(9));
    assert_eq!(again.entry.plan().next(), Some(at(13)), "though the clock has stepped back");
    assert!(again.entry.row.rev > rev && again.entry.row.since == at(12));
    let chain = Job::new("j", crate::scheduler::delay(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
    let again = find(Arc::new(chain), &none, None, removed(old, at(12)), at(9));
    assert!(again.entry.plan().next() >= Some(at(12)), "{:?}", again.entry.plan().next());
}

#[test]
fn another_placement_counts_from_now_on_and_unfinished_runs_still_run() {
    let any_worker = |job: Arc<Job>| Arc::new((*job).clone().placement(Placement::AnyWorker));
    let old = written(&any_worker(job(1)), 3);
    assert!(old.any_worker && old.since == at(3));
    let all = nodes(&[Some((1, old.clone())), Some((1, old.clone()))]);
    let moved = find(job(1), &all, Some(at(12)), None, at(13));
    assert_eq!(moved.entry.row.since, at(13));
    assert_eq!(moved.entry.plan().next(), Some(at(14)), "ticks of the other placement are not caught up on");
    let same = find(any_worker(job(1)), &all, Some(at(12)), None, at(13));
    assert_eq!(same.entry.row.since, at(3));
    // An unfinished run still runs after a change in the opposite direction, even if an earlier leader
    // has already written the new placement.
    for row_before in [written(&job(1), 3), old] {
        let records = vec![row(1, &row_before), tick_record(11, 1, false)];
        let all = sealed(vec![node(at(0), records); 2]);
        let mut moved = find(any_worker(job(1)), &all, None, None, at(13));
        assert_eq!(
            moved.entry.plan_mut().start(at(13)).0.map(|start| start.tick),
            Some(at(11)),
            "at least once"
        );
        let once = Arc::new((*any_worker(job(1))).clone().delivery(Delivery::AtMostOnce));
        assert_eq!(find(once, &all, None, None, at(13)).closes.len(), 1);
    }
}
