//! Tests of jobs that run on every worker.

use super::{
    tests::{done, job, registry, row_of, runs, settings, starts, take_over},
    *,
};
use crate::scheduler::{
    job::RunOutcome,
    policy::Placement,
    run::assign::LiveWorker,
    store::{
        JobRow, RunKey, RunRecord, WorkRow,
        snapshot::tests::{SECOND, at, snapshot},
    },
};

fn workers(names: &[&str]) -> Vec<LiveWorker> {
    names.iter().map(|name| LiveWorker::named(name, &[], &[])).collect()
}

fn every() -> Job {
    job("scrub").placement(Placement::EveryWorker)
}

/// Returns a planner with the job `scrub`, of which the ledger has nothing.
fn planner() -> Planner {
    let mut planner = Planner::new(snapshot([]), Definitions::default(), settings());
    planner.change(&registry([every()]), at(10));
    take_over(&mut planner, 10);
    planner
}

fn set_workers(planner: &mut Planner, live: Vec<LiveWorker>, now: u64) -> Vec<Effect> {
    planner.workers_changed(live, at(now));
    take_over(planner, now)
}

/// Ends the hand-out of a tick. Returns the names and ticks of the runs that start then.
fn hand_out(planner: &mut Planner, now: u64) -> Vec<String> {
    let starts_now = starts(planner, now);
    assert_eq!(starts_now.iter().map(|start| &*start.job.name).collect::<Vec<_>>(), ["scrub"]);
    planner.run_ended(done(&starts_now[0]), false, at(now));
    planner.start_ready(at(now));
    named(&runs(planner.take_effects()))
}

fn named(runs: &[crate::scheduler::plan::effect::RunStart]) -> Vec<String> {
    runs.iter().map(|start| format!("{} {}", start.job.name, at(0).until(start.run.tick).as_secs())).collect()
}

#[test]
fn each_worker_that_lives_gets_a_run_of_its_own() {
    let mut planner = planner();
    assert!(starts(&mut planner, 11).is_empty(), "it is not known which workers live");
    set_workers(&mut planner, workers(&["oak", "elm"]), 11);
    assert_eq!(hand_out(&mut planner, 11), ["scrub@elm 11", "scrub@oak 11"]);
    let labels = |name: &str| planner.table.find(name).map(|(_, led)| led.job().rules.labels.to_string());
    assert_eq!(labels("scrub@oak").as_deref(), Some("worker=oak"));
}

#[test]
fn without_a_worker_the_tick_waits_for_one() {
    let mut planner = planner();
    set_workers(&mut planner, Vec::new(), 11);
    assert!(starts(&mut planner, 11).is_empty());
    set_workers(&mut planner, workers(&["oak"]), 12);
    assert_eq!(hand_out(&mut planner, 12), ["scrub@oak 12"], "the later tick replaces the one that waited");
}

#[test]
fn a_worker_without_the_labels_or_the_job_gets_no_run() {
    let mut planner = Planner::new(snapshot([]), Definitions::default(), settings());
    let job = every().on_workers_with(["ssd"]).placement(Placement::EveryWorker);
    planner.change(&registry([job]), at(10));
    take_over(&mut planner, 10);
    let live = vec![
        LiveWorker::named("oak", &["ssd"], &[]),
        LiveWorker::named("elm", &[], &[]),
        LiveWorker::named("ash", &["ssd"], &["scrub@ash"]),
    ];
    set_workers(&mut planner, live, 11);
    assert_eq!(hand_out(&mut planner, 11), ["scrub@oak 11"]);
}

