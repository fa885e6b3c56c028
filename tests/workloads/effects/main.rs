//! Exactly-once effects: every worker sees every message, claims it, has its effect in PostgreSQL, and completes the
//! claim. A nemesis kills workers between the effect and `complete`, and stops them past their claims, before the
//! effect and after it.
//!
//! `effects [--messages 100000] [--workers 3] [--ttl 1s] [--json]`. Two runs, one after the other: *with* the helper of
//! `quorate-postgres` in the effect's transaction, and *without*. It fails where the run with it does not have exactly
//! one effect a message, and also where the run without it does: then nothing was tried.
//!
//! # What is not guaranteed
//!
//! The database itself never fails here, and does not sync to its disk.

#![expect(clippy::expect_used, clippy::panic, reason = "a program for tests")]

mod mode;
mod nemesis;
mod store;
mod worker;

use clap::Parser;
use mode::Mode;
use quorate_testkit::{postgres::PostgresServer, redis::RedisCluster};
use serde::Serialize;
use std::{process::ExitCode, time::Duration};

/// How many Redis servers there are.
const NODES: usize = 5;

/// Exactly-once effects, with workers killed and paused.
#[derive(Clone, Debug, Parser)]
#[command(name = "effects")]
struct Args {
    /// How many messages there are.
    #[arg(long, default_value_t = 100_000)]
    messages: usize,
    /// How many processes see them all.
    #[arg(long, default_value_t = 3)]
    workers: usize,
    /// The claims' TTL.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// One JSON object a run, a line each, in place of the table.
    #[arg(long)]
    json: bool,
}

/// What came of one run.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    mode: String,
    messages: usize,
    /// Rows that the effects have left.
    effects: u64,
    /// Messages that have at least one.
    distinct: u64,
    /// How often each fault was made.
    faults: nemesis::Faults,
    seconds: f64,
}

impl Outcome {
    fn duplicates(&self) -> u64 {
        self.effects - self.distinct
    }

    /// What the run should have shown and did not.
    fn wrong(&self) -> Option<String> {
        let messages = self.messages as u64;
        match (self.mode.parse(), self.duplicates()) {
            _ if self.distinct != messages => Some(format!(
                "{}: {} of {messages} messages had no effect",
                self.mode,
                messages - self.distinct
            )),
            (Ok(Mode::With), twice) if twice > 0 => {
                Some(format!("with the helper: {twice} effects too many"))
            }
            (Ok(Mode::Without), 0) => {
                Some("without the helper: no effect too many, so nothing was tried".to_owned())
            }
            _ => None,
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|first| first == worker::ARGUMENT) {
        return worker::main(&words[1..]);
    }
    let args = Args::parse();
    let cluster = RedisCluster::start(NODES).unwrap_or_else(|error| panic!("{error}"));
    let database = PostgresServer::start().unwrap_or_else(|error| panic!("{error}"));
    let outcomes = Mode::ALL.map(|mode| nemesis::run(mode, &args, &cluster.urls(), &database.url()));
    for outcome in &outcomes {
        if args.json {
            println!("{}", serde_json::to_string(outcome).expect("plain fields"));
        } else {
            let Outcome { mode, messages, effects, faults, seconds, .. } = outcome;
            println!(
                "{mode:8} {messages} messages, {effects} effects, {} too many; killed after the effect {}, stopped \
                 before it {}, stopped after it {}; {seconds:.0} s",
                outcome.duplicates(),
                faults.killed_after,
                faults.stopped_before,
                faults.stopped_after,
            );
        }
    }
    let wrong: Vec<String> = outcomes.iter().filter_map(Outcome::wrong).collect();
    wrong.iter().for_each(|what| eprintln!("effects: {what}"));
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
