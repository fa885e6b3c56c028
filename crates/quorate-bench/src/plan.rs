//! What was asked for on the command line.

use crate::scenarios;
use clap::Parser;
use std::time::Duration;

/// Measures Quorate beside its rivals on five Redis servers, and prints a table.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// Prints JSON instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Runs this scenario only; may be given several times.
    #[arg(long, value_name = "SCENARIO")]
    only: Vec<String>,
    /// Names the scenarios and ends.
    #[arg(long)]
    list: bool,
    /// Shows in seconds that everything runs; its figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// How many rounds each rival has; they take turns.
    #[arg(long)]
    rounds: Option<usize>,
    /// How long a round is.
    #[arg(long, value_name = "SECONDS")]
    round_seconds: Option<f64>,
    /// A server to use in place of one that is started; give it once for each. It is written to.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Vec<String>,
}

/// How long and how much.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    only: Vec<String>,
    /// Rounds a rival.
    pub(crate) rounds: usize,
    /// The length of one.
    pub(crate) round: Duration,
    /// How often a lease changes hands, a rival.
    pub(crate) hand_overs: usize,
    /// How often a leader changes.
    pub(crate) successions: usize,
    /// How many leases one process holds.
    pub(crate) leases: usize,
    /// The TTL of these.
    pub(crate) leases_ttl: Duration,
    /// For how long.
    pub(crate) held_for: Duration,
    /// How many jobs a long ledger knows.
    pub(crate) ledger_rows: usize,
    /// How many ticks.
    pub(crate) ledger_ticks: usize,
    /// How many message ids are claimed, a round.
    pub(crate) ids: usize,
    /// How often a majority of the servers stops.
    pub(crate) stops: usize,
    /// How many leases are held at each.
    pub(crate) leases_a_stop: usize,
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
            return Err(format!("--only {unknown} is no scenario; choose of {}", known.join(", ")));
        }
        if let Some(seconds) = args.round_seconds.filter(|s| !(0.01..=600.0).contains(s)) {
            return Err(format!("--round-seconds is {seconds}; give it 0.01 to 600"));
        }
        if args.rounds == Some(0) {
            return Err("--rounds is 0; give it 1 at least".to_owned());
        }
        let seconds = Duration::from_secs;
        let mut plan = match args.quick {
            false => Self {
                only: args.only.clone(),
                rounds: 9,
                round: seconds(1),
                hand_overs: 200,
                successions: 20,
                leases: 100_000,
                leases_ttl: seconds(10),
                held_for: seconds(40),
                ledger_rows: 10_000,
                ledger_ticks: 30_000,
                ids: 10_000,
                stops: 20,
                leases_a_stop: 50,
            },
            true => Self {
                only: args.only.clone(),
                rounds: 1,
                round: Duration::from_millis(100),
                hand_overs: 5,
                successions: 1,
                leases: 500,
                leases_ttl: seconds(2),
                held_for: seconds(1),
                ledger_rows: 200,
                ledger_ticks: 1_000,
                ids: 1_000,
                stops: 1,
                leases_a_stop: 10,
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
