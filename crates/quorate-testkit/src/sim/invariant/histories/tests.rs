use super::{
    super::pool_log::made::{self, entry},
    *,
};

fn read(histories: &mut Histories, entries: &[HistoryEntry]) -> Result<(), String> {
    let (job, page) = (entries[0].job.clone(), &entries[..entries.len().min(3)]);
    made::see(histories, 0, &Event::HistoryRead { job: &job, entries, page })
}

/// Lets the invariant judge a history with one entry: a run of `job` that is due at 2 s, with the outcome
/// `end`. Returns the judgement. The run's handler ended as `ended` says, or never started if `ended` is
/// `None`.
fn reads(job: &str, ended: Option<HandlerEnd>, end: RunOutcome) -> Result<(), String> {
    let mut histories = Histories::default();
    if let Some(ended) = ended {
        made::started(&mut histories, 2_000, &made::start(1, job, 2_000)).unwrap();
        made::ended(&mut histories, 2_100, 1, ended).unwrap();
    }
    read(&mut histories, &[entry(job, 2_000, 1, end)])
}

#[test]
fn ends_agree_with_what_the_handlers_did() {
    use HandlerEnd::{Done, Failed, Stopped};
    let says = |ended, end| reads("any-each", ended, end);
    assert_eq!(says(Some(Done), RunOutcome::Done), Ok(()));
    for ended in [None, Some(Failed), Some(Stopped)] {
        assert!(says(ended, RunOutcome::Done).unwrap_err().contains("no handler ended so"), "{ended:?}");
    }
    assert!(says(Some(Failed), RunOutcome::Failed).is_ok() && says(Some(Done), RunOutcome::Failed).is_err());
    assert!(says(Some(Failed), RunOutcome::TimedOut).is_err());
    assert!(says(Some(Stopped), RunOutcome::Cancelled).is_ok() && says(None, RunOutcome::Cancelled).is_err());
    let mut other = Histories::default();
    made::ran(&mut other, &made::start(1, "any-each", 2_000)).unwrap();
    let elsewhere = HistoryEntry { worker: "w1".into(), ..entry("any-each", 2_000, 1, RunOutcome::Done) };
    assert!(read(&mut other, &[elsewhere]).is_err(), "on another worker");
    let opened = entry("any-each", 2_000, 2, RunOutcome::Done);
    assert_eq!(
        read(&mut other, &[opened]),
        Ok(()),
        "the entry has the term, and the run the token of its claim"
    );
    let mut led = Histories::default();
    made::ran(&mut led, &made::start(1, "led", 2_000)).unwrap();
    assert!(read(&mut led, &[entry("led", 2_000, 2, RunOutcome::Done)]).is_err(), "under another term");
    let hours =
        HistoryEntry { started: Some(made::at(9_000)), ..entry("any-each", 2_000, 1, RunOutcome::Done) };
    assert!(read(&mut other, &[hours]).is_err(), "at another time");
}

#[test]
fn what_is_skipped_or_lost_is_so_for_a_reason() {
    let says = |job, end| reads(job, None, end);
    assert!(says("led", RunOutcome::Lost).is_err() && says("led-once", RunOutcome::Lost).is_ok());
    assert!(says("any-each", RunOutcome::Lost).is_ok());
    assert!(says("led", RunOutcome::SkippedMisfire).unwrap_err().contains("do not permit"));
    assert!(
        says("led", RunOutcome::SkippedOverlap).is_err()
            && says("led-once", RunOutcome::SkippedOverlap).is_ok()
    );
    assert!(
        says("led", RunOutcome::SkippedPaused).is_err() && says("led", RunOutcome::SkippedFrozen).is_err()
    );
    assert!(says("any-skip", RunOutcome::SkippedMisfire).is_ok());
}

