//! Runs the seeded simulation over any number of seeds, on every processor, and prints a summary.
//!
//! Exit status: 0 if every invariant held under every seed, 1 if a seed failed, 2 for arguments that cannot
//! be used.

use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quorate_testkit::sim::{
    Excuse, Failure, NetworkConditions, OPEN_PLANS, PLANS, Plan, Shrunk, Summary, Sweep, Uses, shrink,
    simulate,
};
use std::{
    io::IsTerminal,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// A simulation allocates many small values. This allocator makes a seed about a tenth faster than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The time between two lines about the progress. Such lines are printed only if standard error is not a
/// terminal.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// Runs the shipped code through seeded faults, and checks its behaviour against the invariants.
#[derive(Debug, Parser)]
#[command(name = "simulate", version)]
struct Args {
    /// The number of seeds of each plan, from --from on.
    #[arg(long, default_value_t = 1_000, conflicts_with = "to")]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// The seed to stop before.
    #[arg(long)]
    to: Option<u64>,
    /// The name of a plan, `all`, or `list` to print the plans.
    #[arg(long, default_value = "all")]
    plan: String,
    /// Run each seed twice and compare the traces.
    #[arg(long)]
    twice: bool,
    /// The number of threads; by default the number of processors.
    #[arg(long)]
    threads: Option<usize>,
    /// Print the summary as one JSON object.
    #[arg(long)]
    json: bool,
    /// Start no further seed after this many failures.
    #[arg(long, default_value_t = 20)]
    stop_after_failures: u64,
    /// Run one seed of one plan and print its whole trace.
    #[arg(long, value_name = "SEED")]
    replay: Option<u64>,
    /// Reduce a failing seed of one plan to the faults that its violation needs, and print these and the trace.
    #[arg(long, value_name = "SEED", conflicts_with = "replay")]
    shrink: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.plan == "list" {
        PLANS.iter().for_each(|(name, what)| println!("{name:24}{what}"));
        OPEN_PLANS.iter().for_each(|(name, what)| println!("{name:24}(not in `all`) {what}"));
        return ExitCode::SUCCESS;
    }
    if let Some(seed) = args.replay {
        return replay(&args.plan, seed);
    }
    if let Some(seed) = args.shrink {
        return shrink_seed(&args.plan, seed);
    }
    let Some(sweeps) = sweeps(&args) else {
        eprintln!("simulate: unknown plan {:?}; --plan list prints the plans", args.plan);
        return ExitCode::from(2);
    };
    let began = now();
    let mut total = Summary::default();
    let progress = Progress::over(&sweeps);
    for sweep in sweeps {
        let left = args.stop_after_failures.saturating_sub(total.failures.len() as u64);
        if left == 0 {
            break;
        }
        total.merge(Sweep { stop_after: left, ..sweep }.run(|_, failure| progress.step(failure)));
    }
    progress.bar.finish_and_clear();
    if args.json {
        print_json(&total, began.elapsed());
    } else {
        print(&total, began.elapsed());
    }
    ExitCode::from(u8::from(!total.failures.is_empty()))
}

#[expect(clippy::disallowed_methods, reason = "how long all of it took is real time")]
fn now() -> Instant {
    Instant::now()
}

fn sweeps(args: &Args) -> Option<Vec<Sweep>> {
    let seeds = args.from..args.to.unwrap_or(args.from.saturating_add(args.seeds));
    let names = PLANS.iter().map(|(name, _)| *name);
    let names: Vec<&str> = if args.plan == "all" { names.collect() } else { vec![&args.plan] };
    let sweeps: Vec<Sweep> = names
        .into_iter()
        .filter_map(|name| {
            let sweep = Sweep::over(name, seeds.clone())?;
            Some(Sweep { twice: args.twice, threads: args.threads.unwrap_or(sweep.threads), ..sweep })
        })
        .collect();
    (!sweeps.is_empty()).then_some(sweeps)
}

/// Returns the plan of this name, or `default` if the name is `all`.
fn one_plan(name: &str) -> Option<Plan> {
    let name = if name == "all" { "default" } else { name };
    let plan = Plan::named(name);
    if plan.is_none() {
        eprintln!("simulate: unknown plan {name:?}; --plan list prints the plans");
    }
    plan
}

fn shrink_seed(name: &str, seed: u64) -> ExitCode {
    let Some(plan) = one_plan(name) else { return ExitCode::from(2) };
    let Some(shrunk) = shrink(seed, &plan) else {
        println!("every invariant held");
        return ExitCode::SUCCESS;
    };
    let Shrunk { scenario, outcome, faults_before, runs } = shrunk;
    outcome.trace.iter().for_each(|line| println!("{line}"));
    println!("{} of {faults_before} faults are needed (found in {runs} runs):", scenario.faults.len());
    scenario.faults.iter().for_each(|(at, fault)| println!("{:>6} {fault:?}", at.as_millis()));
    let weather = &scenario.weather;
    println!(
        "network: {}",
        if *weather == NetworkConditions::CALM { "calm".into() } else { format!("{weather:?}") }
    );
    println!("{}", outcome.violations.first().map_or("", String::as_str));
    ExitCode::from(1)
}

fn replay(name: &str, seed: u64) -> ExitCode {
    let Some(plan) = one_plan(name) else { return ExitCode::from(2) };
    let outcome = simulate(seed, &plan);
    outcome.trace.iter().for_each(|line| println!("{line}"));
    outcome.coverage.iter().for_each(|(what, count)| println!("{count:>8} {what}"));
    outcome.excuses.iter().for_each(|(excuse, times)| println!("{times:>8} excused, {}", excuse.name()));
    println!("{}", outcome.violations.first().map_or("every invariant held", String::as_str));
    ExitCode::from(u8::from(!outcome.violations.is_empty()))
}

/// The display of progress: a bar on a terminal, otherwise a line every [`LINE_EVERY`]. It prints each
/// failure at once.
struct Progress {
    bar: ProgressBar,
    began: Instant,
    lines: AtomicU64,
}

impl Progress {
    fn over(sweeps: &[Sweep]) -> Self {
        let seeds = sweeps.iter().map(|sweep| sweep.seeds.end.saturating_sub(sweep.seeds.start)).sum();
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(seeds), target);
        let style = "{wide_bar} {human_pos}/{human_len} seeds, {per_sec}, {eta} left {msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Self { bar, began: now(), lines: AtomicU64::new(0) }
    }

    fn step(&self, failure: Option<&Failure>) {
        if let Some(failure) = failure {
            let report = format!(
                "plan {} seed {}: {}\n  replay: {}",
                failure.plan,
                failure.seed,
                failure.violation,
                failure.replay()
            );
            self.bar.suspend(|| eprintln!("{report}"));
        }
        self.bar.inc(1);
        let due = self.began.elapsed().as_secs() / LINE_EVERY.as_secs();
        if self.bar.is_hidden() && due > self.lines.fetch_max(due, Ordering::Relaxed) {
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
            eprintln!("{done} of {all} seeds in {:.0?}", self.began.elapsed());
        }
    }
}

