//! Tests of jobs that are stored on the nodes, through the public interface, with memory nodes and the real clock.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{SECOND, nodes, quorum};
use quorate::{
    Quorum, SettingError,
    env::{Env, ScopedTask},
    internals::Expect,
    node::MemoryNode,
    scheduler::{Job, Jobs, JobsError, Payload, Placement, RunContext, RunOutcome, Schedule, Scheduler},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const MS: Duration = Duration::from_millis(1);

/// The runs that were executed: the worker, the job, and the payload.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Vec<(String, String, String)>>>);

impl Runs {
    fn of(&self, job: &str) -> Vec<(String, String)> {
        let runs = self.0.lock().expect("no panic");
        runs.iter()
            .filter(|(_, of, _)| of == job)
            .map(|(who, _, payload)| (who.clone(), payload.clone()))
            .collect()
    }

    fn handler(
        &self,
        worker: &str,
    ) -> impl Fn(RunContext) -> std::future::Ready<Result<(), SettingError>> + Send + Sync + 'static {
        let (runs, worker) = (self.clone(), worker.to_owned());
        move |run: RunContext| {
            let payload = String::from_utf8_lossy(run.payload()).into_owned();
            runs.0.lock().expect("no panic").push((worker.clone(), run.job().to_string(), payload));
            std::future::ready(Ok(()))
        }
    }
}

/// A worker that runs until it is dropped.
struct Worker {
    quorum: Quorum,
    stop: CancellationToken,
    _task: ScopedTask<()>,
}

impl Worker {
    /// Starts a worker with these handlers.
    fn start(name: &str, nodes: &[MemoryNode], handlers: &[&str], runs: &Runs) -> Self {
        let quorum = quorum(name, nodes);
        let scheduler = Scheduler::new(&quorum, "g").ttl(SECOND);
        let scheduler = handlers
            .iter()
            .fold(scheduler, |scheduler, handler| scheduler.handler(handler, runs.handler(name)));
        Self::run(quorum, &scheduler)
    }

    fn run(quorum: Quorum, scheduler: &Scheduler) -> Self {
        let stop = CancellationToken::new();
        let run = scheduler.run().until(stop.clone().cancelled_owned());
        let task = quorum.env().spawn_scoped(async move { run.await.expect("no error") });
        Self { quorum, stop, _task: task }
    }

    fn jobs(&self) -> Jobs {
        Jobs::new(&self.quorum, "g").expect("a name").wait(20 * SECOND)
    }

    async fn stop(self) {
        self.stop.cancel();
        self._task.await.expect("no panic");
        self.quorum.close().await;
    }
}

async fn until(env: &Env, what: &str, is_so: impl Fn() -> bool) {
    let give_up = env.now() + 30 * SECOND;
    while !is_so() {
        assert!(env.now() < give_up, "{what}");
        env.sleep(20 * MS).await;
    }
}

fn often(name: &str, handler: &str) -> Job {
    Job::named(name, Schedule::every(200 * MS).expect("a period"), handler)
}

#[tokio::test]
async fn a_stored_job_runs_where_its_handler_is_under_every_leader_until_it_is_removed() {
    let (nodes, runs) = (nodes(), Runs::default());
    let first = Worker::start("first", &nodes, &[], &runs);
    let env = first.quorum.env().clone();
    let job = often("beat", "mail").payload(Payload::json(&["you"]).expect("short"));
    first.jobs().put(&job).await.expect("it is stored");
    let second = Worker::start("second", &nodes, &["mail"], &runs);
    until(&env, "it runs on the worker with the handler", || runs.of("beat").len() > 2).await;
    let ran = runs.of("beat");
    assert!(ran.iter().all(|(worker, payload)| worker == "second" && payload == "[\"you\"]"), "{ran:?}");

    // Another worker leads now, and finds the job on the nodes.
    first.stop().await;
    let before = runs.of("beat").len();
    until(&env, "it runs under the next leader", || runs.of("beat").len() > before + 2).await;

    let jobs = second.jobs();
    let stored = jobs.stored_job("beat").await.expect("a majority").expect("it is stored");
    assert_eq!(stored.job.as_ref().map(|job| job.handler_name().map(|name| &**name)), Ok(Some("mail")));
    let status = jobs.show("beat").await.expect("a majority");
    assert!(status.rules.contains("handler mail"), "{}", status.rules);
    jobs.remove("beat").await.expect("it is removed");
    // One run may have been started at the moment of the removal.
    env.sleep(500 * MS).await;
    let before = runs.of("beat").len();
    env.sleep(SECOND).await;
    assert_eq!(runs.of("beat").len(), before, "a removed job does not run");
    let error = jobs.remove("beat").await.expect_err("it is removed already");
    assert!(matches!(error, JobsError::UnknownJob { .. }), "{error}");
    assert!(jobs.history("beat", 5).await.expect("a majority").iter().any(|end| end.end == RunOutcome::Done));
    let audit: Vec<_> = jobs
        .audit(5)
        .await
        .expect("a majority")
        .into_iter()
        .map(|entry| format!("{:?}", entry.what))
        .collect();
    assert!(audit[0].starts_with("Remove") && audit[1].starts_with("Put"), "{audit:?}");
    assert!(!audit[1].contains("bytes"), "the audit list has no payloads: {audit:?}");
    second.stop().await;
}

