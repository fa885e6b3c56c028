//! Many jobs on one worker: how late their ticks start, and what one costs.

use super::settings::{GROUP, NODES, plain_quorum};
use quorate::{
    env::{SystemWorld, WallTime, World},
    schedule::{Delivery, Job, RunOnce, Scheduler, Tick, Timetable},
};
use quorate_testkit::redis::{RedisCluster, RedisConfig, RedisServer};
use quorate_tests::support::{Crew, PATIENCE, Told, say};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    error::Error,
    fs,
    process::{Command, ExitCode},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::signal::unix::{SignalKind, signal};

/// The first argument with which this program is the worker.
pub(crate) const ARGUMENT: &str = "__load";

/// The lease's TTL.
const TTL: Duration = Duration::from_secs(5);
/// How long after the first tick nothing is counted yet, besides one period: jobs are registered, files grow warm.
const WARM: Duration = Duration::from_secs(5);
/// The kernel's unit of processor time.
const PER_SECOND: f64 = 100.0;

/// Runs many jobs on one worker, and tells how late they start and what a tick costs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How many jobs there are.
    #[arg(long, default_value_t = 10_000)]
    registered: u32,
    /// How many of them are due a second.
    #[arg(long, default_value_t = 500)]
    due: u32,
    /// How long is measured.
    #[arg(long = "for", default_value = "30s", value_parser = humantime::parse_duration)]
    time: Duration,
    /// All that are due in a second are due at its beginning, in place of one after the other.
    #[arg(long)]
    burst: bool,
    /// Start at most once, in place of at least once.
    #[arg(long)]
    at_most_once: bool,
    /// Fails where more than one tick in a hundred starts later than this.
    #[arg(long, value_parser = humantime::parse_duration)]
    bound: Option<Duration>,
}