/// The counts at the head of the summary. Each entry has the text that is printed, and the name under which the
/// simulation counts these events.
const HEADLINES: [(&str, &str); 6] = [
    ("leases granted", "lease granted"),
    ("leader changes", "leader changed"),
    ("ticks", "tick"),
    ("claims", "claim"),
    ("operations checked for linearizability", "history operation"),
    ("parts of histories undecided", "history undecided"),
];

/// Returns the sum of all counts whose name is `name`, or begins with `name` and a space.
fn counted(total: &Summary, name: &str) -> u64 {
    let is =
        |what: &str| what.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    total.coverage.iter().filter(|(what, _)| is(what)).map(|(_, count)| count).sum()
}

fn by_invariant(total: &Summary) -> Vec<(&str, usize, &Failure)> {
    let mut names: Vec<&str> = total.failures.iter().map(|failure| failure.invariant.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let of = |name| total.failures.iter().filter(move |failure| failure.invariant == name);
    names.into_iter().filter_map(|name| Some((name, of(name).count(), of(name).next()?))).collect()
}

fn print(total: &Summary, took: Duration) {
    println!("{:>12} seeds in {took:.1?}", total.seeds);
    println!("{:>12.1} simulated hours", total.simulated.as_secs_f64() / 3_600.0);
    for (what, name) in HEADLINES {
        println!("{:>12} {what}", counted(total, name));
    }
    println!("{:>12} faults, of which", total.faults().map(|(_, count)| count).sum::<u64>());
    total.faults().for_each(|(kind, count)| println!("{count:>16} {kind}"));
    println!("{:>12} {:>8} excuses", "times", "seeds");
    for excuse in Excuse::ALL {
        let Uses { times, seeds } = total.uses(*excuse);
        println!("{times:>12} {seeds:>8} {}", excuse.name());
    }
    println!("{:>12} seeds broke an invariant", total.failures.len());
    for (name, count, first) in by_invariant(total) {
        println!("{count:>16} {name}; the first: {}", first.replay());
    }
}

fn print_json(total: &Summary, took: Duration) {
    let failures = total.failures.iter().map(|failure| {
        serde_json::json!({
            "plan": failure.plan,
            "seed": failure.seed,
            "invariant": failure.invariant,
            "violation": failure.violation,
            "replay": failure.replay(),
        })
    });
    let excuses = Excuse::ALL.iter().map(|excuse| {
        let Uses { times, seeds } = total.uses(*excuse);
        serde_json::json!({ "excuse": excuse.name(), "promise": excuse.promise(), "times": times, "seeds": seeds })
    });
    let summary = serde_json::json!({
        "seeds": total.seeds,
        "wall_seconds": took.as_secs_f64(),
        "simulated_hours": total.simulated.as_secs_f64() / 3_600.0,
        "coverage": total.coverage,
        "faults": total.faults().collect::<std::collections::BTreeMap<_, _>>(),
        "excuses": excuses.collect::<Vec<_>>(),
        "failures": failures.collect::<Vec<_>>(),
    });
    println!("{summary}");
}
