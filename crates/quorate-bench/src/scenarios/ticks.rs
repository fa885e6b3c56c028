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
    scheduler::{Misfire, Schedule, SchedulerHandle},
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
/// The first part of a measurement, in which lateness does not count.
const SETTLE: Duration = Duration::from_millis(200);

/// The largest lateness p99 of a leader that keeps up, in milliseconds.
const LATE_MAX: f64 = 20.0;

/// The misfire window of the jobs. A longer one would let the ledger keep too many ticks at these rates.
const WINDOW: Duration = Duration::from_secs(10);
/// The misfire window at growing rates. The ledger keeps a tick for 25 s and its window, and at most 200,000 of them. So jobs
/// of more than 7,692 ticks a second are refused.
const SHORT_WINDOW: Duration = Duration::from_secs(1);

/// The jobs of a scheduler.
#[derive(Clone, Copy)]
struct Load {
    jobs: usize,
    ticks_a_second: f64,
    /// The misfire window.
    window: Duration,
}

/// The starts of a worker's runs.
#[derive(Clone, Default)]
struct Starts(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    first: Option<BootTime>,
    lateness: Samples,
}

/// The figures of a worker's ticks.
struct Measured {
    ended_a_second: f64,
    lateness: Samples,
    worker_micros_a_tick: f64,
    servers_micros_a_tick: f64,
}

/// A worker with a scheduler.
struct Worker {
    group: String,
    quorum: Quorum,
    starts: Starts,
    handle: SchedulerHandle,
    stop: CancellationToken,
    run: JoinHandle<Result<(), String>>,
}

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for &ticks_a_second in &plan.tick_rates {
        let load = Load { jobs: 1_000.min(plan.jobs), ticks_a_second, window: WINDOW };
        let measured = runtime(1)?.block_on(steady(plan, servers, load))?;
        rows.extend(
            measured.rows(load).into_iter().map(|row| row.named(&format!("{ticks_a_second} ticks/s: "))),
        );
    }
    Ok(rows)
}

async fn steady(plan: &Plan, servers: &Servers, load: Load) -> Result<Measured, String> {
    let mut worker = Worker::start(servers, "steady", load).await?;
    worker.first_tick().await?;
    worker.quorum.env().sleep(WARM).await;
    let measured = worker.measure(plan, servers).await?;
    worker.stop().await?;
    Ok(measured)
}

/// Measures growing rates of ticks, up to the first that the leader does not start in time.
pub(crate) fn rates(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let mut highest = 0.0;
    for &ticks_a_second in &plan.growing_rates {
        let load = Load { jobs: 1_000.min(plan.jobs), ticks_a_second, window: SHORT_WINDOW };
        let measured = runtime(1)?.block_on(steady(plan, servers, load))?;
        let of = format!("{ticks_a_second} ticks/s: ");
        rows.extend(
            measured.curve().map(|(figure, unit, value)| Row::new("quorate", figure, unit, value).named(&of)),
        );
        if ms(measured.lateness.quantile(0.99)) > LATE_MAX {
            break;
        }
        highest = ticks_a_second;
    }
    let figure = format!("highest of these rates with a lateness p99 of {LATE_MAX} ms at most");
    rows.push(Row::new("quorate", figure, "ticks/s", highest).at_least(10_000.0));
    Ok(rows)
}

/// Measures very many jobs, and the leader that takes them over: while a new group stores the rows of its jobs, and once
/// they are stored.
pub(crate) fn very_many(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let load = Load { jobs: plan.jobs, ticks_a_second: 500.0, window: WINDOW };
    let mut rows = Vec::new();
    for (jobs, is_stored) in [("jobs", false), ("jobs registered", true)] {
        let of = format!("{} {jobs}, 500 ticks/s: ", load.jobs);
        let measured = runtime(1)?.block_on(many_steady(plan, servers, load, is_stored))?;
        rows.extend(measured.rows(load).into_iter().map(|row| row.named(&of)));
        let (took, slowest) = runtime(1)?.block_on(taken_over(servers, load, is_stored))?;
        let row = Row::new("quorate", "from a resignation to the next leader's first tick", "s", took);
        rows.push(row.at_most(1.0).named(&of));
        rows.push(Row::new("quorate", "slowest script call of it", "ms", slowest).at_most(5.0).named(&of));
    }
    Ok(rows)
}

async fn many_steady(
    plan: &Plan,
    servers: &Servers,
    load: Load,
    is_stored: bool,
) -> Result<Measured, String> {
    let mut worker = Worker::start(servers, "many", load).await?;
    worker.first_tick().await?;
    if is_stored {
        worker.await_rows(servers, load).await?;
    }
    worker.quorum.env().sleep(WARM).await;
    let measured = worker.measure(plan, servers).await?;
    worker.stop().await?;
    Ok(measured)
}

