//! Measures tasks that acquire and release locks as fast as possible, without contention.

use crate::{
    measure::{Samples, Spread, cpu, ms, now},
    plan::Plan,
    report::{Curve, Row},
    rivals::{ALL, Kind, RACERS, Rival, cycle},
    servers::Servers,
};
use std::{sync::Arc, time::Duration};
use tokio::runtime::{Builder, Runtime};

/// The warm-up before each round. Without it, a round would also measure how idle tasks wake up.
pub(super) const WARM: Duration = Duration::from_millis(50);

/// The largest number of times that one round is measured.
const ROUND_ATTEMPTS: usize = 3;

/// One rival on its own runtime, and the results of its rounds.
struct Lane {
    kind: Kind,
    rival: Arc<Rival>,
    runtime: Runtime,
    rounds: Vec<Round>,
}

impl Lane {
    /// Measures one round. A round in which many attempts failed, for instance because other work kept the machine busy,
    /// is measured again.
    ///
    /// # Errors
    /// A text, if attempts fail in every round.
    fn round(&self, plan: &Plan, servers: &Servers, tasks: usize) -> Result<Round, String> {
        let mut failed = 0;
        for _ in 0..ROUND_ATTEMPTS {
            let (round, failures) = self.runtime.block_on(self.measure(plan, servers, tasks))?;
            if failures <= round.acquires.len() as u64 / 100 {
                return Ok(round);
            }
            failed = failures;
        }
        Err(format!("{}: {failed} attempts failed", self.kind.name()))
    }

    /// Measures one round. Returns the round, and the number of attempts that failed.
    async fn measure(&self, plan: &Plan, servers: &Servers, tasks: usize) -> Result<(Round, u64), String> {
        cycle(&self.rival, tasks, WARM).await;
        let theirs = servers.cpu()?;
        let (began, spent) = (now(), cpu());
        let done = cycle(&self.rival, tasks, plan.round).await;
        let (took, spent) = (now().since(began), cpu().saturating_sub(spent));
        let theirs = servers.cpu()?.saturating_sub(theirs);
        let cycles = done.acquires.len() as f64;
        let round = Round {
            cycles_a_second: cycles / took.as_secs_f64(),
            cpu_micros_a_cycle: spent.as_secs_f64() * 1e6 / cycles,
            servers_micros_a_cycle: theirs.as_secs_f64() * 1e6 / cycles,
            acquires: done.acquires,
        };
        Ok((round, done.failed))
    }
}

struct Round {
    cycles_a_second: f64,
    cpu_micros_a_cycle: f64,
    servers_micros_a_cycle: f64,
    acquires: Samples,
}

pub(crate) fn one(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for threads in [1, 2] {
        let lanes = race(plan, servers, 1, threads, &RACERS)?;
        let median =
            |lane: &Lane| Spread::of(lane.rounds.iter().map(|it| ms(it.acquires.quantile(0.5)) * 1e3));
        for lane in &lanes {
            let name = lane.kind.name();
            rows.push(Row::spread(name, figure("acquire p50", threads), "µs", median(lane)));
            rows.push(Row::spread(name, figure("cycles", threads), "/s", speed(lane)));
        }
        let ratio = ratio(&lanes, Kind::Quorate, Kind::Rslock, |round| ms(round.acquires.quantile(0.5)));
        let goal = if threads == 1 { 0.85 } else { 0.95 };
        rows.push(
            Row::spread("quorate", figure("acquire p50 / rslock's", threads), "×", ratio).at_most(goal),
        );
    }
    Ok(rows)
}

pub(crate) fn sixty_four(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for threads in [1, 2] {
        let lanes = race(plan, servers, 64, threads, &RACERS)?;
        for lane in &lanes {
            let name = lane.kind.name();
            rows.push(Row::spread(name, figure("cycles", threads), "/s", speed(lane)));
            let cpu = Spread::of(lane.rounds.iter().map(|round| round.cpu_micros_a_cycle));
            rows.push(Row::spread(name, figure("client CPU a cycle", threads), "µs", cpu));
            let theirs = Spread::of(lane.rounds.iter().map(|round| round.servers_micros_a_cycle));
            let theirs = Row::spread(name, figure("five servers' CPU a cycle", threads), "µs", theirs);
            rows.push(if lane.kind == Kind::Quorate { theirs.at_most(12.5) } else { theirs });
        }
        let to = |kind, rival| ratio(&lanes, kind, rival, |round| round.cycles_a_second);
        let goal = if threads == 1 { 2.0 } else { 2.4 };
        for (kind, goal) in [(Kind::Quorate, goal), (Kind::QuorateAll, 1.8)] {
            let rslock = to(kind, Kind::Rslock);
            let row = Row::spread(kind.name(), figure("cycles / rslock's", threads), "×", rslock);
            rows.push(row.at_least(goal));
        }
        let limit = to(Kind::Quorate, Kind::Limit);
        let row = Row::spread("quorate", figure("cycles / the limit's", threads), "×", limit);
        rows.push(row.at_least(0.8));
        for (rival, figured) in
            [(Kind::Limit, "client CPU a cycle / the limit's"), (Kind::Plain, "client CPU a cycle / plain's")]
        {
            let ratio = ratio(&lanes, Kind::Quorate, rival, |round| round.cpu_micros_a_cycle);
            rows.push(Row::spread("quorate", figure(figured, threads), "×", ratio).at_most(1.6));
        }
        let floor = ratio(&lanes, Kind::Quorate, Kind::Plain, |round| round.servers_micros_a_cycle);
        rows.push(Row::spread("quorate", figure("five servers' CPU a cycle / plain's", threads), "×", floor));
    }
    Ok(rows)
}