#[test]
fn the_part_of_a_worker_that_has_gone_is_removed_and_one_that_comes_back_gets_later_ticks_only() {
    let mut planner = planner();
    set_workers(&mut planner, workers(&["oak", "elm"]), 11);
    assert_eq!(hand_out(&mut planner, 11), ["scrub@elm 11", "scrub@oak 11"]);
    let effects = set_workers(&mut planner, workers(&["oak"]), 12);
    let is_removal =
        |effect: &Effect| matches!(effect, Effect::RemoveRow { key } if **key == *"job/scrub@elm");
    let is_withdrawn =
        |effect: &Effect| matches!(effect, Effect::Withdraw { key, .. } if key.contains("scrub@elm"));
    assert!(effects.iter().any(is_removal) && effects.iter().any(is_withdrawn), "{effects:?}");
    set_workers(&mut planner, workers(&["oak", "elm"]), 12);
    let start = starts(&mut planner, 12);
    assert_eq!(named(&start), ["scrub 12"], "no second run of 11");
}

#[test]
fn a_pause_of_the_whole_holds_for_all_workers_also_for_new_ones() {
    let mut planner = planner();
    set_workers(&mut planner, workers(&["oak"]), 11);
    assert_eq!(hand_out(&mut planner, 11), ["scrub@oak 11"]);
    let id = planner.table.id("scrub").unwrap();
    planner.pause(id, crate::scheduler::job::RequestId::from_u128(1), Default::default());
    set_workers(&mut planner, workers(&["oak", "elm"]), 12);
    assert!(starts(&mut planner, 12).is_empty());
}

#[test]
fn a_job_that_no_longer_runs_on_every_worker_has_no_parts() {
    let mut planner = planner();
    set_workers(&mut planner, workers(&["oak"]), 11);
    planner.change(&registry([job("scrub").placement(Placement::AnyWorker)]), at(11));
    take_over(&mut planner, 11);
    assert_eq!(planner.table.names().map(|(name, _)| &**name).collect::<Vec<_>>(), ["scrub"]);
    planner.change(&registry([every()]), at(12));
    take_over(&mut planner, 12);
    assert_eq!(planner.table.names().count(), 2);
    planner.change(&registry([]), at(13));
    assert_eq!(planner.table.names().count(), 0);
}

#[tokio::test]
async fn a_worker_that_is_new_under_a_new_leader_runs_no_earlier_tick_of_a_stored_job() {
    use crate::scheduler::{
        job::RequestId,
        registry::Handlers,
        schedule::Schedule,
        store::{StoredJob, snapshot::tests::SECOND},
    };
    let scrub = Job::named("scrub", Schedule::every(SECOND).unwrap(), "h").placement(Placement::EveryWorker);
    let row =
        StoredJob::new(&"me".into(), at(5), RequestId::from_u128(7), (&scrub.definition().unwrap(), &scrub));
    let of = (FencingToken::new(3), at(11));
    let closed = RunRecord::closed(&Arc::from("w"), (RunOutcome::Done, ""), Some(Duration::ZERO), of);
    let whole = JobRow { since: at(10), ..Default::default() }.described_by(&scrub.whole(), at(10));
    let sealed = snapshot([
        (StoredJob::key("scrub"), row.to_value()),
        (JobRow::key("scrub"), whole.to_value()),
        (RunKey::new("scrub", at(11)).key(), closed.to_value()),
    ]);
    let definitions = Definitions::read("g", &sealed, &Handlers::default()).await;
    let mut planner = Planner::new(sealed, definitions, settings());
    planner.change(&BTreeMap::new(), at(12));
    take_over(&mut planner, 12);
    let mut oak = LiveWorker::named("oak", &[], &[]);
    oak.offer("h");
    set_workers(&mut planner, vec![oak], 12);
    assert!(planner.table.id("scrub@oak").is_some());
    assert_eq!(hand_out(&mut planner, 12), ["scrub@oak 12"]);
}

#[test]
fn a_part_that_waits_to_be_taken_over_is_forgotten_with_its_worker() {
    let mut planner = planner();
    planner.workers_changed(workers(&["oak", "elm"]), at(11));
    planner.workers_changed(workers(&["oak"]), at(11));
    take_over(&mut planner, 11);
    assert_eq!(hand_out(&mut planner, 11), ["scrub@oak 11"]);
}

