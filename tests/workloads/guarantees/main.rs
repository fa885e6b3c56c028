//! Kept promises: what the scheduler says it does, held against what its worker processes wrote down.
//!
//! `cargo run --release -p quorate-tests --bin promises -- changes [--changes 200] [--seed N]`: three worker processes with
//! jobs that tick each second, on five Redis servers; the leader is killed, told to end, stopped and let go on late, or cut
//! off, two hundred times. Then every tick of the whole run is accounted for.
//!
//! `cargo run --release -p quorate-tests --bin promises -- load [--registered 10000] [--due 500] [--for 30s]`: one worker
//! process with so many jobs, of which so many are due a second: how late they start, and what a tick costs.
//!
//! # What is not guaranteed
//!
//! The seed fixes which faults come and how long each leader leads, not how processes are scheduled: a run with the same
//! seed is another run. All processes share one machine and so one clock.

#![expect(clippy::expect_used, clippy::panic, reason = "a program for tests")]

mod account;
mod arena;
mod director;
mod history;
mod journal;
mod load;
mod report;
mod settings;
mod worker;

use clap::{Parser, Subcommand};
use director::Director;
use quorate::env::{SystemWorld, World};
use report::Report;
use std::{
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// What the scheduler promises, held against what its workers wrote down.
#[derive(Clone, Debug, Parser)]
#[command(name = "promises")]
struct Args {
    #[command(subcommand)]
    what: What,
    /// One JSON object in place of the table.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Brings one leader down after the other, and accounts for every tick.
    Changes {
        /// How many changes of the leader.
        #[arg(long, default_value_t = 200)]
        changes: usize,
        /// Fixes which faults come, and how long each leader leads. By default another each time.
        #[arg(long)]
        seed: Option<u64>,
        /// The lease's TTL.
        #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
        ttl: Duration,
        /// Where to write all lines of all journals.
        #[arg(long)]
        journal: Option<PathBuf>,
    },
    /// Runs many jobs on one worker, and tells how late they start and what a tick costs.
    Load(load::Args),
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some(worker::ARGUMENT) => return worker::main(&words[1..]),
        Some(load::ARGUMENT) => return load::worker(&words[1..]),
        _ => {}
    }
    let Args { what, json } = Args::parse();
    match what {
        What::Changes { changes, seed, ttl, journal } => self::changes(changes, seed, ttl, journal, json),
        What::Load(args) => load::run(&args, json),
    }
}

fn changes(
    changes: usize,
    seed: Option<u64>,
    ttl: Duration,
    journal: Option<PathBuf>,
    json: bool,
) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends us at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop)).expect("a handler");
        signal_hook::flag::register(signal, Arc::clone(&stop)).expect("a handler");
    }
    let seed = seed.unwrap_or_else(|| SystemWorld.random() % 1_000_000);
    eprintln!("promises: seed {seed}, {changes} changes");
    let began = SystemWorld.now();
    let mut director = Director::start(seed, ttl);
    let urls = director.urls();
    director.run(changes, &stop);
    let (story, _arena) = director.finish();
    if let Some(path) = journal {
        let lines: Vec<String> =
            story.lines.iter().map(|(who, entry)| format!("{who:?} {entry:?}\n")).collect();
        fs::write(&path, lines.concat()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let mut verdict = story.judge();
    match history::read(&urls, ttl) {
        Ok(histories) => verdict.violations.extend(history::differences(&story, &histories)),
        Err(error) => verdict.violations.push(format!("history: {error}")),
    }
    let report = Report {
        seed,
        seconds: SystemWorld.now().since(began).as_secs_f64(),
        story: &story,
        verdict: &verdict,
    };
    if json {
        println!("{}", report.json());
    } else {
        print!("{}", report.text());
    }
    if verdict.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
