//! Measures jobs that are stored on the nodes: very many of them, single runs, and the next leader.

use super::cycles::runtime;
use crate::{
    measure::now,
    plan::Plan,
    report::Row,
    rivals::{quorum, spawn},
    servers::Servers,
};
use quorate::{
    Job, Quorum, Scheduler,
    env::BootTime,
    scheduler::{Jobs, Payload, RunContext, Schedule},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The largest number of jobs in one request.
const AT_ONCE: usize = 1_000;
/// The longest wait for a run.
const LONGEST: Duration = Duration::from_secs(120);
/// The time between a put of single runs and their times.
const AHEAD: Duration = Duration::from_secs(3);
/// The number of seconds of single runs.
const SECONDS: usize = 10;

/// The starts of runs: their number, and the times of the first and the last.
type Starts = Arc<Mutex<(usize, Option<BootTime>, Option<BootTime>)>>;

struct Worker {
    quorum: Quorum,
    starts: Starts,
    stop: CancellationToken,
    run: JoinHandle<Result<(), String>>,
}

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let mut rows = runtime(2)?.block_on(singles(servers, plan.jobs.min(1_000)))?;
    rows.extend(runtime(2)?.block_on(taken_over(servers, plan.jobs))?);
    Ok(rows)
}

/// Adds single runs, so many a second, and waits until they have run.
async fn singles(servers: &Servers, rate: usize) -> Result<Vec<Row>, String> {
    let group = format!("singles-{}", now().as_nanos());
    let worker = Worker::start(servers, &group).await?;
    let jobs = worker.jobs(&group)?;
    worker.put(&jobs, &[beat("first", 100)?]).await?;
    worker.until(1).await?;
    let before = worker.started().0;
    let (began, count) = (now(), rate * SECONDS);
    for second in 0..SECONDS {
        let due = worker.quorum.wall() + AHEAD;
        let payload = Payload::new("a payload").map_err(|error| error.to_string())?;
        let single = |number: usize| {
            let at = Schedule::at(due + Duration::from_micros(number as u64 * 1_000_000 / rate as u64));
            Job::named(&format!("single-{second}-{number}"), at, "run").payload(payload.clone())
        };
        let batch: Vec<Job> = (0..rate).map(single).collect();
        worker.put(&jobs, &batch).await?;
        worker.quorum.env().sleep_until(began + Duration::from_secs(second as u64 + 1)).await;
    }
    let added = now().since(began).as_secs_f64();
    worker.until(before + count).await?;
    let (.., last) = worker.started();
    let took = last.map_or(0.0, |last| last.since(began).saturating_sub(AHEAD).as_secs_f64());
    worker.stop().await?;
    let of = format!("{rate} single runs/s: ");
    let row = |figure: &str, unit, value| Row::new("quorate", figure, unit, value).named(&of);
    Ok(vec![
        row("jobs added", "/s", count as f64 / added).at_least(rate as f64 * 0.9),
        row("jobs run", "/s", count as f64 / took).at_least(rate as f64 * 0.9),
    ])
}

/// Stores very many jobs, and measures the next leader.
async fn taken_over(servers: &Servers, count: usize) -> Result<Vec<Row>, String> {
    let group = format!("stored-{}", now().as_nanos());
    let leader = Worker::start(servers, &group).await?;
    let jobs = leader.jobs(&group)?;
    let began = now();
    let rest: Vec<Job> =
        (0..count).map(|number| beat(&format!("job-{number}"), 3_600_000)).collect::<Result<_, _>>()?;
    for batch in rest.chunks(AT_ONCE) {
        leader.put(&jobs, batch).await?;
    }
    let stored = now().since(began).as_secs_f64();
    leader.put(&jobs, &[beat("beat", 100)?]).await?;
    leader.until(1).await?;
    let next = Worker::start(servers, &group).await?;
    next.quorum.env().sleep(AHEAD).await;
    let began = now();
    leader.stop.cancel();
    leader.stop().await?;
    let before = next.started().0;
    next.until(before + 1).await?;
    let (.., last) = next.started();
    let took = last.map_or(0.0, |last| last.since(began).as_secs_f64());
    next.stop().await?;
    let of = format!("{count} stored jobs: ");
    Ok(vec![
        Row::new("quorate", "jobs stored", "/s", count as f64 / stored).named(&of),
        Row::new("quorate", "from a resignation to the next leader's first run", "s", took)
            .at_most(1.0)
            .named(&of),
    ])
}

fn beat(name: &str, millis: u64) -> Result<Job, String> {
    let schedule = Schedule::every(Duration::from_millis(millis)).map_err(|error| error.to_string())?;
    Ok(Job::named(name, schedule, "run").history(1))
}

impl Worker {
    async fn start(servers: &Servers, group: &str) -> Result<Self, String> {
        let quorum = quorum(servers.urls(), &format!("{group}-{}", now().as_nanos())).await?;
        let (starts, stop) = (Starts::default(), CancellationToken::new());
        let noted = Arc::clone(&starts);
        let scheduler = Scheduler::new(&quorum, group).handler("run", move |_: RunContext| {
            let mut starts = noted.lock().unwrap_or_else(PoisonError::into_inner);
            *starts = (starts.0 + 1, starts.1.or(Some(now())), Some(now()));
            async { Ok::<(), std::io::Error>(()) }
        });
        let run = scheduler.run().until(stop.clone().cancelled_owned());
        let run = spawn(async move { run.await.map_err(|error| error.to_string()) });
        Ok(Self { quorum, starts, stop, run })
    }

    fn jobs(&self, group: &str) -> Result<Jobs, String> {
        Jobs::new(&self.quorum, group).map(|jobs| jobs.wait(LONGEST)).map_err(|error| error.to_string())
    }

    async fn put(&self, jobs: &Jobs, batch: &[Job]) -> Result<(), String> {
        jobs.put_all(batch).await.map(drop).map_err(|error| error.to_string())
    }

    fn started(&self) -> (usize, Option<BootTime>, Option<BootTime>) {
        *self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until so many runs have started.
    async fn until(&self, count: usize) -> Result<(), String> {
        let until = now() + LONGEST;
        while self.started().0 < count {
            if now() > until {
                return Err(format!("{} of {count} runs have started within {LONGEST:?}", self.started().0));
            }
            self.quorum.env().sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn stop(self) -> Result<(), String> {
        self.stop.cancel();
        self.run.await.map_err(|error| error.to_string())??;
        self.quorum.close().await;
        Ok(())
    }
}