/// Returns the seconds from the end of a leader to the first tick of the next one, and the longest call of a server in
/// this time, in milliseconds.
async fn taken_over(servers: &Servers, load: Load, is_stored: bool) -> Result<(f64, f64), String> {
    let mut leader = Worker::start(servers, "succession", load).await?;
    leader.first_tick().await?;
    if is_stored {
        leader.await_rows(servers, load).await?;
    }
    let mut next = Worker::start_in(servers, &leader.group, load).await?;
    next.quorum.env().sleep(WARM).await;
    servers.clear_slow_calls()?;
    let began = now();
    leader.stop.cancel();
    next.first_tick().await?;
    let first = next.starts.first().ok_or("no run was started")?;
    let slowest = servers.slowest_call()?;
    leader.stop().await?;
    next.stop().await?;
    Ok((first.since(began).as_secs_f64(), slowest))
}

impl Worker {
    /// Starts a worker in a new group.
    async fn start(servers: &Servers, group: &str, load: Load) -> Result<Self, String> {
        Self::start_in(servers, &format!("{group}-{}-{}", load.jobs, now().as_nanos()), load).await
    }

    async fn start_in(servers: &Servers, group: &str, load: Load) -> Result<Self, String> {
        let quorum = quorum(servers.urls(), &format!("{group}-{}", now().as_nanos())).await?;
        let (starts, stop) = (Starts::default(), CancellationToken::new());
        let mut scheduler = Scheduler::new(&quorum, group);
        for job in jobs(quorum.env(), &starts, load)? {
            scheduler = scheduler.job(job);
        }
        let handle = scheduler.handle();
        let run = scheduler.run().until(stop.clone().cancelled_owned());
        let run = spawn(async move { run.await.map_err(|error| error.to_string()) });
        Ok(Self { group: group.into(), quorum, starts, handle, stop, run })
    }

    /// Waits until a majority of the servers store a row of each job.
    async fn await_rows(&self, servers: &Servers, load: Load) -> Result<(), String> {
        let until = now() + FIRST;
        while servers.fields(&format!("quorate:ledger/{}", self.group))? < load.jobs {
            if now() > until {
                return Err(format!("not all rows were stored within {FIRST:?}"));
            }
            self.quorum.env().sleep(WARM / 4).await;
        }
        Ok(())
    }

    /// Measures the worker's ticks.
    async fn measure(&self, plan: &Plan, servers: &Servers) -> Result<Measured, String> {
        let ended = self.ended();
        let (began, spent, theirs) = (now(), cpu(), servers.cpu()?);
        // Reading the counts of very many jobs blocks the worker's only thread. This is no lateness of the scheduler.
        self.quorum.env().sleep(SETTLE).await;
        self.starts.clear();
        self.quorum.env().sleep(plan.ticked_for.saturating_sub(SETTLE)).await;
        let lateness = self.starts.clear();
        let took = now().since(began).as_secs_f64();
        let (spent, theirs) = (cpu().saturating_sub(spent), servers.cpu()?.saturating_sub(theirs));
        let ended = (self.ended() - ended) as f64;
        let micros_a_tick = |time: Duration| time.as_secs_f64() * 1e6 / ended;
        Ok(Measured {
            ended_a_second: ended / took,
            lateness,
            worker_micros_a_tick: micros_a_tick(spent),
            servers_micros_a_tick: micros_a_tick(theirs),
        })
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

impl Measured {
    fn rows(&self, load: Load) -> Vec<Row> {
        let row = |figure: &str, unit, value| Row::new("quorate", figure, unit, value);
        let (late_goal, cpu_goal) = if load.jobs > 1_000 { (10.0, 150.0) } else { (LATE_MAX, 120.0) };
        let [ended, p50, p99] = self.curve().map(|(figure, unit, value)| row(figure, unit, value));
        vec![
            ended.at_least((load.ticks_a_second * 0.98).floor()),
            p50,
            p99.at_most(late_goal),
            row("worker CPU a tick", "µs", self.worker_micros_a_tick).at_most(cpu_goal),
            row("five servers' CPU a tick", "µs", self.servers_micros_a_tick),
        ]
    }

    /// Returns the figures that depend most on the rate.
    fn curve(&self) -> [(&'static str, &'static str, f64); 3] {
        let late = |share| ms(self.lateness.quantile(share));
        [
            ("runs ended and recorded", "/s", self.ended_a_second),
            ("lateness p50", "ms", late(0.5)),
            ("lateness p99", "ms", late(0.99)),
        ]
    }
}

/// Returns jobs whose ticks are spread over time. Their periods differ by a microsecond, and a period counts
/// from 1970, so their ticks do not coincide.
fn jobs(env: &Env, starts: &Starts, load: Load) -> Result<Vec<Job>, String> {
    let period = Duration::from_micros((load.jobs as f64 / load.ticks_a_second * 1e6) as u64);
    let job = |number: usize| {
        let (env, starts) = (env.clone(), starts.clone());
        let schedule = Schedule::every(period + Duration::from_micros(number as u64));
        let schedule = schedule.map_err(|error| error.to_string())?;
        let job = Job::new(&format!("job-{number:06}"), schedule, move |run| {
            starts.add(run.scheduled_at().until(env.wall()));
            async { Ok::<(), std::io::Error>(()) }
        });
        // A window that is shorter than the period is refused.
        Ok(job.misfire(if period < load.window { Misfire::run_once(load.window) } else { Misfire::Skip }))
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
