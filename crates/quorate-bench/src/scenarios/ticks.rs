//! Measures the scheduler: the cost of a tick, the rate of ticks, very many jobs, and the next leader.

use super::cycles::runtime;
use crate::{
    measure::{Samples, cpu, ms, now},
    plan::Plan,
    report::Row,
    rivals::{quorum, spawn},
    servers::Servers,
};
use quorate::{
    Job, Quorum, Scheduler,
    env::{BootTime, Env},
    scheduler::{Misfire, SchedulerHandle, every},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The longest wait for a first tick.
const FIRST: Duration = Duration::from_secs(60);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// The time between the first tick and the measurement.
const WARM: Duration = Duration::from_secs(2);

/// The misfire window of the jobs. A longer one would let the ledger keep too many ticks at these rates.
const WINDOW: Duration = Duration::from_secs(10);

/// The jobs of a scheduler.
#[derive(Clone, Copy)]
struct Load {
    jobs: usize,
    ticks_a_second: f64,
}

/// The starts of a worker's runs.
#[derive(Clone, Default)]
struct Starts(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    first: Option<BootTime>,
    lateness: Samples,
}

/// A worker with a scheduler.
struct Worker {
    quorum: Quorum,
    starts: Starts,
    handle: SchedulerHandle,
    stop: CancellationToken,
    run: JoinHandle<Result<(), String>>,
}

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for &ticks_a_second in &plan.tick_rates {
        let load = Load { jobs: 1_000.min(plan.jobs), ticks_a_second };
        let measured = runtime(1)?.block_on(steady(plan, servers, load))?;
        rows.extend(measured.into_iter().map(|row| row.named(&format!("{ticks_a_second} ticks/s: "))));
    }
    Ok(rows)
}

/// Measures very many jobs, and the leader that takes them over.
pub(crate) fn very_many(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let load = Load { jobs: plan.jobs, ticks_a_second: 500.0 };
    let of = format!("{} jobs, 500 ticks/s: ", load.jobs);
    let mut rows: Vec<Row> =
        runtime(1)?.block_on(steady(plan, servers, load))?.into_iter().map(|row| row.named(&of)).collect();
    let took = runtime(1)?.block_on(taken_over(servers, load))?;
    let row = Row::new("quorate", "from a resignation to the next leader's first tick", "s", took);
    rows.push(row.at_most(1.0).named(&of));
    Ok(rows)
}

async fn steady(plan: &Plan, servers: &Servers, load: Load) -> Result<Vec<Row>, String> {
    let mut worker = Worker::start(servers, "steady", load).await?;
    let env = worker.quorum.env().clone();
    worker.first_tick().await?;
    env.sleep(WARM).await;
    worker.starts.clear();
    let ended = worker.ended();
    let (began, spent, theirs) = (now(), cpu(), servers.cpu()?);
    env.sleep(plan.ticked_for).await;
    let took = now().since(began).as_secs_f64();
    let (spent, theirs) = (cpu().saturating_sub(spent), servers.cpu()?.saturating_sub(theirs));
    let ended = (worker.ended() - ended) as f64;
    let lateness = worker.starts.clear();
    worker.stop().await?;
    let row = |figure: &str, unit, value| Row::new("quorate", figure, unit, value);
    let goal = if load.jobs > 1_000 { 10.0 } else { 20.0 };
    Ok(vec![
        row("runs ended and recorded", "/s", ended / took).at_least((load.ticks_a_second * 0.98).floor()),
        row("lateness p50", "ms", ms(lateness.quantile(0.5))),
        row("lateness p99", "ms", ms(lateness.quantile(0.99))).at_most(goal),
        row("worker CPU a tick", "µs", spent.as_secs_f64() * 1e6 / ended).at_most(150.0),
        row("five servers' CPU a tick", "µs", theirs.as_secs_f64() * 1e6 / ended),
    ])
}

/// Returns the seconds from the end of a leader to the first tick of the next one.
async fn taken_over(servers: &Servers, load: Load) -> Result<f64, String> {
    let mut leader = Worker::start(servers, "succession", load).await?;
    leader.first_tick().await?;
    let mut next = Worker::start(servers, "succession", load).await?;
    next.quorum.env().sleep(WARM).await;
    let began = now();
    leader.stop.cancel();
    next.first_tick().await?;
    let first = next.starts.first().ok_or("no run was started")?;
    leader.stop().await?;
    next.stop().await?;
    Ok(first.since(began).as_secs_f64())
}

impl Worker {
    async fn start(servers: &Servers, group: &str, load: Load) -> Result<Self, String> {
        let group = format!("{group}-{}-{}", load.jobs, load.ticks_a_second);
        let quorum = quorum(servers.urls(), &format!("{group}-{}", now().as_nanos())).await?;
        let (starts, stop) = (Starts::default(), CancellationToken::new());
        let mut scheduler = Scheduler::new(&quorum, &group);
        for job in jobs(quorum.env(), &starts, load)? {
            scheduler = scheduler.job(job);
        }
        let handle = scheduler.handle();
        let run = scheduler.run().until(stop.clone().cancelled_owned());
        let run = spawn(async move { run.await.map_err(|error| error.to_string()) });
        Ok(Self { quorum, starts, handle, stop, run })
    }

    async fn first_tick(&mut self) -> Result<(), String> {
        let until = now() + FIRST;
        while self.starts.first().is_none() {
            if self.run.is_finished() {
                (&mut self.run).await.map_err(|error| error.to_string())??;
            }
            if now() > until {
                return Err(format!("no run was started within {FIRST:?}"));
            }
            self.quorum.env().sleep(LOOK).await;
        }
        Ok(())
    }

    /// Returns the number of runs that have ended.
    fn ended(&self) -> u64 {
        self.handle.counts().jobs.values().flat_map(|job| job.ends.values()).sum()
    }

    async fn stop(self) -> Result<(), String> {
        self.stop.cancel();
        self.run.await.map_err(|error| error.to_string())??;
        self.quorum.close().await;
        Ok(())
    }
}

/// Returns jobs whose ticks are spread over time. Their periods differ by a microsecond, and a period counts
/// from 1970, so their ticks do not coincide.
fn jobs(env: &Env, starts: &Starts, load: Load) -> Result<Vec<Job>, String> {
    let period = Duration::from_micros((load.jobs as f64 / load.ticks_a_second * 1e6) as u64);
    let job = |number: usize| {
        let (env, starts) = (env.clone(), starts.clone());
        let schedule = every(period + Duration::from_micros(number as u64));
        let schedule = schedule.map_err(|error| error.to_string())?;
        let job = Job::new(&format!("job-{number:06}"), schedule, move |run| {
            starts.add(run.at().until(env.wall()));
            async { Ok::<(), std::io::Error>(()) }
        });
        // A window that is shorter than the period is refused.
        Ok(job.misfire(if period < WINDOW { Misfire::run_once(WINDOW) } else { Misfire::Skip }))
    };
    (0..load.jobs).map(job).collect()
}

impl Starts {
    fn add(&self, late: Duration) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.first.get_or_insert_with(now);
        seen.lateness.add(late);
    }

    fn first(&self) -> Option<BootTime> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).first
    }

    /// Returns the lateness of the runs so far, and forgets them.
    fn clear(&self) -> Samples {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).lateness)
    }
}
