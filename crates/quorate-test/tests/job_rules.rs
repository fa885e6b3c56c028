//! The rules that say on which days, where, how many at once and after which other job the runs of a job start.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use quorate::{
    Cron, Job, Scheduler,
    scheduler::{
        AfterEnd, AlertKind, Jobs, Overlap, Payload, Placement, Reason, RunContext, RunOutcome, Schedule,
    },
};
use quorate_test::{Cluster, time};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Runs these jobs on the workers `names`.
fn run(cluster: &Cluster, names: &[&str], jobs: impl Fn() -> Vec<Job> + Clone + Send + Sync + 'static) {
    for name in names {
        let jobs = jobs.clone();
        cluster.worker(name).run(move |process| {
            let scheduler = jobs().into_iter().fold(Scheduler::new(process.quorum(), "g"), Scheduler::job);
            async move { scheduler.run().until(process.stopped()).await.map_err(|error| error.to_string()) }
        });
    }
}

async fn done(_run: quorate::scheduler::RunContext) -> Result<(), Infallible> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_excepted_day_has_no_run_also_across_a_change_of_the_leader() {
    let cluster = Cluster::builder().nodes(3).starts_at(time("2027-12-23T20:00:00Z")).start();
    run(&cluster, &["a", "b"], || {
        let daily: Schedule = Cron::parse("30 0 * * *").unwrap().zone("Europe/Kyiv").unwrap().into();
        let bounded = daily.except(["2027-12-25", "2027-12-26"]).unwrap().until_day("2027-12-27").unwrap();
        vec![Job::new("daily", bounded, done)]
    });
    cluster.advance(DAY / 8).await;
    let leader = cluster.leader("g").await.unwrap();
    cluster.worker(&leader).kill();
    cluster.advance(5 * DAY).await;
    let ticks = [time("2027-12-23T22:30:00Z"), time("2027-12-26T22:30:00Z")];
    assert_eq!(cluster.runs("g", "daily").await.done(), ticks);
    let jobs = Jobs::new(&cluster.quorum(), "g").unwrap();
    let why = jobs.why("daily", Some(time("2027-12-24T22:30:00Z"))).await.unwrap();
    assert_eq!(why.reason, Reason::Schedule, "{why:#?}");
    assert!(why.text.ends_with("2027-12-25 is one of the schedule's excepted days"), "{why:#?}");
    let why = jobs.why("daily", Some(time("2027-12-27T22:30:00Z"))).await.unwrap();
    assert!(why.text.contains("after the schedule's last day, until = 2027-12-27"), "{why:#?}");
    let status = jobs.show("daily").await.unwrap();
    assert!(status.next.is_none() && status.schedule.contains("not on 2027-12-25"), "{status:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_is_paused_after_failures_in_a_row_and_counts_again_after_it_is_resumed() {
    let cluster = Cluster::memory(3);
    let (alerts, fails) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(true)));
    let (reported, failing) = (Arc::clone(&alerts), Arc::clone(&fails));
    run(&cluster, &["a", "b"], move || {
        let (reported, failing) = (Arc::clone(&reported), Arc::clone(&failing));
        let handler = move |_| {
            let fails = failing.load(Ordering::Relaxed);
            async move { if fails { Err("no such table") } else { Ok(()) } }
        };
        let job = Job::new("load", Schedule::every(60 * SECOND).unwrap(), handler).pause_after_failures(3);
        vec![job.on_alert(move |alert| {
            reported.lock().unwrap().push(alert.kind);
            async {}
        })]
    });
    let jobs = Jobs::new(&cluster.quorum(), "g").unwrap();
    cluster.advance(150 * SECOND).await;
    // The next leader goes on counting.
    let leader = cluster.leader("g").await.unwrap();
    cluster.worker(&leader).kill();
    cluster.advance(600 * SECOND).await;
    let failed = |runs: &quorate_test::Runs| {
        runs.entries().iter().filter(|entry| entry.end == RunOutcome::Failed).count()
    };
    let runs = cluster.runs("g", "load").await;
    assert_eq!(failed(&runs), 3, "{runs}");
    let why = jobs.why("load", None).await.unwrap();
    assert_eq!(why.reason, Reason::Paused, "{why:#?}");
    assert!(why.text.contains("3 failed runs in a row; the last: no such table"), "{why:#?}");
    assert_eq!(*alerts.lock().unwrap(), [AlertKind::Failed, AlertKind::Paused]);
    let audit = jobs.audit(9).await.unwrap();
    assert!(audit.len() == 1 && audit[0].by.starts_with("the leader "), "{audit:#?}");

    jobs.resume("load").await.unwrap();
    cluster.advance(130 * SECOND).await;
    assert_eq!(jobs.why("load", None).await.unwrap().reason, Reason::Ran, "two more failures do not suffice");
    cluster.worker(&leader).restart();
    cluster.advance(60 * SECOND).await;
    assert_eq!(jobs.why("load", None).await.unwrap().reason, Reason::Paused, "the third one does");
    fails.store(false, Ordering::Relaxed);
    jobs.resume("load").await.unwrap();
    cluster.advance(600 * SECOND).await;
    let runs = cluster.runs("g", "load").await;
    assert!(failed(&runs) == 6 && runs.done().len() >= 9, "{runs}");
    let kinds = alerts.lock().unwrap().clone();
    assert_eq!(kinds, [AlertKind::Failed, AlertKind::Paused, AlertKind::Paused, AlertKind::Recovered]);
}

