//! The workloads: real Redis servers, worker processes that use Quorate, faults, and checks of the workers'
//! actions.
//!
//! `cargo run --release -p quorate-tests --bin workload -- PLAN [OPTIONS]`. A plan defines the servers, the
//! workers and their work, the faults, and the checks. It ends with a report, even after Ctrl-C, and with
//! status 1 if a check failed.
//!
//! | plan | work | faults | checks |
//! | --- | --- | --- | --- |
//! | `soak` | locks, jobs, shards, messages | random, of 23 kinds | every invariant |
//! | `weather` | the same, on machines that are namespaces | random, of 29 kinds, of networks, clocks and node sets too | every invariant |
//! | `guarantees` | four jobs | the leader killed, terminated, stopped, cut off | every tick and history |
//! | `any-worker` | forty jobs placed on any worker | a worker killed every ten seconds | every tick, history and share |
//! | `load` | thousands of jobs | none | lateness |
//! | `lock` | read, add, write back | workers stopped inside the critical section | lost updates |
//! | `effects` | messages with an effect in PostgreSQL | workers killed and stopped around the effect | one effect each |
//! | `handover` | one lease, taken in turn | none | exclusion |
//! | `failover` | many groups of two candidates | each leader killed, terminated, stopped, cut off | exclusion, fencing; the time without a leader |
//!
//! The plans `soak`, `guarantees`, `any-worker` and `lock` also give their journals to a linearizability checker
//! ([`histories`]); its verdict is a part of the report.
//!
//! With `--leave-out`, the workers of the plans `soak` and `weather` leave out a safety mechanism of the library, and the
//! checks must find a violation. This option needs the feature `sabotage`.
//!
//! # What is not guaranteed
//!
//! A seed determines which faults occur and when. It does not determine how the system schedules processes,
//! so a second run with the same seed may differ. All processes share one machine, and so one clock.

#![expect(clippy::expect_used, clippy::panic, reason = "a program for tests")]

mod any_worker;
mod checks;
mod effects;
mod failover;
mod guarantees;
mod handover;
mod harness;
mod histories;
mod lock;
mod soak;
mod weather;
mod work;

use clap::{Parser, Subcommand};
use harness::Options;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "workload", about = "Runs a plan of servers, workers, faults and checks")]
struct Args {
    #[command(subcommand)]
    plan: Plan,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Plan {
    /// Leases, jobs and messages under random faults
    Soak(soak::Settings),
    /// The same on machines with a network, clocks and replaced servers
    Weather(soak::Settings),
    /// One leader after the other brought down, and every tick accounted for
    Guarantees(guarantees::Settings),
    /// Jobs placed on any worker, one worker killed after the other, and every tick accounted for
    AnyWorker(any_worker::Settings),
    /// Many jobs on one worker: lateness of their runs, and cost of a tick
    Load(guarantees::load::Settings),
    /// Jepsen's lock workload: lost updates without fencing tokens, with a check, and with tokens
    Lock(lock::Settings),
    /// Exactly-once effects in PostgreSQL, with and without the effects table
    Effects(effects::Settings),
    /// One lease handed from contender to contender: duration of each handover
    Handover(handover::Settings),
    /// The leaders of many groups brought down: time until the next one leads
    Failover(failover::Settings),
}

fn main() -> ExitCode {
    if let Some(assignment) = harness::Assignment::from_arguments() {
        return work::main(&assignment);
    }
    let Args { plan, options } = Args::parse();
    let stop = harness::stop_flag();
    let report = match &plan {
        Plan::Soak(settings) => soak::run(settings, &options, &stop),
        Plan::Weather(_) if !weather::is_inside() => return weather::enter(&stop),
        Plan::Weather(settings) => weather::run(settings, &options, &stop),
        Plan::Guarantees(settings) => guarantees::run(settings, &options, &stop),
        Plan::AnyWorker(settings) => any_worker::run(settings, &options, &stop),
        Plan::Load(settings) => guarantees::load::run(settings, &options),
        Plan::Lock(settings) => lock::run(settings, &options),
        Plan::Effects(settings) => effects::run(settings, &options),
        Plan::Handover(settings) => handover::run(settings, &options),
        Plan::Failover(settings) => failover::run(settings, &options, &stop),
    };
    report.print(options.json)
}
