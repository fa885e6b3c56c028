//! A plan with many jobs on one worker. It measures the lateness of their runs, and the cost of a tick.

use crate::{
    harness::{
        Assignment, Director, Durations, Event, Journal, Network, Options, Report, Servers, resident_kib,
    },
    work::{Failure, Work, lead::GROUP},
};
use quorate::{
    env::{SystemWorld, WallTime, World},
    quorum::Quorum,
    scheduler::{Delivery, Job, Misfire, RunContext, Schedule, Scheduler, Timetable},
};
use quorate_testkit::redis::RedisServer;
use quorate_tests::support::{PATIENCE, told_to_end};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    convert::Infallible,
    fs,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// The TTL of the leader's lease.
const TTL: Duration = Duration::from_secs(5);
/// The time before the measurement, in which caches fill. The measurement begins one period and this time
/// after the first ticks.
const WARM: Duration = Duration::from_secs(5);
/// The number of clock ticks per second in which the kernel counts processor time.
const PER_SECOND: f64 = 100.0;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub(crate) struct Settings {
    /// Number of jobs
    #[arg(long, default_value_t = 10_000)]
    registered: u32,
    /// Number of jobs that are due in a second
    #[arg(long, default_value_t = 500)]
    due: u32,
    /// Makes all ticks of a second due at its beginning, instead of one after the other
    #[arg(long)]
    burst: bool,
    /// Runs the jobs at most once, instead of at least once
    #[arg(long)]
    at_most_once: bool,
    /// Fails where more than one tick in a hundred starts later than this
    #[arg(long, value_parser = humantime::parse_duration)]
    bound: Option<Duration>,
}

/// Starts the servers and one worker, and makes the measurements.
pub(crate) fn run(settings: &Settings, options: &Options) -> Report {
    let servers = Servers::start(options.servers, false, Network::Direct);
    let assignment = Assignment::new(servers.nodes(0), TTL, Work::Load(settings.clone()));
    let mut director = Director::start(options, 1, "", move |_| assignment.clone());
    let period = Duration::from_secs(1) * settings.registered / settings.due;
    next_second(&mut director);
    let to_first = director.elapsed();
    let warm = SystemWorld.now() + period + WARM;
    while SystemWorld.now() < warm {
        next_second(&mut director);
    }
    let pid = director.pids()[0];
    let of_servers = || servers.processes().filter_map(RedisServer::pid).map(processor_seconds).sum::<f64>();
    let (began, worker_before, servers_before) = (SystemWorld.now(), processor_seconds(pid), of_servers());
    let mut late = Vec::new();
    while SystemWorld.now() < began + options.duration.unwrap_or(Duration::from_secs(30)) {
        late.extend(next_second(&mut director));
    }
    let seconds = began.until(SystemWorld.now()).as_secs_f64();
    let (worker, servers) = (processor_seconds(pid) - worker_before, of_servers() - servers_before);
    let memory = resident_kib(pid);
    let ticks = late.len();
    let late: Durations = late.into_iter().map(Duration::from_micros).collect();
    director.end(PATIENCE, |_, _, _| {});
    if let (Some(bound), Some(p99)) = (settings.bound, late.quantile(990))
        && p99 > bound
    {
        director.violate([format!(
            "lateness: one tick in a hundred starts {p99:?} late or more, bound {bound:?}"
        )]);
    }
    let per_tick = worker * 1e6 / ticks.max(1) as f64;
    let figures = json!({
        "registered": settings.registered,
        "due_per_second": settings.due,
        "burst": settings.burst,
        "seconds": seconds,
        "to_first_ticks_s": to_first.as_secs_f64(),
        "ticks": ticks,
        "ticks_per_second": ticks as f64 / seconds,
        "late_ms": late.json(),
        "worker_cpu_percent": worker / seconds * 100.0,
        "worker_cpu_us_per_tick": per_tick,
        "servers_cpu_percent": servers / seconds * 100.0,
        "worker_memory_kib": memory,
    });
    Report { figures, violations: director.into_violations() }
}

/// Returns the lateness of each run in the next second that the worker reports, in microseconds.
fn next_second(director: &mut Director) -> Vec<u64> {
    let give_up = SystemWorld.now() + PATIENCE * 3;
    loop {
        if let Some((_, entry)) = director.next(Duration::from_millis(100))
            && let Event::Late { micros } = entry.event
        {
            return micros;
        }
        director.expect_all_alive();
        assert!(SystemWorld.now() < give_up, "the worker reports no runs");
    }
}

/// Returns the processor time that a process has used so far.
fn processor_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs, on Linux");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).expect("a number");
    (ticks(11) + ticks(12)) / PER_SECOND
}

/// The schedule of a job that is due once per `period`, at the offset `phase` in the period. All times are in
/// microseconds.
#[derive(Debug)]
struct Phase {
    period: u64,
    phase: u64,
}

impl Timetable for Phase {
    fn next_after(&self, after: WallTime) -> Option<WallTime> {
        let Self { period, phase } = self;
        let rounds = (after.as_micros() + period - phase) / period;
        Some(WallTime::from_micros(rounds * period + phase))
    }

    fn describe(&self) -> String {
        format!("every {} us from {} us on", self.period, self.phase)
    }
}

/// The work of the worker process: it runs the jobs.
pub(crate) async fn work(settings: &Settings, quorum: &Quorum, journal: &Journal) -> Result<(), Failure> {
    let (registered, due) = (u64::from(settings.registered), u64::from(settings.due));
    let delivery = if settings.at_most_once { Delivery::AtMostOnce } else { Delivery::AtLeastOnce };
    let late: Arc<Mutex<Vec<u64>>> = Arc::default();
    let mut scheduler = Scheduler::new(quorum, GROUP).ttl(TTL);
    for number in 0..registered {
        let (late, env) = (Arc::clone(&late), quorum.env().clone());
        let handler = move |tick: RunContext| {
            let micros = tick.scheduled_at().until(env.wall()).as_micros() as u64;
            late.lock().unwrap_or_else(PoisonError::into_inner).push(micros);
            async { Ok::<(), Infallible>(()) }
        };
        // In a burst, all jobs of a second are due at the beginning of that second. Otherwise their ticks are
        // distributed evenly over the second.
        let phase = if settings.burst { number / due * 1_000_000 } else { number * 1_000_000 / due };
        let schedule = Schedule::custom(Phase { period: registered * 1_000_000 / due, phase });
        let job = Job::new(&format!("job-{number:05}"), schedule, handler).delivery(delivery);
        // The misfire window is long enough for a change of the leader. It is short enough that the ledger of
        // ten thousand jobs is not too large.
        scheduler = scheduler.job(job.misfire(Misfire::run_once(Duration::from_secs(30))));
    }
    let report = async {
        loop {
            quorum.env().sleep(Duration::from_secs(1)).await;
            let micros = std::mem::take(&mut *late.lock().unwrap_or_else(PoisonError::into_inner));
            if !micros.is_empty() {
                journal.write(Event::Late { micros });
            }
        }
    };
    tokio::select! { biased;
        ended = scheduler.run().until(told_to_end()?) => ended?,
        () = report => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_is_due_once_a_period_at_its_own_moment() {
        let phase = Phase { period: 20_000_000, phase: 6_000 };
        let next = |after| phase.next_after(WallTime::from_micros(after)).unwrap().as_micros();
        assert_eq!((next(40_000_000), next(40_005_999)), (40_006_000, 40_006_000));
        assert_eq!((next(40_006_000), next(59_999_999)), (60_006_000, 60_006_000));
    }
}
