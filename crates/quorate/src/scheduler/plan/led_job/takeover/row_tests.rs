use super::{super::pause::EndedPause, *};
use crate::{
    ledger::FOUNDED,
    node::FencingToken,
    scheduler::{
        alert::AlertKind,
        job::RequestId,
        plan::active_run::Withdrawal,
        policy::{Delivery, Misfire, Placement},
        schedule::Schedule,
        store::{
            Paused, RunRecord,
            snapshot::tests::{SECOND, at, snapshot, tick_record},
        },
    },
};

fn job(seconds: u32) -> Arc<Job> {
    let job = Job::new("j", Schedule::every(seconds * SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
    Arc::new(job.misfire(Misfire::run_all(100 * SECOND)))
}

fn record(row: &JobRow) -> (Arc<str>, Arc<str>) {
    (JobRow::key("j"), row.to_value())
}

fn stored(row: &JobRow) -> LedgerSnapshot {
    snapshot([record(row)])
}

/// Returns the row of a new job, written by a leader that found the job at `since`.
fn written(job: &Arc<Job>, since: u64) -> JobRow {
    let new = find(Arc::clone(job), &snapshot([]), None, None, at(since));
    assert!(new.is_new && new.write);
    new.led.row
}

#[test]
fn an_unknown_job_begins_now_and_a_stored_row_is_not_written_again() {
    let new = written(&job(1), 9);
    assert_eq!(new.since, at(9));
    let found = find(job(1), &stored(&new), None, None, at(50));
    assert!(!found.is_new && !found.write, "whichever leader wrote it");
    assert_eq!(found.led.row, new);
    assert_eq!(found.window, 100 * SECOND);
}

#[test]
fn a_stored_job_needs_no_row_and_its_ticks_count_from_its_definition_on() {
    let stored_at = |seconds| Arc::new(Job { stored: Some(at(seconds)), ..Job::clone(&job(1)) });
    let found = find(stored_at(9), &snapshot([]), None, None, at(50));
    assert!(!found.is_new && !found.write, "the next leader finds the same");
    assert_eq!((found.led.row.since, found.window), (at(9), 100 * SECOND));
    let founded = snapshot([(FOUNDED.into(), at(20).as_micros().to_string().into())]);
    let found = find(stored_at(9), &founded, None, None, at(50));
    assert_eq!(found.led.row.since, at(9), "ticks before the founding may have run, and are not forgotten");
    let unreadable = snapshot([(JobRow::key("j"), "{".into())]);
    assert!(find(stored_at(9), &unreadable, None, None, at(50)).write);
    let paused = JobRow { paused: Some(pause(None)), ..written(&job(1), 7) };
    let found = find(stored_at(9), &stored(&paused), None, None, at(50));
    assert!(found.led.is_paused() && found.led.row.since == at(7), "a row counts");
    let part = Arc::new(stored_at(9).part("w"));
    assert!(find(part, &snapshot([]), None, None, at(50)).is_new, "a part has no definition of its own");
}

#[test]
fn a_pause_is_taken_over_with_the_row() {
    let row = JobRow { paused: Some(pause(None)), ..written(&job(1), 7) };
    let found = find(job(1), &stored(&row), None, None, at(30));
    assert_eq!(found.led.row.since, at(7));
    assert!(found.led.is_paused() && !found.write && found.led.next().is_none());
}

#[test]
fn a_row_that_cannot_be_read_is_written_again_for_a_new_job() {
    let found = find(job(1), &snapshot([(JobRow::key("j"), "{".into())]), None, None, at(9));
    assert!(found.is_new && found.write && found.unreadable.is_some());
    assert_eq!(found.led.row.since, at(9));
}

#[test]
fn another_schedule_counts_from_now_on_and_unfinished_runs_still_run() {
    let old = written(&job(1), 3);
    let all = snapshot([record(&old), tick_record(11, 1, false), tick_record(10, 1, true)]);
    let mut moved = find(job(7), &all, None, None, at(13));
    assert_eq!((moved.led.row.since, moved.write), (at(13), true));
    let (start, _) = moved.led.start(at(13));
    assert_eq!(start.map(|start| start.tick), Some(at(11)), "at least once");
    let next = moved.led.next().unwrap();
    assert!(next > at(13) && next <= at(20), "no tick from before is caught up on");
    let once = Arc::new((*job(7)).clone().delivery(Delivery::AtMostOnce));
    let mut moved = find(once, &all, None, None, at(13));
    assert_eq!(moved.lost.iter().map(|run| run.tick).collect::<Vec<_>>(), [at(11)]);
    assert!(moved.led.start(at(13)).0.is_none());
}

#[test]
fn a_row_without_a_window_gets_it() {
    let old = JobRow { window: None, ..written(&job(1), 3) };
    let found = find(job(1), &stored(&old), None, None, at(9));
    assert!(found.write && found.led.row.since == at(3));
    assert_eq!(found.led.row.window, Some(100 * SECOND));
}

#[test]
fn a_job_that_was_removed_in_this_term_begins_again_when_it_is_added() {
    let old = written(&job(1), 3);
    let again = find(job(1), &stored(&old), None, removed(old.clone(), at(5)), at(9));
    assert!(!again.is_new && again.write);
    assert_eq!(again.led.row.since, at(9));
}

fn pause(until: Option<u64>) -> Paused {
    let (reason, until) = (Some("the disk is full".into()), until.map(at));
    Paused { by: "me".into(), at: at(20), reason, until }
}

#[test]
fn a_pause_ends_at_its_time_and_a_tick_at_that_time_is_due() {
    let all = stored(&written(&job(1), 7));
    let mut entry = find(job(1), &all, None, None, at(20)).led;
    entry.plan_due(&all, at(20));
    let requests = [1, 2, 3].map(RequestId::from_u128);
    assert!(entry.pause(requests[0], pause(Some(25))).is_some());
    assert_eq!(
        (entry.wake(), entry.left_out_at(at(24)).is_some(), entry.left_out_at(at(25)).is_some()),
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
    assert_eq!(entry.end_pause(at(29)), None);
    let EndedPause { paused, span, .. } = entry.end_pause(at(32)).unwrap();
    assert_eq!(
        (paused.until, span),
        (Some(at(30)), Some((at(21), at(29)))),
        "the tick at the end is not left out"
    );
    assert_eq!(entry.row().paused, None);
    assert_eq!(entry.next(), Some(at(30)));
    assert!(entry.row().since < at(30) && entry.row().since > at(29));
    assert_eq!(entry.end_pause(at(40)), None);
    assert!(entry.pause(requests[2], pause(None)).is_some());
    assert_eq!(entry.end_pause(at(10_000)), None, "a pause without an end");
}

#[test]
fn a_leader_that_comes_after_the_end_of_a_pause_ends_it() {
    let row = JobRow { paused: Some(pause(Some(25))), ..written(&job(1), 7) };
    let all = stored(&row);
    let mut entry = find(job(1), &all, Some(at(22)), None, at(28)).led;
    assert_eq!(entry.wake(), Some(at(25)), "its timer is due at once");
    let EndedPause { span, .. } = entry.end_pause(at(28)).unwrap();
    assert_eq!(span, Some((at(21), at(24))));
    entry.plan_due(&all, at(28));
    assert_eq!(entry.start(at(28)).0.map(|run| run.tick), Some(at(25)), "the first catch-up run");
}

/// The next leader reads the row, and would otherwise run catch-ups for ticks that were skipped during the pause.
#[test]
fn the_row_has_the_end_of_a_pause_and_the_change_of_a_schedule() {
    let request = RequestId::from_u128(1);
    let old = written(&job(1), 7);
    let since = |row: &JobRow| find(job(1), &stored(row), None, None, at(40)).led.row.since;
    let paused = |until| {
        let mut entry = find(job(1), &stored(&old), None, None, at(20)).led;
        entry.pause(request, pause(until)).unwrap();
        entry
    };
    assert_eq!(since(paused(None).row()), at(7), "the pause alone changes nothing");
    let mut ended = paused(Some(30));
    ended.end_pause(at(32)).unwrap();
    assert!(since(ended.row()) > at(29));
    let mut resumed = paused(None);
    resumed.resume(RequestId::from_u128(2), at(33)).unwrap();
    assert_eq!(since(resumed.row()), at(33));
    let mut other = find(job(1), &stored(&old), None, None, at(20)).led;
    other.replace(job(2), at(20)).unwrap();
    other.replace(job(1), at(25)).unwrap();
    assert_eq!(since(other.row()), at(25), "it had another schedule in between");
}

fn removed(row: JobRow, planned: WallTime) -> Option<RemovedJob> {
    Some(RemovedJob::new(row, planned, planned))
}

/// Regression: 20,000 jobs that a reload removed took 24 MB for an hour.
#[test]
fn the_data_of_a_removed_job_is_small_and_gives_the_same_row_again() {
    let row = JobRow { paused: Some(pause(None)), ..written(&job(1), 3) };
    let entry = find(job(1), &stored(&row), None, None, at(9)).led;
    let removed = entry.remove(at(9));
    let size = size_of::<RemovedJob>() + removed.row.len();
    assert!(size < 300 && !removed.row.contains(&*row.rules), "{size}: {}", removed.row);
    let again = find(job(1), &stored(&row), None, Some(removed), at(9));
    assert_eq!(again.led.row, JobRow { since: at(9), ..row });
}

#[test]
fn a_job_that_comes_back_in_one_term_begins_after_the_ticks_that_were_planned() {
    let old = JobRow { ended: Some(at(4)), ..written(&job(1), 3) };
    let none = snapshot([]);
    let again = find(job(1), &none, None, removed(old.clone(), at(12)), at(9));
    assert_eq!(again.led.next(), Some(at(13)), "though the clock has stepped back");
    assert_eq!(again.led.row.since, at(12));
    let chain = Job::new("j", crate::scheduler::schedule::Schedule::delay(SECOND).unwrap(), |_| async {
        Ok::<(), String>(())
    });
    let again = find(Arc::new(chain), &none, None, removed(old, at(12)), at(9));
    assert!(again.led.next() >= Some(at(12)), "{:?}", again.led.next());
}

#[test]
fn another_placement_counts_from_now_on_and_unfinished_runs_still_run() {
    let any_worker = |job: Arc<Job>| Arc::new((*job).clone().placement(Placement::AnyWorker));
    let old = written(&any_worker(job(1)), 3);
    assert!(old.placement == Placement::AnyWorker && old.since == at(3));
    let all = stored(&old);
    let moved = find(job(1), &all, Some(at(12)), None, at(13));
    assert_eq!(moved.led.row.since, at(13));
    assert_eq!(moved.led.next(), Some(at(14)), "ticks of the other placement are not caught up on");
    let same = find(any_worker(job(1)), &all, Some(at(12)), None, at(13));
    assert_eq!(same.led.row.since, at(3));
    // Now the placement changes from the leader to any worker. An unfinished run still runs, even if the row
    // already has the new placement because an earlier leader wrote it.
    for row_before in [written(&job(1), 3), old] {
        let all = snapshot([record(&row_before), tick_record(11, 1, false)]);
        let mut moved = find(any_worker(job(1)), &all, None, None, at(13));
        assert_eq!(moved.led.start(at(13)).0.map(|start| start.tick), Some(at(11)), "at least once");
        let once = Arc::new((*any_worker(job(1))).clone().delivery(Delivery::AtMostOnce));
        assert_eq!(find(once, &all, None, None, at(13)).lost.len(), 1);
    }
}

fn watched(seconds: u32) -> Arc<Job> {
    let job = Job::clone(&job(seconds)).expect_within(10 * SECOND);
    Arc::new(job.on_alert(|_| async {}))
}

/// Returns the closed record of a run that failed, and whose leader ended before it wrote the job's row.
fn failed_record(tick: u64) -> (Arc<str>, Arc<str>) {
    let (end, under) = ((RunOutcome::Failed, "exit status 1"), (FencingToken::new(1), at(tick)));
    (RunKey::new("j", at(tick)).key(), RunRecord::closed("old", end, Some(SECOND), under).to_value())
}

#[test]
fn a_new_leader_reports_the_ends_that_the_row_does_not_have_and_no_other() {
    let old = find(watched(1), &snapshot([]), None, None, at(3)).led.row;
    let with = |row: &JobRow, records: Vec<(Arc<str>, Arc<str>)>| {
        find(watched(1), &snapshot(records.into_iter().chain([record(row)])), None, None, at(20))
    };
    let found = with(&old, vec![failed_record(5)]);
    let kinds =
        |entry: &LedJob| entry.alerts().iter().map(|alert| (alert.kind, alert.at)).collect::<Vec<_>>();
    assert!(found.write);
    assert_eq!(kinds(&found.led), [(AlertKind::Failed, at(5))]);
    assert_eq!(found.led.row.deadline(), Some(at(13)), "from the registration, not from this term");
    // The alert is in the row, and was reported.
    let mut told = found.led.row.clone();
    let alert = found.led.alerts()[0].clone();
    assert!(told.alert_reported(&alert));
    let found = with(&told, vec![failed_record(5), failed_record(6)]);
    assert!(found.led.alerts().is_empty(), "{:?}", found.led.row.health);
    let found = with(&told, vec![failed_record(5), tick_record(7, 1, true)]);
    assert_eq!(kinds(&found.led), [(AlertKind::Recovered, at(7))]);
    // A leader without the function drops the alerts.
    let found = find(job(1), &stored(&found.led.row), None, None, at(20));
    assert!(found.write && found.led.alerts().is_empty());
}

#[test]
fn a_leader_wakes_when_the_job_becomes_overdue_and_only_once() {
    let quiet = Job::clone(&watched(1)).misfire(Misfire::Skip);
    let quiet = Job { schedule: crate::scheduler::schedule::Schedule::at(at(5_000)), ..quiet };
    let mut entry = find(Arc::new(quiet), &snapshot([]), None, None, at(3)).led;
    assert_eq!(entry.wake(), Some(at(13)));
    assert!(!entry.note_overdue(at(12)) && !entry.is_overdue());
    assert!(entry.note_overdue(at(13)) && entry.is_overdue());
    assert_eq!((entry.wake(), entry.alerts().len()), (Some(at(5_000)), 1));
    assert!(!entry.note_overdue(at(14)));
    entry.pause(RequestId::from_u128(1), Paused { at: at(15), ..Paused::default() });
    assert!(!entry.is_overdue(), "a paused job is not overdue");
    entry.resume(RequestId::from_u128(2), at(16));
    assert_eq!(entry.wake(), Some(at(26)), "the time counts from the resumption");
}

fn freeze(from: u64, until: u64) -> Paused {
    Paused { at: at(from), ..pause(Some(until)) }
}

/// Returns a job that has decided on all ticks up to `now`.
fn active(now: u64) -> (LedJob, LedgerSnapshot) {
    let all = stored(&written(&job(1), 7));
    let mut entry = find(job(1), &all, None, None, at(now)).led;
    entry.plan_due(&all, at(now));
    (entry, all)
}

fn spans(entry: &mut LedJob, now: u64) -> Vec<(bool, Option<(WallTime, WallTime)>)> {
    std::iter::from_fn(|| entry.end_pause(at(now))).map(|ended| (ended.is_freeze, ended.span)).collect()
}

#[test]
fn a_freeze_and_a_pause_leave_out_the_ticks_of_both_and_each_tick_is_reported_once() {
    let id = RequestId::from_u128(1);
    // The freeze ends within the pause.
    let (mut entry, _) = active(20);
    entry.pause(id, pause(Some(40)));
    assert!(entry.freeze(freeze(25, 30)).is_empty());
    assert_eq!((entry.wake(), entry.left_out_at(at(29))), (Some(at(30)), Some(Withdrawal::Paused)));
    assert_eq!(spans(&mut entry, 30), [(true, None)], "the pause began earlier, and reports them");
    assert!(entry.is_paused() && entry.next().is_none());
    assert_eq!(spans(&mut entry, 40), [(false, Some((at(21), at(39))))]);
    assert_eq!((entry.is_paused(), entry.next()), (false, Some(at(40))));
    // The pause begins within the freeze and ends after it.
    let (mut entry, _) = active(20);
    entry.freeze(freeze(20, 30));
    entry.pause(id, Paused { at: at(25), ..pause(Some(40)) });
    assert_eq!([24, 29, 35].map(|tick| entry.left_out_at(at(tick)).is_some()), [true; 3]);
    assert_eq!(spans(&mut entry, 30), [(true, Some((at(21), at(29))))]);
    assert!(entry.row().since > at(29) && entry.is_paused() && entry.next().is_none());
    assert_eq!((entry.left_out_at(at(35)), entry.left_out_at(at(40))), (Some(Withdrawal::Paused), None));
    assert_eq!(spans(&mut entry, 40), [(false, Some((at(30), at(39))))]);
    // Both have ended when the leader looks, and a resumed job stays frozen.
    let (mut entry, _) = active(20);
    entry.freeze(freeze(20, 30));
    entry.pause(id, Paused { at: at(22), ..pause(Some(26)) });
    assert_eq!(spans(&mut entry, 50), [(false, None), (true, Some((at(21), at(29))))]);
    let (mut entry, _) = active(20);
    entry.freeze(freeze(20, 30));
    entry.pause(id, Paused { at: at(22), ..pause(None) });
    assert_eq!(entry.resume(RequestId::from_u128(2), at(25)).unwrap().span, None);
    assert_eq!((entry.is_paused(), entry.left_out_at(at(28))), (true, Some(Withdrawal::Frozen)));
    assert_eq!(spans(&mut entry, 30), [(true, Some((at(21), at(29))))]);
}

#[test]
fn a_leader_takes_a_freeze_over_once_and_ends_it_for_each_job() {
    let row = written(&job(1), 7);
    let all = stored(&row);
    let mut entry = find(job(1), &all, Some(at(22)), None, at(28)).led;
    // The previous leader decided on the ticks up to 22. No leader decided on the tick 23.
    entry.take_freeze(&freeze(23, 26), Some(at(22)));
    assert_eq!(entry.wake(), Some(at(26)), "its timer is due at once");
    assert_eq!(spans(&mut entry, 28), [(true, Some((at(23), at(25))))]);
    entry.plan_due(&all, at(28));
    assert_eq!(entry.start(at(28)).0.map(|run| run.tick), Some(at(26)), "the first catch-up run");
    let ended = entry.row().clone();
    let all = stored(&ended);
    let mut later = find(job(1), &all, Some(at(28)), None, at(29)).led;
    later.take_freeze(&freeze(23, 26), Some(at(28)));
    assert!(!later.is_paused(), "the row shows that the freeze has ended for the job");
    later.take_freeze(&freeze(29, 40), Some(at(28)));
    assert!(later.is_paused() && later.wake() == Some(at(40)));
    later.change_freeze(&freeze(29, 33));
    assert_eq!(spans(&mut later, 35), [(true, Some((at(29), at(32))))], "an earlier end");
}