/// Returns the ticks that a worker has run of its part of `scrub`, in seconds after the first.
async fn scrubbed(cluster: &Cluster, worker: &str, from: quorate::env::WallTime) -> Vec<u64> {
    let runs = cluster.runs("g", &format!("scrub@{worker}")).await;
    assert!(runs.entries().iter().all(|entry| &*entry.worker == worker), "{runs}");
    runs.done().iter().map(|tick| from.until(*tick).as_secs()).collect()
}

#[tokio::test(start_paused = true)]
async fn each_tick_runs_once_on_every_worker_that_lives_also_across_a_change_of_the_leader() {
    let start = time("2027-01-01T00:00:30Z");
    let cluster = Cluster::builder().nodes(3).starts_at(start).start();
    run(&cluster, &["a", "b", "c"], || {
        let scrub = Job::new("scrub", Cron::parse("* * * * *").unwrap(), done);
        vec![scrub.placement(Placement::EveryWorker)]
    });
    cluster.advance(100 * SECOND).await;
    for worker in ["a", "b", "c"] {
        assert_eq!(scrubbed(&cluster, worker, start).await, [30, 90], "{worker}");
    }
    let leader = cluster.leader("g").await.unwrap();
    cluster.worker(&leader).kill();
    cluster.advance(120 * SECOND).await;
    let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|name| **name != *leader).collect();
    for worker in &others {
        assert_eq!(scrubbed(&cluster, worker, start).await, [30, 90, 150, 210], "{worker}");
    }
    assert_eq!(scrubbed(&cluster, &leader, start).await, [30, 90], "it does not live");
    let jobs = Jobs::new(&cluster.quorum(), "g").unwrap();
    let names = |jobs: Vec<quorate::scheduler::JobStatus>| {
        jobs.iter().map(|job| job.name.to_string()).collect::<Vec<_>>()
    };
    let mut expected = vec!["scrub".to_owned()];
    expected.extend(others.iter().map(|worker| format!("scrub@{worker}")));
    assert_eq!(names(jobs.list().await.unwrap()), expected);
    let last = &jobs.history("scrub", 1).await.unwrap()[0];
    assert_eq!(*last.reason, format!("handed out to {}", others.join(", ")), "{last:?}");

    cluster.worker(&leader).restart();
    cluster.advance(60 * SECOND).await;
    assert_eq!(scrubbed(&cluster, &leader, start).await, [30, 90, 270], "the ticks since it lives again");
    jobs.pause("scrub").await.unwrap();
    cluster.advance(120 * SECOND).await;
    jobs.trigger("scrub").await.unwrap();
    cluster.advance(30 * SECOND).await;
    for worker in ["a", "b", "c"] {
        let ran = scrubbed(&cluster, worker, start).await;
        let paused = ran.iter().filter(|tick| **tick > 280).count();
        assert_eq!(paused, 1, "{worker} ran on request only: {ran:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_was_handed_out_waits_for_no_worker_that_has_gone() {
    let cluster = Cluster::memory(3);
    let active = Active::default();
    let count = active.clone();
    run(&cluster, &["a", "b", "c"], move || {
        let active = active.clone();
        let hold = move |_| {
            let active = active.clone();
            async move { active.hold(20 * SECOND).await }
        };
        vec![Job::new("scrub", Schedule::every(60 * SECOND).unwrap(), hold).placement(Placement::EveryWorker)]
    });
    cluster.advance(70 * SECOND).await;
    assert_eq!(count.0.lock().unwrap().1, 3, "all at once");
    let leader = cluster.leader("g").await.unwrap();
    let killed = ["a", "b", "c"].into_iter().find(|name| **name != *leader).unwrap();
    // It has begun a run, which is lost. The run is not repeated elsewhere.
    cluster.advance(55 * SECOND).await;
    cluster.worker(killed).kill();
    cluster.advance(120 * SECOND).await;
    let runs = cluster.runs("g", &format!("scrub@{killed}")).await;
    assert!(runs.entries().iter().all(|entry| &*entry.worker == killed || entry.started.is_none()), "{runs}");
    let jobs = Jobs::new(&cluster.quorum(), "g").unwrap();
    let listed = jobs.list().await.unwrap();
    assert_eq!(listed.len(), 3, "{listed:#?}");
    assert!(listed.iter().all(|job| job.running.len() < 2), "{listed:#?}");
}

/// Counts the runs that are active at the same time, and the most that were.
#[derive(Clone, Default)]
struct Active(Arc<Mutex<(usize, usize)>>);

impl Active {
    async fn hold(&self, time: Duration) -> Result<(), Infallible> {
        {
            let mut counts = self.0.lock().unwrap();
            counts.0 += 1;
            counts.1 = counts.1.max(counts.0);
        }
        let _out = Out(self.clone());
        #[expect(clippy::disallowed_methods, reason = "a service may use tokio's timers")]
        tokio::time::sleep(time).await;
        Ok(())
    }
}

struct Out(Active);

impl Drop for Out {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().0 -= 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_key_holds_across_jobs_and_workers_and_a_change_of_the_leader() {
    let cluster = Cluster::memory(3);
    let active = Active::default();
    let counts = active.clone();
    run(&cluster, &["a", "b", "c"], move || {
        let make = |name: &str, period: u32, placement| {
            let counts = counts.clone();
            let job = Job::new(name, Schedule::every(period * SECOND).unwrap(), move |_run| {
                let counts = counts.clone();
                async move { counts.hold(4 * SECOND).await }
            });
            job.concurrency("database", 2).placement(placement).overlap(Overlap::Allow)
        };
        vec![
            make("one", 5, Placement::AnyWorker),
            make("two", 7, Placement::AnyWorker),
            make("led", 6, Placement::Leader),
        ]
    });
    cluster.advance(120 * SECOND).await;
    let leader = cluster.leader("g").await.unwrap();
    cluster.worker(&leader).stop().await;
    cluster.advance(120 * SECOND).await;
    assert_eq!(active.0.lock().unwrap().1, 2);
    for job in ["one", "two", "led"] {
        assert!(cluster.runs("g", job).await.done().len() >= 8, "{job}");
    }
    let jobs = Jobs::new(&cluster.quorum(), "g").unwrap();
    assert!(jobs.show("one").await.unwrap().rules.contains("at most 2 at once of \"database\""));
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_key_may_name_a_field_of_the_payload() {
    let cluster = Cluster::memory(3);
    let [ann, bob, both] = [(); 3].map(|()| Active::default());
    for name in ["a", "b"] {
        let active = [&ann, &bob, &both].map(Active::clone);
        cluster.worker(name).run(move |process| {
            let [ann, bob, both] = active.clone();
            let scheduler = Scheduler::new(process.quorum(), "g").handler("mail", move |run: RunContext| {
                let of = if run.payload() == br#"{"to":"ann"}"# { ann.clone() } else { bob.clone() };
                let both = both.clone();
                async move { futures_util::future::join(of.hold(6 * SECOND), both.hold(6 * SECOND)).await.0 }
            });
            async move { scheduler.run().until(process.stopped()).await.map_err(|error| error.to_string()) }
        });
    }
    cluster.advance(10 * SECOND).await;
    let jobs = Jobs::new(&cluster.quorum(), "g").unwrap();
    let names = ["mail-1", "mail-2", "mail-3", "mail-4"];
    for (name, to) in names.into_iter().zip(["ann", "bob", "ann", "bob"]) {
        let payload = Payload::json(&BTreeMap::from([("to", to)])).unwrap();
        let job = Job::named(name, Schedule::every(20 * SECOND).unwrap(), "mail").payload(payload);
        jobs.put(&job.concurrency("customer-{to}", 1)).await.unwrap();
    }
    cluster.advance(120 * SECOND).await;
    let most = [&ann, &bob, &both].map(|active| active.0.lock().unwrap().1);
    assert_eq!(most, [1, 1, 2]);
    for name in names {
        assert!(cluster.runs("g", name).await.done().len() >= 4, "{name}");
    }
    // The explanation of a run that waits names the run for the same customer only.
    let mut waited = 0;
    for _second in 0..40 {
        cluster.advance(SECOND).await;
        for (number, name) in names.into_iter().enumerate() {
            let others = [names[(number + 1) % 4], names[(number + 3) % 4]];
            let why = jobs.why(name, None).await.unwrap();
            if why.text.contains("it waits for a run that uses") {
                waited += 1;
                let is_named = |other: &&str| why.evidence.iter().any(|line| line.contains(other));
                assert!(!others.iter().any(is_named), "{name}: {why:#?}");
            }
        }
    }
    assert!(waited > 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_with_labels_runs_only_on_workers_that_have_them_and_says_if_none_has() {
    let cluster = Cluster::memory(3);
    let start = |name: &str, labels: &'static [&'static str]| {
        cluster.worker(name).run(move |process| {
            let job = Job::new("eu", Schedule::every(10 * SECOND).unwrap(), done).on_workers_with(["eu"]);
            let scheduler = Scheduler::new(process.quorum(), "g").labels(labels).job(job);
            async move { scheduler.run().until(process.stopped()).await.map_err(|error| error.to_string()) }
        });
    };
    start("plain", &[]);
    start("us", &["us", "gpu"]);
    cluster.advance(60 * SECOND).await;
    let jobs = Jobs::new(&cluster.quorum(), "g").unwrap();
    let why = jobs.why("eu", None).await.unwrap();
    assert_eq!(why.reason, Reason::NoWorker, "{why:#?}");
    assert!(why.text.ends_with("the labels that it requires: eu"), "{why:#?}");
    assert!(jobs.show("eu").await.unwrap().waits_for.is_some());
    start("europe", &["eu", "gpu"]);
    cluster.advance(60 * SECOND).await;
    let runs = cluster.runs("g", "eu").await;
    let ran: Vec<&str> =
        runs.entries().iter().filter(|entry| entry.attempts > 0).map(|entry| &*entry.worker).collect();
    assert!(ran.len() >= 5 && ran.iter().all(|worker| *worker == "europe"), "{runs}");
    assert!(jobs.show("eu").await.unwrap().waits_for.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_line_of_jobs_runs_once_for_each_end_across_changes_of_the_leader() {
    let cluster = Cluster::memory(3);
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let names = ["a", "b", "c"];
    run(&cluster, &names, move || {
        let failing = Arc::clone(&failing);
        let extract = move |_run| {
            let fails = failing.load(Ordering::Relaxed);
            async move { if fails { Err("no data") } else { Ok(()) } }
        };
        vec![
            Job::new("extract", Schedule::every(20 * SECOND).unwrap(), extract),
            Job::new("load", Schedule::after("extract", AfterEnd::Success), done)
                .placement(Placement::AnyWorker),
            Job::new("publish", Schedule::after("load", AfterEnd::End), done),
            Job::new("alarm", Schedule::after("extract", AfterEnd::Failure), done),
        ]
    });
    for round in 0..6 {
        cluster.advance(40 * SECOND + round * SECOND).await;
        let leader = cluster.leader("g").await.unwrap();
        let worker = cluster.worker(&leader);
        worker.kill();
        cluster.advance(15 * SECOND).await;
        worker.restart();
    }
    cluster.advance(60 * SECOND).await;
    let done = |runs: &quorate_test::Runs| runs.done();
    let extracted = cluster.runs("g", "extract").await;
    for job in ["load", "publish"] {
        let runs = cluster.runs("g", job).await;
        runs.assert_none_twice();
        assert_eq!(done(&runs), done(&extracted), "{job}: {runs}");
    }
    assert!(cluster.runs("g", "alarm").await.entries().is_empty());
    fails.store(true, Ordering::Relaxed);
    let before = done(&cluster.runs("g", "load").await).len();
    cluster.advance(60 * SECOND).await;
    assert_eq!(done(&cluster.runs("g", "alarm").await).len(), 3);
    assert_eq!(done(&cluster.runs("g", "load").await).len(), before);
    let jobs = Jobs::new(&cluster.quorum(), "g").unwrap();
    assert_eq!(&*jobs.show("load").await.unwrap().schedule, "after each success of \"extract\"");
}

#[test]
fn rules_that_contradict_each_other_are_refused_with_both_names() {
    let job = |name: &str| Job::new(name, Schedule::every(SECOND).unwrap(), done);
    let follows = |name: &str, other: &str| Job::new(name, Schedule::after(other, AfterEnd::End), done);
    for (jobs, parts) in [
        (
            vec![job("a").concurrency("db", 1), job("b").concurrency("db", 2)],
            &["\"b\"", "the job \"a\" has 1", "same limit"][..],
        ),
        (vec![job("a").concurrency("db", 0)], &["concurrency limit of the job \"a\" is 0"]),
        (vec![job("a").concurrency("", 1)], &["concurrency key"]),
        (vec![job("a").concurrency("{a", 1)], &["concurrency key", "a brace that encloses no name"]),
        (vec![job("a").on_workers_with(["a,b"])], &["label \"a,b\"", "without commas"]),
        (vec![job("a").pause_after_failures(0)], &["`pause_after_failures` of the job \"a\" is 0"]),
        (vec![follows("a", "b"), follows("b", "a")], &["\"a\" after \"b\" after \"a\", a circle"]),
        (vec![follows("a", "a")], &["\"a\" after \"a\", a circle"]),
        (vec![follows("a", "b").jitter(SECOND)], &["jitter", "after the end of another job"]),
    ] {
        let error = Scheduler::check_jobs(&jobs).unwrap_err().1.to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    assert!(Scheduler::check_jobs(&[job("a"), follows("b", "a"), follows("c", "b")]).is_ok());
}
