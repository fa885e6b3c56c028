//! The second group, also called the pool. Some of its jobs run on any worker, the others on its leader. An
//! operator sends requests to the group.

use super::{Worker, stored};
use crate::sim::{HandlerEnd, JobRun, SeedRng};
use quorate::scheduler::{Cron, Delivery, Job, Misfire, Overlap, Placement, RunContext, Schedule, Scheduler};
use std::{
    panic::resume_unwind,
    sync::{Arc, LazyLock},
    time::Duration,
};

/// The name of the second group.
pub(in super::super) const POOL: &str = "pool";
/// A misfire window that is longer than the simulation. The leader must not skip any tick of a job with this
/// window as missed.
const FOR_GOOD: Duration = Duration::from_secs(300);
/// The number of entries that a job with a short history keeps.
const SHORT: usize = 6;
/// The number of entries that the other jobs keep. No run of the simulation makes more.
const LONG: usize = 1_000;

/// A job of the second group. All workers have the same jobs.
#[derive(Clone, Debug)]
pub(in super::super) struct PoolSpec {
    pub(in super::super) name: &'static str,
    pub(in super::super) schedule: Schedule,
    pub(in super::super) placement: Placement,
    pub(in super::super) delivery: Delivery,
    pub(in super::super) misfire: Misfire,
    pub(in super::super) overlap: Overlap,
    pub(in super::super) timeout: Option<Duration>,
    /// The number of history entries that the job keeps.
    pub(in super::super) history: usize,
    /// Lets the operator pause the job.
    pub(in super::super) pausable: bool,
}

impl PoolSpec {
    /// Returns `true` if any worker may run the job's ticks.
    pub(in super::super) fn is_any_worker(&self) -> bool {
        self.placement != Placement::Leader
    }

    /// Returns `true` if every missed tick gets a catch-up run, however late.
    pub(in super::super) fn catches_up_all(&self) -> bool {
        self.misfire == Misfire::run_all(FOR_GOOD)
    }
}

/// Returns the jobs of the second group. They have both placements, both delivery rules, and several
/// misfire and overlap rules.
pub(in super::super) fn pool_specs() -> &'static [PoolSpec] {
    static SPECS: LazyLock<Vec<PoolSpec>> = LazyLock::new(make_pool_specs);
    &SPECS
}

fn make_pool_specs() -> Vec<PoolSpec> {
    let second = Duration::from_secs(1);
    use Delivery::{AtLeastOnce, AtMostOnce};
    // By the rules of most jobs, every tick runs, on any worker, and two ticks of a job never run at once.
    let spec = |name, period, delivery| PoolSpec {
        name,
        schedule: millis(period),
        placement: Placement::AnyWorker,
        delivery,
        misfire: Misfire::run_all(FOR_GOOD),
        overlap: Overlap::Queue,
        timeout: Some(second),
        history: LONG,
        pausable: false,
    };
    let skip = PoolSpec {
        misfire: Misfire::Skip,
        overlap: Overlap::Skip,
        timeout: None,
        history: SHORT,
        pausable: true,
        ..spec("any-skip", 1_700, AtLeastOnce)
    };
    let allow = PoolSpec {
        schedule: cron("*/2 * * * * *"),
        misfire: Misfire::run_once(4 * second),
        overlap: Overlap::Allow,
        ..spec("any-allow", 1_000, AtMostOnce)
    };
    let leader = PoolSpec {
        placement: Placement::Leader,
        history: SHORT,
        pausable: true,
        ..spec("led", 1_600, AtLeastOnce)
    };
    let leader_once = PoolSpec {
        placement: Placement::Leader,
        overlap: Overlap::Skip,
        ..spec("led-once", 2_100, AtMostOnce)
    };
    vec![
        PoolSpec { timeout: Some(2 * second), ..spec("any-once", 1_300, AtMostOnce) },
        spec("any-each", 1_500, AtLeastOnce),
        skip,
        allow,
        leader,
        leader_once,
    ]
}

#[expect(clippy::expect_used, reason = "written by hand")]
fn millis(period: u64) -> Schedule {
    Schedule::every(Duration::from_millis(period)).expect("a period of more than zero")
}

#[expect(clippy::expect_used, reason = "written by hand")]
fn cron(text: &str) -> Schedule {
    Cron::parse(text).expect("a cron line").into()
}

