//! Tests of jobs that are placed on any worker, on real servers. The leader assigns each run to a
//! worker, which executes it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

use quorate::{
    election::Election,
    env::Env,
    quorum::Quorum,
    scheduler::{
        Delivery, HistoryEntry, Job, Jobs, Misfire, Overlap, Placement, RunContext, RunOutcome, Schedule,
        Scheduler,
    },
};
use quorate_testkit::redis::RedisCluster;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{runtime::Runtime, sync::mpsc};
use tokio_util::sync::CancellationToken;

/// A time limit that a healthy run never reaches, even on a slow machine.
const BOUND: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(2);
const MINUTE: Duration = Duration::from_secs(60);

/// The runs of each tick, by the tick's time in microseconds. For each run: the name of its worker, and
/// whether it was a catch-up run.
type Starts = Arc<Mutex<BTreeMap<u64, Vec<(&'static str, bool)>>>>;

fn servers() -> RedisCluster {
    RedisCluster::start(5).unwrap_or_else(|error| panic!("{error}"))
}

/// A worker with a runtime of its own, so that it behaves like a separate process. If the runtime is shut down
/// in the background, the worker disappears without releasing anything.
struct Worker {
    runtime: Runtime,
    scheduler: Scheduler,
    stop: CancellationToken,
    ended: mpsc::UnboundedReceiver<()>,
}

impl Worker {
    /// Starts a worker that runs `job`. It becomes a candidate for leadership only if `may_lead` is true.
    fn start(name: &str, urls: &[String], may_lead: bool, job: Job) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let stop = CancellationToken::new();
        let (ended_tx, ended) = mpsc::unbounded_channel();
        let quorum = {
            let _inside = runtime.enter();
            Quorum::redis(urls).unwrap().trust_new_nodes(true).worker(name).build().unwrap()
        };
        let election = Election::new(&quorum, "g").eligible_while(move || may_lead);
        let scheduler = Scheduler::on(&election).ttl(TTL).job(job);
        let (run, stopped) = (scheduler.run(), stop.clone());
        let _running = runtime.spawn(async move {
            run.until(stopped.cancelled_owned()).await.unwrap();
            quorum.close().await;
            let _ = ended_tx.send(());
        });
        Self { runtime, scheduler, stop, ended }
    }

    /// Stops the worker in order, as a shutdown does.
    async fn stop(mut self) {
        self.stop.cancel();
        soon("the end of a worker", self.ended.recv()).await;
        self.runtime.shutdown_background();
    }

    /// Stops the worker as SIGKILL would. The worker releases nothing.
    fn kill(self) {
        self.runtime.shutdown_background();
    }
}

fn job(delivery: Delivery, period: Duration, who: &'static str, starts: &Starts) -> Job {
    let starts = Arc::clone(starts);
    let job = Job::new("j", Schedule::every(period).unwrap(), move |tick: RunContext| {
        note(&starts, who, &tick);
        async { Ok::<_, String>(()) }
    });
    rules(job, delivery)
}

/// Returns a job whose first run never ends, and a channel on which the test receives the tick of that run.
fn hanging(who: &'static str, starts: &Starts) -> (Job, mpsc::UnboundedReceiver<u64>) {
    let (ticks, hangs) = mpsc::unbounded_channel();
    let (noted, first) = (Arc::clone(starts), Arc::new(AtomicBool::new(true)));
    let job = Job::new("j", Schedule::every(Duration::from_millis(100)).unwrap(), move |tick: RunContext| {
        note(&noted, who, &tick);
        let hangs = first.swap(false, Ordering::AcqRel);
        if hangs {
            let _ = ticks.send(tick.scheduled_at().as_micros());
        }
        async move { if hangs { std::future::pending().await } else { Ok::<(), String>(()) } }
    });
    (job, hangs)
}

fn rules(job: Job, delivery: Delivery) -> Job {
    let job = job.placement(Placement::AnyWorker).overlap(Overlap::Allow).delivery(delivery);
    job.misfire(Misfire::run_all(MINUTE)).history(10_000)
}

