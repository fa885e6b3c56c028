//! The parts that all plans share: servers, worker processes, the journal that workers write, faults, and the report.

mod assignment;
mod director;
mod journal;
mod left_out;
mod machines;
mod replacing;
mod report;
mod server;
mod servers;
mod store;
mod truth;

pub(crate) use assignment::{Assignment, Node};
pub(crate) use director::Director;
pub(crate) use journal::{Entry, Event, Journal, LeaseLog, Point};
pub(crate) use left_out::LeftOut;
pub(crate) use machines::{Machines, Split, on_machine};
use replacing::Replacing;
pub(crate) use report::{Durations, Report};
pub(crate) use server::is_far;
pub(crate) use servers::{Network, NodeFault, Servers};
pub(crate) use store::{Set, Store, StoreClient};
pub(crate) use truth::{MAX_TTL, Truth};

use quorate::env::{SystemWorld, World};
use std::{
    fs,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// The options of every plan. For each absent option, the plan has its own default.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Duration of the faults or of the measurement
    #[arg(long = "for", global = true, value_parser = humantime::parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Seed that determines which faults occur, and when [default: a random seed]
    #[arg(long, global = true)]
    seed: Option<u64>,
    /// Number of worker processes
    #[arg(long, global = true)]
    pub(crate) workers: Option<usize>,
    /// Number of Redis servers
    #[arg(long, global = true, default_value_t = 5)]
    pub(crate) servers: usize,
    /// Prints the report as one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Reports each fault when it occurs
    #[arg(long, global = true)]
    pub(crate) verbose: bool,
    /// Writes every line of every journal to this file
    #[arg(long, global = true)]
    pub(crate) journal: Option<PathBuf>,
}

impl Options {
    /// Returns the seed, or a random one.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| SystemWorld.random() % 1_000_000)
    }
}

/// Returns a flag that the first SIGINT or SIGTERM sets. The second one ends the process.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop)).expect("a handler");
        signal_hook::flag::register(signal, Arc::clone(&stop)).expect("a handler");
    }
    stop
}

/// Runs a future to its end on a runtime of one thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// Returns the resident memory of a process, in KiB.
pub(crate) fn resident_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
