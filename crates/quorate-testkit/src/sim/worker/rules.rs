//! The third group: jobs that share a concurrency key, on any worker and on the leader, a job that follows another, a job
//! for workers with a label, one that runs on every worker, and one whose runs all fail.

use super::{WORKERS, Worker};
use crate::sim::{Event, Host, RuleRun, RuleStep, SeedRng, job_run::clock_stood};
use quorate::scheduler::{AfterEnd, Delivery, Job, Overlap, Placement, RunContext, Schedule, Scheduler};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The name of the third group.
pub(in super::super) const RULES: &str = "rules";
/// The largest number of active runs with the key.
pub(in super::super) const KEY_LIMIT: usize = 2;
/// The job that another one follows.
pub(in super::super) const FIRST: &str = "first";
/// The job that follows it.
pub(in super::super) const NEXT: &str = "next";
/// The jobs that share the key, beside the first one.
const OTHERS: [&str; 2] = ["second", "led"];
/// The job that requires [`LABEL`] of its worker.
const LABELLED: &str = "labelled";
/// The job that runs on every worker.
pub(in super::super) const EACH: &str = "each";
/// The job whose runs all fail.
const FAILING: &str = "failing";
/// The number of failed runs in a row after which it is paused.
pub(in super::super) const FAILURES: u32 = 3;
/// The names of all jobs of the group.
pub(in super::super) const RULES_JOBS: [&str; 7] =
    [FIRST, OTHERS[0], OTHERS[1], NEXT, LABELLED, EACH, FAILING];
/// The label of each worker whose number is even.
const LABEL: &str = "even";
/// The number of seeds in a thousand in which the workers run the group.
const SEEDS: u64 = 120;
/// A process that has just been resumed has had no turn to end its runs.
const WAKES_IN: Duration = Duration::from_millis(250);

/// The runs of the third group in true time.
#[derive(Debug, Default)]
pub(in super::super) struct RuleBook(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    /// The active runs with the key, by number: the process, and the true time of the start.
    active: BTreeMap<u64, (Arc<Host>, Duration)>,
    /// The true time at which a run last followed another one.
    followed_at: Option<Duration>,
    /// The true time at which each worker last ran its part of the job that runs on every worker.
    each_at: BTreeMap<String, Duration>,
}

impl RuleBook {
    /// Returns whether a run has followed another one since the true time `since`.
    pub(in super::super) fn followed_since(&self, since: Duration) -> bool {
        self.lock().followed_at.is_some_and(|at| at > since)
    }