fn note(starts: &Starts, who: &'static str, tick: &RunContext) {
    assert!(tick.fencing_token().is_ok() && tick.term().is_none(), "it runs under a claim");
    starts
        .lock()
        .unwrap()
        .entry(tick.scheduled_at().as_micros())
        .or_default()
        .push((who, tick.is_catch_up()));
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let env = Env::system();
    env.before(env.now() + BOUND, work)
        .await
        .unwrap_or_else(|| panic!("timed out after {BOUND:?} waiting for {what}"))
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    soon(what, async {
        while !holds() {
            Env::system().sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Returns the history of the job `j` as the servers store it: its entries by tick.
fn history(cluster: &RedisCluster) -> BTreeMap<u64, Vec<HistoryEntry>> {
    let mut all: BTreeMap<String, HistoryEntry> = BTreeMap::new();
    for server in cluster.iter() {
        let fields = server.command(&["HGETALL", "quorate:ledger/g{history:j}"]);
        let lines: Vec<&str> = fields.lines().collect();
        for pair in lines.chunks(2) {
            if let [field, value] = pair
                && let Some(key) = field.strip_prefix("r:")
            {
                let value = value.splitn(4, ':').nth(3).unwrap();
                all.insert(key.to_owned(), HistoryEntry::parse(value).unwrap());
            }
        }
    }
    let mut ticks: BTreeMap<u64, Vec<HistoryEntry>> = BTreeMap::new();
    for entry in all.into_values() {
        ticks.entry(entry.tick.as_micros()).or_default().push(entry);
    }
    ticks
}

/// Waits until the history has entries for a tick, and returns the outcome and the worker of each.
async fn ended(cluster: &RedisCluster, tick: u64) -> Vec<(RunOutcome, String)> {
    until("its end", || history(cluster).contains_key(&tick)).await;
    let entries = history(cluster).remove(&tick).unwrap();
    entries.into_iter().map(|entry| (entry.end, entry.worker.to_string())).collect()
}

#[tokio::test]
async fn every_tick_runs_once_on_one_of_three_workers() {
    const PERIOD: Duration = Duration::from_millis(50);
    let cluster = servers();
    for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
        cluster.iter().for_each(|server| drop(server.command(&["FLUSHALL"])));
        let starts = Starts::default();
        let workers = ["a", "b", "c"]
            .map(|who| Worker::start(who, &cluster.urls(), who == "a", job(delivery, PERIOD, who, &starts)));
        until("150 ticks", || starts.lock().unwrap().len() >= 150).await;
        let begun: Vec<u64> = starts.lock().unwrap().keys().copied().collect();
        // The leader writes a history entry only after the end of the run, so the test waits for the entries.
        until("the history", || {
            let history = history(&cluster);
            begun.iter().all(|tick| history.contains_key(tick))
        })
        .await;
        for worker in workers {
            worker.stop().await;
        }
        let starts = starts.lock().unwrap();
        let twice: Vec<_> = starts.iter().filter(|(_, by)| by.len() != 1).collect();
        assert!(twice.is_empty(), "{delivery}: {twice:?}");
        let (first, last) = (starts.keys().next().unwrap(), starts.keys().last().unwrap());
        let due = (last - first) / u64::try_from(PERIOD.as_micros()).unwrap() + 1;
        let history = history(&cluster);
        let period = u64::try_from(PERIOD.as_micros()).unwrap();
        let missing =
            (0..due).map(|number| first + number * period).filter(|tick| !starts.contains_key(tick));
        let missing: Vec<_> = missing.map(|tick| (tick, history.get(&tick))).collect();
        assert!(missing.is_empty(), "{delivery}: of {due} up to {last}: {missing:#?}");
        // How the runs are distributed depends on the machine. But a second worker must have executed at least
        // five ticks.
        let count = |who| starts.values().flatten().filter(|(by, _)| *by == who).count();
        let counts = ["a", "b", "c"].map(count);
        assert!(counts.iter().filter(|count| **count >= 5).count() > 1, "{delivery}: {counts:?}");
        for tick in &begun {
            let ends: Vec<_> = history.get(tick).into_iter().flatten().map(|entry| entry.end).collect();
            assert_eq!(ends, [RunOutcome::Done], "{delivery}: {tick}");
        }
    }
}

/// Checks a tick whose worker is killed while it runs the tick. Another worker keeps running.
#[tokio::test]
async fn a_killed_workers_tick_runs_again_or_is_recorded_as_lost() {
    for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
        let cluster = servers();
        let starts = Starts::default();
        let (hanging, mut hangs) = hanging("a", &starts);
        let a = Worker::start("a", &cluster.urls(), false, rules(hanging, delivery));
        let period = Duration::from_millis(100);
        let b = Worker::start("b", &cluster.urls(), true, job(delivery, period, "b", &starts));
        let tick = soon("a tick that hangs", hangs.recv()).await.unwrap();
        // The claim on the tick must be extended as long as its worker lives. Forty more ticks take longer than
        // a claim lasts without an extension.
        let more = starts.lock().unwrap().len() + 40;
        until("40 more ticks", || starts.lock().unwrap().len() >= more).await;
        assert_eq!(starts.lock().unwrap()[&tick], [("a", false)], "{delivery}");
        a.kill();
        match delivery {
            Delivery::AtLeastOnce => {
                until("its second run", || starts.lock().unwrap()[&tick].len() > 1).await;
                assert_eq!(starts.lock().unwrap()[&tick], [("a", false), ("b", true)]);
                assert_eq!(ended(&cluster, tick).await, [(RunOutcome::Done, "b".to_owned())]);
            }
            Delivery::AtMostOnce => {
                assert_eq!(ended(&cluster, tick).await, [(RunOutcome::Lost, "a".to_owned())]);
                assert_eq!(starts.lock().unwrap()[&tick], [("a", false)], "never again");
            }
        }
        b.stop().await;
        let starts = starts.lock().unwrap();
        let others: Vec<_> = starts.iter().filter(|(at, by)| **at != tick && by.len() != 1).collect();
        assert!(others.is_empty(), "{delivery}: {others:?}");
    }
}

/// Checks a tick that is recorded as started when all workers end. The next worker that joins records its
/// outcome.
#[tokio::test]
async fn a_tick_without_a_live_worker_is_ended_by_the_next_worker() {
    for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
        let cluster = servers();
        let starts = Starts::default();
        let (hanging, mut hangs) = hanging("a", &starts);
        let a = Worker::start("a", &cluster.urls(), true, rules(hanging, delivery));
        let tick = soon("a tick that hangs", hangs.recv()).await.unwrap();
        a.kill();
        let period = Duration::from_millis(100);
        let b = Worker::start("b", &cluster.urls(), true, job(delivery, period, "b", &starts));
        until("its end", || history(&cluster).contains_key(&tick)).await;
        // Ticks that were due while no worker ran get catch-up runs, because of the misfire rule run-all. The killed
        // worker may have taken the first of them.
        let has_started = |tick: &u64| starts.lock().unwrap().contains_key(tick);
        let is_lost = |tick: &u64| {
            history(&cluster).get(tick).is_some_and(|entries| entries[0].end == RunOutcome::Lost)
        };
        let next: Vec<u64> = (1..=20).map(|number| tick + number * 100_000).collect();
        until("the next ticks", || next.iter().all(|tick| has_started(tick) || is_lost(tick))).await;
        b.stop().await;
        let runs = starts.lock().unwrap()[&tick].clone();
        let end = history(&cluster)[&tick].iter().map(|entry| entry.end).collect::<Vec<_>>();
        match delivery {
            Delivery::AtLeastOnce => {
                assert_eq!((&*runs, &*end), (&[("a", false), ("b", true)][..], &[RunOutcome::Done][..]));
            }
            Delivery::AtMostOnce => {
                assert_eq!((&*runs, &*end), (&[("a", false)][..], &[RunOutcome::Lost][..]));
            }
        }
    }
}

/// Checks that a worker that stops gives back the tick that it runs. Another worker then runs the tick at once,
/// and does not wait until the claim expires.
#[tokio::test]
async fn a_stopping_worker_gives_its_tick_back() {
    let cluster = servers();
    let starts = Starts::default();
    let (ticks, mut begun) = mpsc::unbounded_channel();
    let noted = Arc::clone(&starts);
    let patient =
        Job::new("j", Schedule::every(Duration::from_millis(100)).unwrap(), move |tick: RunContext| {
            note(&noted, "a", &tick);
            let _ = ticks.send(tick.scheduled_at().as_micros());
            async move {
                tick.cancellation_token().cancelled().await;
                Err("cancelled".to_owned())
            }
        });
    let b = Worker::start("b", &cluster.urls(), true, {
        job(Delivery::AtLeastOnce, Duration::from_millis(100), "b", &starts)
    });
    let a = Worker::start("a", &cluster.urls(), false, rules(patient, Delivery::AtLeastOnce));
    let tick = soon("a tick", begun.recv()).await.unwrap();
    a.stop().await;
    until("its end", || history(&cluster).contains_key(&tick)).await;
    b.stop().await;
    assert_eq!(starts.lock().unwrap()[&tick], [("a", false), ("b", true)]);
    let ends: Vec<_> = history(&cluster)[&tick].iter().map(|entry| entry.end).collect();
    assert_eq!(ends, [RunOutcome::Done], "the interrupted run is not an outcome");
}

/// Checks a job whose placement changes from any worker to the leader and back.
#[tokio::test]
async fn a_job_that_changes_its_placement_runs_no_tick_twice() {
    let cluster = servers();
    let starts = Starts::default();
    let period = Duration::from_millis(100);
    let noted = Arc::clone(&starts);
    let both = Job::new("j", Schedule::every(period).unwrap(), move |tick: RunContext| {
        let who = if tick.term().is_some() { "leader" } else { "any" };
        noted
            .lock()
            .unwrap()
            .entry(tick.scheduled_at().as_micros())
            .or_default()
            .push((who, tick.is_catch_up()));
        async { Ok::<_, String>(()) }
    });
    let both = rules(both, Delivery::AtMostOnce);
    let worker = Worker::start("a", &cluster.urls(), true, both.clone());
    let count = |who| starts.lock().unwrap().values().flatten().filter(|(by, _)| *by == who).count();
    let handle = worker.scheduler.handle();
    for round in 1..=2 {
        until("ticks on any worker", || count("any") > 5 * round).await;
        handle.set_jobs(vec![both.clone().placement(Placement::Leader)]).unwrap();
        until("ticks on the leader", || count("leader") > 5 * round).await;
        handle.set_jobs(vec![both.clone()]).unwrap();
    }
    worker.stop().await;
    let twice: Vec<_> = starts.lock().unwrap().clone().into_iter().filter(|(_, by)| by.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let doubled: Vec<_> = history(&cluster).into_iter().filter(|(_, entries)| entries.len() > 1).collect();
    assert!(doubled.is_empty(), "skipped and run: {doubled:?}");
}

#[tokio::test]
async fn a_paused_job_runs_nowhere_and_a_drained_worker_ends_with_its_runs() {
    let cluster = servers();
    let starts = Starts::default();
    let period = Duration::from_millis(100);
    let mut worker =
        Worker::start("a", &cluster.urls(), true, job(Delivery::AtMostOnce, period, "a", &starts));
    until("the first ticks", || starts.lock().unwrap().len() > 2).await;
    let quorum = Quorum::redis(cluster.urls()).unwrap().trust_new_nodes(true).worker("ops").build().unwrap();
    let jobs = Jobs::new(&quorum, "g").unwrap().requester("ops@here");
    soon("an answer", jobs.pause("j")).await.unwrap();
    let env = Env::system();
    let count = || starts.lock().unwrap().len();
    soon("the end of its ticks", async {
        let mut before = 0;
        while count() != before {
            before = count();
            env.sleep(period * 10).await;
        }
    })
    .await;
    let before = count();
    soon("an answer", jobs.resume("j")).await.unwrap();
    until("the next ticks", || count() > before + 3).await;
    let skipped = || {
        let all = history(&cluster).into_values().flatten();
        all.filter(|entry| entry.end == RunOutcome::SkippedPaused).collect::<Vec<_>>()
    };
    until("the skipped ticks", || !skipped().is_empty()).await;
    let ran = starts.lock().unwrap().clone();
    let both: Vec<_> =
        skipped().into_iter().filter(|entry| ran.contains_key(&entry.tick.as_micros())).collect();
    assert!(both.is_empty(), "skipped and run: {both:?}");
    quorum.close().await;

    let handle = worker.scheduler.handle();
    soon("the end of what runs", handle.drain()).await;
    let count = starts.lock().unwrap().len();
    soon("the end of a worker", worker.ended.recv()).await;
    worker.runtime.shutdown_background();
    Env::system().sleep(period * 3).await;
    assert_eq!(starts.lock().unwrap().len(), count, "nothing is started after a drain");
}

#[tokio::test]
async fn cancelled_runs_are_not_repeated_and_a_triggered_run_runs_once() {
    let cluster = servers();
    let starts = Starts::default();
    let job = |who: &'static str| {
        let starts = Arc::clone(&starts);
        let job = Job::new("j", Schedule::every(Duration::from_secs(1)).unwrap(), move |tick: RunContext| {
            let asked_for = tick.cause().request().is_some();
            if !asked_for {
                note(&starts, who, &tick);
            }
            async move {
                if asked_for {
                    return Ok(());
                }
                tick.cancellation_token().cancelled().await;
                // A handler cannot distinguish a cancellation from a step-down. So it marks the run as
                // interrupted in both cases.
                tick.mark_interrupted();
                Err("cancelled")
            }
        });
        // The job is at-least-once. A run that was cancelled on request must not be repeated nevertheless.
        rules(job, Delivery::AtLeastOnce)
    };
    let workers = [("a", true), ("b", false)]
        .map(|(name, may_lead)| Worker::start(name, &cluster.urls(), may_lead, job(name)));
    let running = || {
        let starts = starts.lock().unwrap();
        starts.values().flatten().map(|(who, _)| *who).collect::<BTreeSet<_>>().len()
    };
    until("a run on each", || running() == 2).await;
    let quorum = Quorum::redis(cluster.urls()).unwrap().trust_new_nodes(true).worker("ops").build().unwrap();
    let jobs = Jobs::new(&quorum, "g").unwrap().requester("ops@here");
    let before: Vec<u64> = starts.lock().unwrap().keys().copied().collect();
    // A worker that is being drained starts no new run. It must still receive the request to cancel its active
    // run.
    let drained = workers[1].scheduler.handle();
    let drained = soon("the end of what the drained one runs", drained.drain());
    let (answer, ()) = tokio::join!(soon("an answer", jobs.cancel("j", None)), drained);
    let answer = answer.unwrap();
    assert!(answer.count >= 2, "{answer:?}");
    let ends = |tick: &u64| history(&cluster).remove(tick).unwrap_or_default();
    until("the end of what ran", || before.iter().take(2).all(|tick| !ends(tick).is_empty())).await;
    for tick in before.iter().take(2) {
        let entry = &ends(tick)[0];
        assert_eq!(
            (entry.end, &*entry.reason),
            (RunOutcome::Cancelled, "on request of ops@here"),
            "{entry:?}"
        );
    }
    let triggered = soon("an answer", jobs.trigger("j")).await.unwrap();
    let of_trigger = || {
        let all = history(&cluster).into_values().flatten();
        all.filter(|entry| entry.cause.request() == Some(triggered.id)).collect::<Vec<_>>()
    };
    until("the end of what was triggered", || !of_trigger().is_empty()).await;
    let ended = of_trigger();
    let [entry] = &ended[..] else { panic!("one run: {ended:?}") };
    assert_eq!(
        (entry.end, &*entry.worker),
        (RunOutcome::Done, "a"),
        "the other worker is drained: {entry:?}"
    );
    quorum.close().await;
    for worker in workers {
        worker.stop().await;
    }
    let starts = starts.lock().unwrap();
    let again: Vec<_> = before.iter().take(2).filter(|tick| starts[tick].len() > 1).collect();
    assert!(again.is_empty(), "run again though they were cancelled: {again:?}");
}
