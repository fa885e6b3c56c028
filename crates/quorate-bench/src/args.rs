use clap::Parser;
use std::path::PathBuf;

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
    pub(crate) only: Vec<String>,
    /// Lists the scenarios and exits.
    #[arg(long)]
    pub(crate) list: bool,
    /// Checks within seconds that everything runs; its figures mean nothing.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Sets the number of rounds of each rival; rivals alternate.
    #[arg(long)]
    pub(crate) rounds: Option<usize>,
    /// Sets the length of a round.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) round_seconds: Option<f64>,
    /// Uses this server instead of starting one; give it once for each server. It is written to.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Vec<String>,
}