    /// Returns whether `workers` workers have run the job that runs on every worker since the true time `since`.
    pub(in super::super) fn ran_on_each_since(&self, since: Duration, workers: usize) -> bool {
        self.lock().each_at.values().filter(|at| **at > since).count() >= workers
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Draws whether the workers run the group.
pub(super) fn draw(seed: u64) -> [bool; WORKERS] {
    // A random stream of its own keeps this draw from changing the other duties.
    let mut rng = SeedRng::new(seed, "rules duties");
    let runs = rng.chance(SEEDS);
    std::array::from_fn(|worker| runs && (worker == 0 || rng.chance(850)))
}

/// Runs schedulers of the group, one after another, until the environment is stopped. Some are dropped.
pub(super) async fn work(mut worker: Worker) {
    let ttl = Duration::from_millis([1_000, 1_500, 2_500][worker.rng.index(3)]);
    while !worker.is_stopped() {
        let pause = worker.rng.millis(5..=300);
        worker.env.sleep(pause).await;
        let (drops, time) = (worker.rng.chance(400), worker.rng.millis_up_to(&[2_000, 6_000]));
        let labels = has_label(&worker.host).then_some(LABEL);
        let scheduler = Scheduler::new(&worker.quorum, RULES).ttl(ttl).labels(labels);
        let scheduler = jobs(&worker).into_iter().fold(scheduler, Scheduler::job);
        let env = worker.env.clone();
        let run = scheduler.run().until(async move { env.stopped().cancelled().await });
        tokio::select! { biased;
            _ = run => {}
            () = worker.patience(time), if drops => worker.referee.count("rules scheduler dropped"),
        }
    }
}

fn jobs(worker: &Worker) -> Vec<Job> {
    let job = |name: &'static str, schedule: Schedule, placement| {
        let worker = worker.clone();
        let job = Job::new(name, schedule, move |tick| run(worker.clone(), name, tick));
        job.placement(placement).overlap(Overlap::Allow)
    };
    let shares =
        |name, period, placement| job(name, millis(period), placement).concurrency("shared", KEY_LIMIT);
    let next = job(NEXT, Schedule::after(FIRST, AfterEnd::Success), Placement::AnyWorker);
    vec![
        shares(FIRST, 700, Placement::AnyWorker),
        shares(OTHERS[0], 500, Placement::AnyWorker).delivery(Delivery::AtMostOnce),
        shares(OTHERS[1], 600, Placement::Leader),
        next.delivery(Delivery::AtMostOnce),
        job(LABELLED, millis(800), Placement::AnyWorker).on_workers_with([LABEL]),
        job(EACH, millis(900), Placement::EveryWorker).delivery(Delivery::AtMostOnce),
        job(FAILING, millis(1_500), Placement::AnyWorker)
            .delivery(Delivery::AtMostOnce)
            .overlap(Overlap::Queue)
            .pause_after_failures(FAILURES),
    ]
}

fn has_label(host: &Host) -> bool {
    (0..WORKERS).step_by(2).any(|worker| **host.name() == *format!("w{worker}"))
}

#[expect(clippy::expect_used, reason = "written by hand")]
fn millis(period: u64) -> Schedule {
    Schedule::every(Duration::from_millis(period)).expect("a sound period")
}

/// A run of the key in the book. It is taken out when the run ends or is dropped.
struct InBook(Worker, u64);

impl Drop for InBook {
    fn drop(&mut self) {
        self.0.outside.rules.lock().active.remove(&self.1);
    }
}

async fn run(worker: Worker, job: &'static str, tick: RunContext) -> Result<(), String> {
    let number = worker.referee.next_number();
    let mut rng = SeedRng::new(worker.seed, &format!("rules run {number}"));
    let is_sound = tick.fencing_token().is_ok() && !clock_stood(&worker.host);
    let now = worker.referee.truth().now();
    let tell = |step| {
        let run = RuleRun { worker: Arc::clone(worker.host.name()), job, tick: tick.scheduled_at(), step };
        worker.referee.judge(&Event::Ruled(&run));
    };
    let mut in_book = None;
    if job == NEXT {
        worker.outside.rules.lock().followed_at = Some(now);
        tell(RuleStep::Follows);
    } else if job == LABELLED {
        tell(RuleStep::NeedsLabel { has_it: has_label(&worker.host) });
    } else if job == FAILING {
        // A run that is asked to stop ends as cancelled, which is no failure.
        if !tick.cancellation_token().is_cancelled() {
            tell(RuleStep::Fails);
        }
        return Err("on purpose".to_owned());
    } else if job == EACH {
        let part = tick.job().to_string();
        worker.outside.rules.lock().each_at.insert(part.clone(), now);
        tell(RuleStep::OnEvery { part });
    } else {
        let awake =
            |host: &Host| host.awake_since().is_some_and(|since| now.saturating_sub(since) >= WAKES_IN);
        let mut book = worker.outside.rules.lock();
        let judged = book.active.values().filter(|(host, _)| is_sound && awake(host) && !clock_stood(host));
        let beside: Vec<Duration> = judged.map(|(_, began)| *began).collect();
        book.active.insert(number, (Arc::clone(&worker.host), now));
        drop(book);
        in_book = Some(InBook(worker.clone(), number));
        tell(RuleStep::Begins { beside });
    }
    let calm = worker.referee.is_calm();
    let time = if calm { rng.millis(0..=20) } else { rng.millis(50..=1_500) };
    tokio::select! { biased;
        () = tick.cancellation_token().cancelled() => return Err("stopped".to_owned()),
        () = worker.env.sleep(time) => {}
    }
    if !calm && rng.chance(200) {
        return Err("on purpose".to_owned());
    }
    drop(in_book);
    tell(RuleStep::Done);
    Ok(())
}

/// The ticks of which the runs have ended as [`AfterEnd::Success`] says.
pub(in super::super) type DoneTicks = BTreeSet<quorate::env::WallTime>;