/// Measures servers of its own that write each change to the disk before they answer (`appendfsync always`).
pub(crate) fn durable(plan: &Plan, _: &Servers) -> Result<Vec<Row>, String> {
    let servers = Servers::durable()?;
    let mut rows = Vec::new();
    for tasks in [1, 64] {
        for lane in race(plan, &servers, tasks, 2, &ALL)? {
            let name = lane.kind.name();
            let p50 = Spread::of(lane.rounds.iter().map(|round| ms(round.acquires.quantile(0.5))));
            rows.push(Row::spread(name, format!("acquire p50, {tasks} tasks"), "ms", p50));
            rows.push(Row::spread(name, format!("cycles, {tasks} tasks"), "/s", speed(&lane)));
        }
    }
    Ok(rows)
}

/// Measures every rival with growing numbers of tasks, on two threads.
pub(crate) fn by_tasks(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for &tasks in &plan.tasks {
        let lanes = race(plan, servers, tasks, 2, &ALL)?;
        let noun = if tasks == 1 { "task" } else { "tasks" };
        for lane in &lanes {
            let name = lane.kind.name();
            let cycles = Row::spread(name, format!("cycles, {tasks} {noun}"), "/s", speed(lane));
            rows.push(cycles.on(Curve::Cycles, tasks));
            let p99 = Spread::of(lane.rounds.iter().map(|round| ms(round.acquires.quantile(0.99))));
            let p99 = Row::spread(name, format!("acquire p99, {tasks} {noun}"), "ms", p99);
            rows.push(p99.on(Curve::AcquireP99, tasks));
        }
    }
    Ok(rows)
}

fn figure(what: &str, threads: usize) -> String {
    format!("{what}, {threads} {}", if threads == 1 { "thread" } else { "threads" })
}

fn speed(lane: &Lane) -> Spread {
    Spread::of(lane.rounds.iter().map(|round| round.cycles_a_second))
}

/// Returns the ratio of the figure of `of` to that of the rival `to`. The ratio is computed separately for each
/// round. Within a round, both rivals run at about the same time, so other work on the machine slows down both
/// of them.
fn ratio(lanes: &[Lane], of: Kind, to: Kind, figure: impl Fn(&Round) -> f64) -> Spread {
    let rounds = |kind| lanes.iter().find(|lane| lane.kind == kind).map_or(&[][..], |lane| &lane.rounds);
    let pairs = rounds(of).iter().zip(rounds(to));
    Spread::of(pairs.map(|(ours, theirs)| figure(ours) / figure(theirs)))
}

/// Runs the rivals in turn.
fn race(
    plan: &Plan,
    servers: &Servers,
    tasks: usize,
    threads: usize,
    kinds: &[Kind],
) -> Result<Vec<Lane>, String> {
    let mut lanes = Vec::new();
    for &kind in kinds {
        let runtime = named_runtime(threads, kind.name())?;
        let rival = Arc::new(runtime.block_on(kind.start(servers.urls()))?);
        lanes.push(Lane { kind, rival, runtime, rounds: Vec::new() });
    }
    for turn in 0..plan.rounds {
        for place in 0..lanes.len() {
            // The order rotates, so that no rival always runs after the same other rival.
            let count = lanes.len();
            let lane = &mut lanes[(place + turn) % count];
            let round = lane.round(plan, servers, tasks)?;
            lane.rounds.push(round);
        }
    }
    Ok(lanes)
}

pub(super) fn runtime(threads: usize) -> Result<Runtime, String> {
    named_runtime(threads, "bench")
}

/// Creates a runtime. If it has several threads, they have the name `name`, so that a profile separates the rivals.
fn named_runtime(threads: usize, name: &str) -> Result<Runtime, String> {
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    let builder = builder.worker_threads(threads).thread_name(name).enable_all();
    builder.build().map_err(|error| error.to_string())
}