/// A leader that finds that the tick 11 was handed out to two workers, of which one has the record of its run.
#[test]
fn a_new_leader_hands_out_what_the_last_one_had_begun_and_nothing_twice() {
    let closed = |job: &str| {
        let of = (FencingToken::new(3), at(11));
        let record = RunRecord::closed(&Arc::from("w"), (RunOutcome::Done, ""), Some(Duration::ZERO), of);
        (RunKey::new(job, at(11)).key(), record.to_value())
    };
    let row = |job: Job| {
        let row = JobRow { since: at(10), ..Default::default() }.described_by(&job, at(10));
        (JobRow::key(&job.name), row.to_value())
    };
    let of_worker = |worker: &str| {
        let row = WorkRow {
            who: LiveWorker::named(worker, &[], &[]).announcement().clone(),
            runs: BTreeMap::new(),
        };
        (WorkRow::key(worker), row.to_value())
    };
    let rows = [every().whole(), every().part("oak"), every().part("elm"), every().part("ash")].map(row);
    let sealed = snapshot(
        rows.into_iter().chain([closed("scrub"), closed("scrub@oak")]).chain(["oak", "elm"].map(of_worker)),
    );
    let mut planner = Planner::new(sealed, Definitions::default(), settings());
    planner.change(&registry([every()]), at(12));
    let effects = take_over(&mut planner, 12);
    assert_eq!(row_of(&effects, "lacks"), None, "the part of ash is no job that other workers have");
    planner.start_ready(at(12));
    assert_eq!(named(&runs(planner.take_effects())), ["scrub@elm 11"]);
    let effects = set_workers(&mut planner, workers(&["oak", "elm"]), 12);
    let removed: Vec<&Arc<str>> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::RemoveRow { key } => Some(key),
            _ => None,
        })
        .collect();
    assert!(removed.iter().any(|key| ***key == *"job/scrub@ash"), "{removed:?}");
    assert!(!removed.iter().any(|key| key.contains("oak") || key.contains("elm")), "{removed:?}");
    assert_eq!(hand_out(&mut planner, 12), ["scrub@oak 12"], "elm still has its run of 11");
}

#[test]
fn a_stored_job_that_another_one_follows_cannot_begin_to_run_on_every_worker() {
    use crate::scheduler::{
        plan::requests::Asked,
        schedule::{AfterEnd, Schedule},
        store::{DefinitionText, JobAction, JobRequest, JobResponse},
    };
    let mut planner = Planner::new(snapshot([]), Definitions::default(), settings());
    take_over(&mut planner, 9);
    let mut put = |id: u32, job: &Job| {
        let definitions = vec![DefinitionText::new(&job.definition().unwrap())];
        let what = JobAction::Put { job: Arc::clone(&job.name), definitions, expect: None };
        let (id, by) = (RequestId::from_u128(id.into()), "me".into());
        let asked = planner.ask(&JobRequest { id, by, at: at(10), valid_for: SECOND, what }, true, at(10));
        take_over(&mut planner, 10);
        match asked {
            Asked::Store(granted) => {
                planner.stored(*granted, at(10));
                None
            }
            Asked::Answer(JobResponse::Refused { why }) => Some(why),
            Asked::Answer(other) => panic!("{other:?}"),
        }
    };
    let extract = || Job::named("extract", Schedule::every(SECOND).unwrap(), "h");
    assert_eq!(put(1, &extract()), None);
    assert_eq!(put(2, &Job::named("load", Schedule::after("extract", AfterEnd::Success), "h")), None);
    assert_eq!(put(3, &extract().placement(Placement::AnyWorker)), None);
    let why = put(4, &extract().placement(Placement::EveryWorker)).expect("a refusal");
    assert!(why.contains("\"load\" follows its end") && why.contains("extract@WORKER"), "{why}");
}
