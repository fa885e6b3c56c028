//! The command line, and the plan of the measurements.

use crate::scenarios;
use clap::Parser;
use std::{path::PathBuf, time::Duration};

/// Measures Quorate and its rivals on five Redis servers, and prints a table.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// Prints JSON instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Compares the figures with those of an earlier run, which printed this file with --json.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) compare: Option<PathBuf>,
    /// Draws throughput and p99 against the number of tasks into this SVG file. Needs the scenario `tasks`.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Runs this scenario only; may be given several times.
    #[arg(long, value_name = "SCENARIO")]
    only: Vec<String>,
    /// Lists the scenarios and exits.
    #[arg(long)]
    list: bool,
    /// Checks within seconds that everything runs; its figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Sets the number of rounds of each rival; rivals alternate.
    #[arg(long)]
    rounds: Option<usize>,
    /// Sets the length of a round.
    #[arg(long, value_name = "SECONDS")]
    round_seconds: Option<f64>,
    /// Uses this server instead of starting one; give it once for each server. It is written to.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Vec<String>,
}

/// The duration and the size of each measurement.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    only: Vec<String>,
    /// The number of rounds for each rival.
    pub(crate) rounds: usize,
    /// The length of a round.
    pub(crate) round: Duration,
    /// The numbers of tasks of the plot.
    pub(crate) tasks: Vec<usize>,
    /// The number of times that a lease changes hands, for each rival.
    pub(crate) handovers: usize,
    /// The time for which many workers contend for one lock.
    pub(crate) contended_for: Duration,
    /// The number of acquires on distant nodes.
    pub(crate) distant: usize,
    /// The rates of ticks at which a scheduler is measured, a second.
    pub(crate) tick_rates: Vec<f64>,
    /// The time for which a scheduler is measured.
    pub(crate) ticked_for: Duration,
    /// The number of jobs of a scheduler with very many jobs.
    pub(crate) jobs: usize,
    /// The number of leader changes.
    pub(crate) successions: usize,
    /// The number of leases that one process holds.
    pub(crate) leases: usize,
    /// The TTL of these leases.
    pub(crate) leases_ttl: Duration,
    /// The time for which these leases are held.
    pub(crate) held_for: Duration,
    /// The number of jobs in a long ledger.
    pub(crate) ledger_rows: usize,
    /// The number of ticks in that ledger.
    pub(crate) ledger_ticks: usize,
    /// The number of message ids claimed in a round.
    pub(crate) ids: usize,
    /// The number of times that a majority of the servers is stopped.
    pub(crate) stops: usize,
    /// The number of leases held at each stop.
    pub(crate) leases_per_stop: usize,
}

impl Plan {
    pub(crate) fn of(args: &Args) -> Result<Self, String> {
        let names = || scenarios::ALL.iter().map(|scenario| scenario.name);
        if args.list {
            scenarios::ALL.iter().for_each(|scenario| println!("{:<10} {}", scenario.name, scenario.what));
            std::process::exit(0);
        }
        if let Some(unknown) = args.only.iter().find(|only| !names().any(|name| name == **only)) {
            let known: Vec<_> = names().collect();
            return Err(format!("--only {unknown} is not a scenario; choose one of {}", known.join(", ")));
        }
        if let Some(seconds) = args.round_seconds.filter(|s| !(0.01..=600.0).contains(s)) {
            return Err(format!("--round-seconds is {seconds}; give 0.01 to 600"));
        }
        if args.plot.is_some() && !args.only.is_empty() && !args.only.iter().any(|only| only == "tasks") {
            return Err("--plot needs the figures of the scenario tasks; add --only tasks".to_owned());
        }
        if args.rounds == Some(0) {
            return Err("--rounds is 0; give at least 1".to_owned());
        }
        let seconds = Duration::from_secs;
        let mut plan = match args.quick {
            false => Self {
                only: args.only.clone(),
                rounds: 9,
                round: seconds(1),
                tasks: vec![1, 4, 16, 64, 256, 1024],
                handovers: 200,
                contended_for: seconds(10),
                distant: 100,
                tick_rates: vec![500.0, 5_000.0],
                ticked_for: seconds(10),
                jobs: 100_000,
                successions: 20,
                leases: 100_000,
                leases_ttl: seconds(10),
                held_for: seconds(40),
                ledger_rows: 10_000,
                ledger_ticks: 30_000,
                ids: 10_000,
                stops: 20,
                leases_per_stop: 50,
            },
            true => Self {
                only: args.only.clone(),
                rounds: 1,
                round: Duration::from_millis(100),
                tasks: vec![1, 16],
                handovers: 5,
                contended_for: seconds(1),
                distant: 3,
                tick_rates: vec![100.0],
                ticked_for: seconds(1),
                jobs: 200,
                successions: 1,
                leases: 500,
                leases_ttl: seconds(2),
                held_for: seconds(1),
                ledger_rows: 200,
                ledger_ticks: 1_000,
                ids: 1_000,
                stops: 1,
                leases_per_stop: 10,
            },
        };
        plan.rounds = args.rounds.unwrap_or(plan.rounds);
        plan.round = args.round_seconds.map_or(plan.round, Duration::from_secs_f64);
        Ok(plan)
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}
