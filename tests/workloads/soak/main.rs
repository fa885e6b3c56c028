//! Everything at once on real servers, for as long as one likes: four worker processes with locks, an election
//! with two scheduled jobs, and claims on a stream of messages; five Redis servers behind proxies; random faults,
//! which a seed fixes. Every invariant is checked as it goes.
//!
//! `cargo run --release -p quorate-tests --bin soak -- --for 20m`. It ends with a table, also after Ctrl-C, and
//! with status 1 if anything was violated.
//!
//! # What is not guaranteed
//!
//! The seed fixes which faults come and when, not how processes are scheduled: a run with the same seed is
//! another run. What a process believed is known from its looks, every 50 ms and around each deed: two beliefs
//! that overlap for less may escape. All processes share one machine and so one clock.

#![expect(clippy::expect_used, clippy::panic, reason = "a program for tests")]

mod arena;
mod checks;
mod director;
mod faults;
mod figures;
mod journal;
mod settings;
mod table;
mod truth;
mod worker;

use clap::Parser;
use director::Director;
use std::{
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// Runs workers, jobs, claims and random faults on real servers, and checks all invariants as it goes.
#[derive(Clone, Debug, Parser)]
#[command(name = "soak")]
struct Args {
    /// How long faults are made. Then everything is healed, drained and looked at.
    #[arg(long = "for", default_value = "20m", value_parser = humantime::parse_duration)]
    time: Duration,
    /// Fixes which faults come, and when. By default another each time.
    #[arg(long)]
    seed: Option<u64>,
    /// One JSON object in place of the table.
    #[arg(long)]
    json: bool,
    /// Says each fault as it is made.
    #[arg(long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|first| first == worker::ARGUMENT) {
        return worker::main(&words[1..]);
    }
    let args = Args::parse();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends us at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop)).expect("a handler");
        signal_hook::flag::register(signal, Arc::clone(&stop)).expect("a handler");
    }
    let mut director = Director::start(&args);
    director.run(args.time, &stop);
    director.finish();
    let summary = director.summary();
    if args.json {
        println!("{}", summary.json());
    } else {
        print!("{}", summary.text());
    }
    if summary.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