/// Starts servers and the worker, measures, and tells.
pub(crate) fn run(args: &Args, json: bool) -> ExitCode {
    let config = RedisConfig::new().own_process_group();
    let cluster = RedisCluster::start_with(NODES, &config).unwrap_or_else(|error| panic!("{error}"));
    let urls = cluster.urls();
    let program = std::env::current_exe().expect("our own path");
    let words = [args.registered, args.due, u32::from(args.burst), u32::from(args.at_most_once)];
    let mut crew = Crew::new(1, move |_| {
        let mut command = Command::new(&program);
        command.arg(ARGUMENT).args(words.map(|word| word.to_string())).args(&urls);
        command
    });
    crew.start(0);
    let page = measure(args, &mut crew, &cluster);
    crew.tell_to_end(0);
    let give_up = SystemWorld.now() + PATIENCE;
    while crew.ended(PATIENCE).is_empty() {
        assert!(SystemWorld.now() < give_up, "the worker does not end");
        let _ = crew.next(Duration::from_millis(10));
    }
    if json {
        println!("{page}");
    } else {
        for (name, value) in page.as_object().into_iter().flatten() {
            println!("{name:26} {value}");
        }
    }
    let p99 = page["late_us"]["p99"].as_u64().expect("a number");
    match args.bound {
        Some(bound) if u128::from(p99) > bound.as_micros() => {
            eprintln!(
                "promises: one tick in a hundred was {p99} us late or more, and is to be so by {bound:?} at most"
            );
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn measure(args: &Args, crew: &mut Crew, cluster: &RedisCluster) -> Value {
    let period = Duration::from_secs(1) * args.registered / args.due;
    let started = SystemWorld.now();
    next_second(crew);
    let to_first = started.until(SystemWorld.now());
    let warm = SystemWorld.now() + period + WARM;
    while SystemWorld.now() < warm {
        next_second(crew);
    }
    let pid = crew.pid(0).expect("it runs");
    let servers = || cluster.iter().filter_map(RedisServer::pid).map(processor).sum::<f64>();
    let (began, own, theirs) = (SystemWorld.now(), processor(pid), servers());
    let mut late: Vec<u64> = Vec::new();
    while SystemWorld.now() < began + args.time {
        late.extend(next_second(crew));
    }
    let (took, own, theirs) =
        (began.until(SystemWorld.now()).as_secs_f64(), processor(pid) - own, servers() - theirs);
    late.sort_unstable();
    let ticks = late.len().max(1) as f64;
    let of = |per_mille: usize| late.get((late.len() * per_mille / 1000).min(late.len().saturating_sub(1)));
    json!({
        "registered": args.registered,
        "due_per_second": args.due,
        "burst": args.burst,
        "seconds": took,
        "to_first_ticks_s": to_first.as_secs_f64(),
        "ticks": late.len(),
        "ticks_per_second": ticks / took,
        "late_us": { "p50": of(500), "p90": of(900), "p99": of(990), "p999": of(999), "max": late.last() },
        "worker_cpu_percent": own / took * 100.0,
        "worker_cpu_us_per_tick": own * 1e6 / ticks,
        "servers_cpu_percent": theirs / took * 100.0,
        "worker_memory_kib": memory(pid),
    })
}

/// The lateness of each tick of the next second that the worker tells of.
fn next_second(crew: &mut Crew) -> Vec<u64> {
    let give_up = SystemWorld.now() + PATIENCE * 3;
    loop {
        if let Some(Told { line: Some(line), .. }) = crew.next(Duration::from_millis(100)) {
            return serde_json::from_str(&line).expect("a list of numbers");
        }
        if let Some((_, how)) = crew.ended(PATIENCE).pop() {
            panic!("the worker has ended: {how:?}");
        }
        assert!(SystemWorld.now() < give_up, "the worker says nothing");
    }
}

/// The processor time of a process so far, in seconds.
fn processor(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs, on Linux");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).expect("a number");
    (ticks(11) + ticks(12)) / PER_SECOND
}

fn memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// Due once a period, each job at a moment of its own.
#[derive(Debug)]
struct Phase {
    period: u64,
    phase: u64,
}

impl Timetable for Phase {
    fn next_after(&self, after: WallTime) -> Option<WallTime> {
        let Self { period, phase } = self;
        let after = after.as_micros();
        let round = (after + period - phase) / period;
        Some(WallTime::from_micros(round * period + phase))
    }

    fn describe(&self) -> String {
        format!("every {} us from {} us on", self.period, self.phase)
    }
}

/// `args` are those after [`ARGUMENT`].
pub(crate) fn worker(args: &[String]) -> ExitCode {
    // As a service has it: all threads.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(work(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("promises: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn work(args: &[String]) -> Result<(), Box<dyn Error>> {
    let [registered, due, burst, most_once, urls @ ..] = args else { return Err("too few arguments".into()) };
    let (registered, due): (u64, u64) = (registered.parse()?, due.parse()?);
    let delivery = if most_once == "1" { Delivery::AtMostOnce } else { Delivery::AtLeastOnce };
    let quorum = plain_quorum(urls, "load", TTL)?;
    let late: Arc<Mutex<Vec<u64>>> = Arc::default();
    let mut scheduler = Scheduler::new(&quorum, GROUP).ttl(TTL);
    for number in 0..registered {
        let (late, env) = (Arc::clone(&late), quorum.env().clone());
        let handler = move |tick: Tick| {
            let micros = tick.at().until(env.wall()).as_micros() as u64;
            late.lock().unwrap_or_else(PoisonError::into_inner).push(micros);
            async { Ok::<(), Infallible>(()) }
        };
        // In the burst the jobs of one second share its beginning.
        let phase = if burst == "1" { number / due * 1_000_000 } else { number * 1_000_000 / due };
        let table = Phase { period: registered * 1_000_000 / due, phase };
        let schedule = quorate::schedule::Custom::new(table);
        let job = Job::new(&format!("job-{number:05}"), schedule, handler).delivery(delivery);
        // Long enough for a hand-over, short enough for ten thousand.
        scheduler = scheduler.job(job.misfire(RunOnce::within(Duration::from_secs(30))));
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let tells = async {
        loop {
            quorum.env().sleep(Duration::from_secs(1)).await;
            let told = std::mem::take(&mut *late.lock().unwrap_or_else(PoisonError::into_inner));
            if !told.is_empty() {
                say(&told);
            }
        }
    };
    let told = async {
        terminate.recv().await;
    };
    tokio::select! { biased;
        ended = scheduler.run().until(told) => ended?,
        () = tells => {}
    }
    quorum.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_is_due_once_a_period_at_its_own_moment() {
        let table = Phase { period: 20_000_000, phase: 6_000 };
        let next = |after| table.next_after(WallTime::from_micros(after)).unwrap().as_micros();
        assert_eq!((next(40_000_000), next(40_005_999)), (40_006_000, 40_006_000));
        assert_eq!((next(40_006_000), next(59_999_999)), (60_006_000, 60_006_000));
    }
}