#[test]
fn a_history_is_in_order_and_has_each_entry_once() {
    let histories = || {
        let mut histories = Histories::default();
        for (run, due) in [(1, 1_500), (2, 3_000), (3, 3_000), (4, 4_500)] {
            made::ran(&mut histories, &made::start(run, "any-each", due)).unwrap();
        }
        histories
    };
    let done = |run, due| entry("any-each", due, run, RunOutcome::Done);
    let all = [done(4, 4_500), done(3, 3_000), done(2, 3_000), done(1, 1_500)];
    assert_eq!(read(&mut histories(), &all), Ok(()));
    assert!(read(&mut histories(), &[done(1, 1_500), done(2, 3_000)]).unwrap_err().contains("order"));
    assert!(read(&mut histories(), &[done(2, 3_000), done(2, 3_000)]).unwrap_err().contains("two entries"));
    let page = Event::HistoryRead { job: "any-each", entries: &all, page: &all[1..2] };
    assert!(made::see(&mut histories(), 0, &page).unwrap_err().contains("first page"));
}

#[test]
fn no_entry_is_missing_that_is_to_be_kept() {
    let stored = |servers, job: &str| {
        let mut histories = Histories::default();
        made::ran(&mut histories, &made::start(1, job, 2_000)).unwrap();
        let missing = entry(job, 1_000, 9, RunOutcome::Done).key();
        let ledger = format!("{POOL}{{{}}}", HistoryEntry::part(job));
        made::written(&mut histories, &ledger, &missing, "", servers).unwrap();
        histories
    };
    let rest = |job| [entry(job, 2_000, 1, RunOutcome::Done)];
    assert!(read(&mut stored(3, "led"), &rest("led")).unwrap_err().contains("is missing"));
    assert!(read(&mut stored(2, "led"), &rest("led")).is_ok(), "a minority's");
    let mut forgot = stored(3, "led");
    made::see(&mut forgot, 0, &Event::Forgot { node: "n0" }).unwrap();
    assert!(read(&mut forgot, &rest("led")).is_ok());

    let settle = |histories: &mut Histories, since| {
        made::see(histories, 9_000, &Event::Settled { since: made::at(since), until: made::at(9_000) })
    };
    let mut histories = stored(0, "led-once");
    made::ran(&mut histories, &made::start(2, "led-once", 6_300)).unwrap();
    read(&mut histories, &rest("led-once")).unwrap();
    assert!(settle(&mut histories, 5_000).unwrap_err().contains("lacks run 2"));
    assert!(settle(&mut histories, 7_000).is_ok(), "before the faults were over");
}

#[test]
fn a_pause_is_back_only_if_the_ledger_was_founded_since_its_end() {
    use quorate::internals::{JobAction, JobRow, Paused};
    let job = "led";
    let skips = |founded: Option<u64>, resumed_again: bool| {
        let mut histories = Histories::default();
        let row = |paused: bool| {
            let paused = paused.then(|| Paused { by: "me".into(), at: made::at(1_000), ..Paused::default() });
            JobRow { paused, ..JobRow::default() }.to_value()
        };
        let asks = |histories: &mut Histories, at, ask| {
            made::asks(histories, at, ask, crate::sim::Told::Accepted { id: made::id(7), count: 0 }).unwrap();
        };
        asks(&mut histories, 1_000, JobAction::pause(job));
        made::written(&mut histories, POOL, &JobRow::key(job), &row(true), 5).unwrap();
        asks(&mut histories, 3_000, JobAction::Resume { job: job.into() });
        made::written(&mut histories, POOL, &JobRow::key(job), &row(false), 3).unwrap();
        made::ran(&mut histories, &made::start(1, job, 8_000)).unwrap();
        made::see(&mut histories, 9_000, &Event::Forgot { node: "n0" }).unwrap();
        if let Some(ms) = founded {
            made::founded(&mut histories, ms, POOL, 2).unwrap();
        }
        if resumed_again {
            asks(&mut histories, 9_500, JobAction::Resume { job: job.into() });
        }
        let span =
            HistoryEntry { until: Some(made::at(24_000)), ..entry(job, 1_600, 1, RunOutcome::SkippedPaused) };
        read(&mut histories, &[span])
    };
    assert_eq!(skips(Some(9_000), false), Ok(()));
    let why = skips(None, false).unwrap_err();
    assert!(why.contains("do not permit"), "the ledger goes on: {why}");
    assert!(skips(Some(2_000), false).is_err(), "it was founded before the pause ended");
    assert!(skips(Some(9_000), true).is_err(), "it ended again");
}