/// Runs schedulers of the second group, one after another, until the environment is stopped. Each scheduler
/// ends in one of several ways.
pub(super) async fn work(mut worker: Worker) {
    let ttl = Duration::from_millis([1_000, 1_500, 2_500][worker.rng.index(3)]);
    let mut number = 0;
    while !worker.is_stopped() {
        let pause = worker.rng.millis(5..=300);
        worker.env.sleep(pause).await;
        number += 1;
        let label = format!("pool {} {number}", worker.label);
        let runs = Worker { rng: SeedRng::new(worker.seed, &label), label, ..worker.clone() };
        worker.schedule(runs, ttl).await;
    }
}

impl Worker {
    /// Runs one scheduler until it ends. Sometimes shuts the scheduler down, calls `drain` on its handle, or
    /// drops the scheduler.
    async fn schedule(&mut self, runs: Self, ttl: Duration) {
        let (how, time) = (self.rng.number(0..=9), self.rng.millis_up_to(&[2_000, 6_000, 12_000]));
        let jobs = pool_specs().iter().map(|spec| job(spec, &runs));
        let scheduler = jobs.fold(Scheduler::new(&self.quorum, POOL).ttl(ttl), Scheduler::job);
        let referee = Arc::clone(&self.referee);
        let scheduler = scheduler.handler(stored::HANDLER, move |tick: RunContext| {
            stored::ran(&referee, &tick);
            async { Ok::<(), String>(()) }
        });
        let handle = scheduler.handle();
        let shutdown = async {
            tokio::select! { biased;
                () = self.env.stopped().cancelled() => {}
                () = self.patience(time), if how == 7 => {}
            }
        };
        let drained = async {
            self.patience(time).await;
            handle.drain().await;
            std::future::pending::<()>().await;
        };
        let dropped = async {
            self.patience(time).await;
            // At the end of the simulation, this worker must shut the scheduler down, and must no longer drop
            // it.
            if self.is_stopped() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! { biased;
            ended = scheduler.run().until(shutdown) => match ended {
                Ok(()) => self.referee.count("pool scheduler ended"),
                // This worker was started with a mistake in its configuration, so its scheduler must be
                // refused.
                Err(_) => self.referee.count("pool scheduler refused"),
            },
            () = drained, if how == 8 => {}
            () = dropped, if how == 9 => self.referee.count("pool scheduler dropped"),
        }
    }
}

fn job(spec: &PoolSpec, worker: &Worker) -> Job {
    let (worker, timeout) = (worker.clone(), spec.timeout);
    let job = Job::new(spec.name, spec.schedule.clone(), move |tick| {
        let run = worker.referee.run_started(&worker.host, &worker.env, &tick, timeout);
        run_handler(worker.clone(), run, tick)
    });
    let job = job.placement(spec.placement).delivery(spec.delivery).misfire(spec.misfire);
    let job = job.overlap(spec.overlap).history(spec.history);
    match spec.timeout {
        Some(timeout) => job.timeout(timeout),
        None => job,
    }
}

/// Simulates the work of one run. As the seed decides, the run is quick or slow, ignores its cancellation, or
/// fails.
async fn run_handler(worker: Worker, run: JobRun, tick: RunContext) -> Result<(), String> {
    let mut rng = SeedRng::new(worker.seed, &format!("pool run {}", run.number()));
    let calm = worker.referee.is_calm();
    let how = if calm { 0 } else { rng.number(0..=19) };
    let time = match how {
        _ if calm => rng.millis(0..=4),
        0..=12 => rng.millis(0..=150),
        _ => rng.millis(100..=3_000),
    };
    if how == 16 {
        worker.env.sleep(time).await;
    } else {
        tokio::select! { biased;
            () = tick.cancellation_token().cancelled() => {
                run.ends(HandlerEnd::Stopped);
                return Err("stopped".to_owned());
            }
            () = worker.env.sleep(time) => {}
        }
    }
    match how {
        17 => {
            run.ends(HandlerEnd::Failed);
            Err("on purpose".to_owned())
        }
        18 => {
            tick.mark_interrupted();
            run.ends(HandlerEnd::Interrupted);
            Err("interrupted".to_owned())
        }
        19 => {
            run.ends(HandlerEnd::Failed);
            // `resume_unwind` panics without the panic hook, which would print the panic.
            resume_unwind(Box::new("on purpose"))
        }
        _ => {
            run.ends(HandlerEnd::Done);
            Ok(())
        }
    }
}
