//! Jepsen's lock workload (from its analysis of etcd 3.4.3), on five real Redis servers: five processes take a
//! lock in turn, each reads a set from a store outside, adds an element, and writes the whole set back. A
//! nemesis stops one of them (SIGSTOP) inside its critical section for longer than the lease.
//!
//! `lock-workload [--ttl 2s] [--pause-every 5s] [--for 5m] [--json]`. Three runs go on side by side, each with
//! processes, a lock and a store of its own:
//!
//! | run | the store compares tokens | a worker looks at its lease before it writes |
//! | --- | --- | --- |
//! | naive | no | no |
//! | look | no | yes |
//! | fenced | yes | no |
//!
//! It fails where *fenced* lost an acknowledged addition, and also where the others lost none: then nothing
//! was tried.
//!
//! # What is not guaranteed
//!
//! The store is one process that never fails. The token goes with the *read* too, and the store remembers the
//! largest that either carried: with a token on writes alone, a paused writer that comes back between another's
//! read and its write would be accepted, and then overwritten.

#![expect(clippy::expect_used, clippy::panic, reason = "a program for tests")]

mod mode;
mod nemesis;
mod report;
mod store;
mod worker;

use clap::Parser;
use mode::Mode;
use quorate::quorum::Quorum;
use quorate_redis::Connect;
use quorate_testkit::redis::RedisCluster;
use quorate_tests::support::PATIENCE;
use std::{process::ExitCode, thread, time::Duration};

/// How many processes compete in each run.
const WORKERS: usize = 5;
/// How many servers there are.
const NODES: usize = 5;

/// Jepsen's lock workload: updates lost without fencing checks, and with them.
#[derive(Clone, Debug, Parser)]
#[command(name = "lock-workload")]
struct Args {
    /// The lease's TTL.
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// From the beginning of a pause to that of the next.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    pause_every: Duration,
    /// How long to go on.
    #[arg(long = "for", default_value = "5m", value_parser = humantime::parse_duration)]
    time: Duration,
    /// One JSON object in place of the table.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|first| first == worker::ARGUMENT) {
        return worker::main(&words[1..]);
    }
    let args = Args::parse();
    let cluster = RedisCluster::start(NODES).unwrap_or_else(|error| panic!("{error}"));
    admit(&cluster, args.ttl);
    let runs = Mode::ALL.map(|mode| {
        let (args, urls) = (args.clone(), cluster.urls());
        thread::spawn(move || nemesis::run(mode, &args, &urls))
    });
    let outcomes: Vec<_> = runs.into_iter().map(|run| run.join().expect("a run panicked")).collect();
    if args.json {
        println!("{}", report::json(&args, &outcomes));
    } else {
        print!("{}", report::table(&args, &outcomes));
    }
    let wrong = report::wrong(&outcomes);
    wrong.iter().for_each(|what| eprintln!("lock-workload: {what}"));
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Lets new servers vote at once, which is sound while nobody has ever held anything there.
fn admit(cluster: &RedisCluster, ttl: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let builder = Quorum::redis(cluster.urls()).expect("sound URLs");
        let quorum = builder.worker("admits").max_ttl(ttl).build().expect("a sound setup");
        quorum.met(PATIENCE).await;
        // On a busy machine one may not answer in time at first.
        let give_up = quorum.env().now() + PATIENCE;
        while let Err(error) = quorum.trust_nodes().await {
            assert!(quorum.env().now() < give_up, "{error}");
            quorum.env().sleep(Duration::from_millis(20)).await;
        }
        quorum.close().await;
    });
}