#[tokio::test]
async fn a_single_run_runs_once_with_its_payload_and_is_then_removed() {
    let (nodes, runs) = (nodes(), Runs::default());
    let worker = Worker::start("w", &nodes, &["mail"], &runs);
    let (env, jobs) = (worker.quorum.env().clone(), worker.jobs());
    // The leader has to exist first, so that the times are not past.
    jobs.put(&often("first", "mail")).await.expect("it is stored");
    let due = worker.quorum.wall() + SECOND;
    let singles: Vec<Job> = (0..50_u8)
        .map(|number| {
            let payload = Payload::new([0xff, number]).expect("short");
            Job::named(&format!("once-{number}"), Schedule::at(due + MS * u32::from(number)), "mail")
                .payload(payload)
        })
        .collect();
    jobs.put_all(&singles).await.expect("they are stored");
    until(&env, "each runs", || singles.iter().all(|job| !runs.of(job.name()).is_empty())).await;
    let left = async || jobs.stored().await.expect("a majority").len();
    let give_up = env.now() + 20 * SECOND;
    while left().await > 1 {
        assert!(env.now() < give_up, "single runs are left");
        env.sleep(50 * MS).await;
    }
    assert!(singles.iter().all(|job| runs.of(job.name()).len() == 1), "each runs once");
    // The entry is written a few milliseconds after the end of the run is recorded.
    let entered = async || jobs.history("once-7", 5).await.unwrap_or_default();
    while entered().await.is_empty() {
        assert!(env.now() < give_up, "it has no entry");
        env.sleep(20 * MS).await;
    }
    let once = entered().await;
    assert_eq!(once.iter().map(|end| end.end).collect::<Vec<_>>(), [RunOutcome::Done]);
    let past = Job::named("late", Schedule::at(worker.quorum.wall() - SECOND), "mail");
    let error = jobs.put(&past).await.expect_err("its time is past").to_string();
    assert!(error.contains("which is past; give a later time"), "{error}");
    worker.stop().await;
}

#[tokio::test]
async fn a_trigger_carries_a_payload_to_any_job() {
    let (nodes, runs) = (nodes(), Runs::default());
    let quorum = quorum("w", &nodes);
    let never = || Schedule::at(quorum.wall() + 3600 * SECOND);
    let own = Job::new("own", never(), runs.handler("w"));
    let open = Job::new("open", never(), runs.handler("w")).placement(Placement::AnyWorker);
    let scheduler =
        Scheduler::new(&quorum, "g").ttl(SECOND).job(own).job(open).handler("mail", runs.handler("w"));
    let stored = Job::named("stored", never(), "mail").payload(Payload::new("usual").expect("short"));
    let worker = Worker::run(quorum.clone(), &scheduler);
    let (env, jobs) = (quorum.env().clone(), worker.jobs());
    jobs.put(&stored).await.expect("it is stored");
    for job in ["own", "open", "stored"] {
        until(&env, "it is registered", || true).await;
        jobs.trigger_with(job, Payload::new("asked").expect("short")).await.expect("it is accepted");
        until(&env, job, || runs.of(job) == [("w".to_owned(), "asked".to_owned())]).await;
    }
    jobs.trigger("stored").await.expect("it is accepted");
    until(&env, "the job's own payload", || runs.of("stored").len() == 2).await;
    assert_eq!(runs.of("stored")[1].1, "usual");
    worker.stop().await;
}

#[tokio::test]
async fn a_job_has_one_place_and_a_change_is_refused_if_another_was_first() {
    let (nodes, runs) = (nodes(), Runs::default());
    let quorum = quorum("w", &nodes);
    let own = Job::new("own", Schedule::every(SECOND).expect("a period"), runs.handler("w"));
    let worker = Worker::run(quorum.clone(), &Scheduler::new(&quorum, "g").ttl(SECOND).job(own));
    let jobs = worker.jobs();
    let put = async |job: &Job, expect| {
        let action = Jobs::put_action(std::slice::from_ref(job), expect).expect("it can be stored");
        jobs.send(action).await.map(|accepted| accepted.id).map_err(|error| error.to_string())
    };
    let error = put(&often("own", "mail"), None).await.expect_err("two places");
    assert!(
        error.contains("in the configuration or the program of the leader w")
            && error.contains("on the nodes"),
        "{error}"
    );
    let error = jobs.remove("own").await.expect_err("it is not on the nodes").to_string();
    assert!(error.contains("in the configuration or the program of workers"), "{error}");

    let version = put(&often("new", "mail"), Some(Expect::Absent)).await.expect("it is new");
    let error = put(&often("new", "mail"), Some(Expect::Absent)).await.expect_err("it exists");
    assert!(error.contains("is stored on the nodes already, by w"), "{error}");
    put(&often("new", "post"), Some(Expect::Version(version))).await.expect("it is unchanged");
    let error = put(&often("new", "mail"), Some(Expect::Version(version))).await.expect_err("it was changed");
    assert!(error.contains("was changed meanwhile, by w"), "{error}");

    let timeless = Job::new("own-2", Schedule::every(SECOND).expect("a period"), runs.handler("w"));
    let error = jobs.put(&timeless).await.expect_err("it has a function").to_string();
    assert!(error.contains("use Job::named"), "{error}");
    let error = jobs.put(&often("a/b", "mail")).await.expect_err("its name").to_string();
    assert!(error.contains("without slashes"), "{error}");
    let error = jobs.put_all(&[]).await.expect_err("nothing").to_string();
    assert!(error.contains("give at least one job"), "{error}");
    let error =
        jobs.put_all(&[often("twice", "mail"), often("twice", "mail")]).await.expect_err("twice").to_string();
    assert!(error.contains("two jobs called \"twice\""), "{error}");
    assert!(jobs.stored_job("twice").await.expect("a majority").is_none(), "none of them is stored");
    worker.stop().await;
}
