//! Exactly-once effects. Every worker sees every message and tries to claim it. The worker with the claim
//! commits the message's effect to PostgreSQL, and completes the claim. The director kills workers between
//! the effect and the completion, and stops other workers before or after the effect, until their claims have
//! expired. Two modes run one after the other: *with* the table of `quorate-postgres` in the effect's
//! transaction, and *without* it. The workload fails if the mode with the table does not have exactly one
//! effect for each message. It also fails if the mode without the table has exactly one effect for each
//! message, because then the test has proved nothing.
//!
//! # What is not guaranteed
//!
//! The database never fails here, and does not sync to its disk.

mod database;
pub(crate) mod worker;

use crate::{
    harness::{Assignment, Director, Event, Network, Options, Point, Report, Servers, block_on},
    histories::{self, Messages},
    work::Work,
};
use quorate::env::{BootTime, SystemWorld, World};
use quorate_testkit::postgres::PostgresServer;
use quorate_tests::support::PATIENCE;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{fmt, time::Duration};

const WORKERS: usize = 3;
/// The shortest time from one fault to the next.
const PERIOD: Duration = Duration::from_millis(250);
/// The required number of faults of each kind. If there were fewer, the test had too few messages.
const EACH: u32 = 2;

/// The means by which a mode prevents a second effect of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// The claim, and the table of `quorate-postgres`: the effect's transaction also records the message.
    With,
    /// Only the claim.
    Without,
}

/// Formats the mode as a part of the names of its tables.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::With { "with" } else { "without" })
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Settings {
    /// Number of messages
    #[arg(long, default_value_t = 100_000)]
    messages: usize,
    /// TTL of the claims
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    ttl: Duration,
}

/// The number of faults of each kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Faults {
    /// The number of workers that were killed between the effect and the completion.
    killed_after: u32,
    /// The number of workers that were stopped between the claim and the effect, until the claim had expired.
    stopped_before: u32,
    /// The number of workers that were stopped between the effect and the completion, until the claim had
    /// expired.
    stopped_after: u32,
}

/// The outcome of one mode.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    mode: Mode,
    messages: usize,
    /// The number of rows that the effects have written.
    effects: u64,
    /// The number of messages with at least one effect.
    distinct: u64,
    faults: Faults,
    seconds: f64,
    /// The verdict of the linearizability checker about the claims.
    linearizability: Value,
    not_linearizable: Option<String>,
}

impl Outcome {
    /// Returns a violation if the outcome is not the one that the mode must have.
    fn violation(&self) -> Option<String> {
        let (messages, mode, faults) = (self.messages as u64, self.mode, &self.faults);
        let fewest = faults.killed_after.min(faults.stopped_before).min(faults.stopped_after);
        let why = match (mode, self.effects - self.distinct) {
            _ if fewest < EACH => format!("too few faults: {faults:?}; more messages are required"),
            _ if self.not_linearizable.is_some() => self.not_linearizable.clone().unwrap_or_default(),
            _ if self.distinct != messages => format!("{} messages had no effect", messages - self.distinct),
            (Mode::With, again) if again > 0 => format!("{again} effects too many"),
            (Mode::Without, 0) => "no effect too many, so nothing was tested".to_owned(),
            _ => return None,
        };
        Some(format!("effects: {mode} the table: {why}"))
    }
}

/// Runs both modes.
pub(crate) fn run(settings: &Settings, options: &Options) -> Report {
    let servers = Servers::start(options.servers, false, Network::Direct);
    let database = PostgresServer::start().unwrap_or_else(|error| panic!("{error}"));
    let outcomes =
        [Mode::With, Mode::Without].map(|mode| run_mode(mode, settings, options, &servers, &database));
    let violations = outcomes.iter().filter_map(Outcome::violation).collect();
    Report { figures: json!({ "runs": outcomes }), violations }
}

fn run_mode(
    mode: Mode,
    settings: &Settings,
    options: &Options,
    servers: &Servers,
    database: &PostgresServer,
) -> Outcome {
    let (messages, ttl, url) = (settings.messages, settings.ttl, database.url());
    block_on(database::prepare(&url, mode)).expect("tables");
    let workers = options.workers.unwrap_or(WORKERS);
    let task = worker::Task { mode, workers, messages, database: url.clone() };
    let assignment = Assignment::new(servers.nodes(0), ttl, Work::Effects(task));
    let director = Director::start(options, workers, "", move |_| assignment.clone());
    let (faults, done) = (Faults::default(), vec![false; workers]);
    let claims = Messages::default();
    let mut run = Run { director, ttl, faults, stopped: Vec::new(), done, claims };
    run.make_faults();
    let seconds = run.director.elapsed().as_secs_f64();
    let claims = &mut run.claims;
    run.director.end(PATIENCE, |director, who, entry| claims.on_event(who, entry, director.truth()));
    run.director.expect_all_alive();
    let (effects, distinct) = block_on(database::count(&url, mode)).expect("two numbers");
    let found = run.claims.finish(SystemWorld.now(), run.director.truth());
    let not_linearizable = histories::violations("claims", &found).into_iter().next();
    let linearizability = histories::figures(&found);
    let faults = run.faults;
    Outcome { mode, messages, effects, distinct, faults, seconds, linearizability, not_linearizable }
}

struct Run {
    director: Director,
    ttl: Duration,
    faults: Faults,
    /// The stopped workers, each with the time of its stop.
    stopped: Vec<(usize, BootTime)>,
    /// For each worker, true if it has reported that nothing is left to do.
    done: Vec<bool>,
    claims: Messages,
}

impl Run {
    /// Causes faults, one after the other, until all workers have reported that nothing is left to do.
    fn make_faults(&mut self) {
        let (mut last_fault, mut last_event) = (SystemWorld.now(), SystemWorld.now());
        while self.done.contains(&false) {
            let now = SystemWorld.now();
            assert!(now.since(last_event) < PATIENCE * 3, "no worker reports anything: {:?}", self.done);
            self.resume_expired(now);
            self.director.expect_all_alive();
            let Some((who, entry)) = self.director.next(Duration::from_millis(20)) else { continue };
            last_event = now;
            self.claims.on_event(who, &entry, self.director.truth());
            let Event::Reached { point, .. } = entry.event else { continue };
            let current = who == self.director.who(who.member) && self.director.is_active(who.member);
            if point == Point::AllDone {
                self.done[who.member] = true;
            } else if now.since(last_fault) >= PERIOD && current && self.make_fault(who.member, point) {
                last_fault = now;
            }
        }
    }

    /// Lets those stopped workers continue whose claims have expired by now.
    fn resume_expired(&mut self, now: BootTime) {
        let long = self.ttl * 3 / 2;
        for (member, _) in self.stopped.extract_if(.., |(_, since)| now.since(*since) > long) {
            self.director.resume(member);
        }
    }

    /// Causes a fault that fits the point at which the worker is. Prefers the kind that was least frequent.
    /// Returns false if no kind fits.
    fn make_fault(&mut self, member: usize, point: Point) -> bool {
        let Faults { killed_after, stopped_before, stopped_after } = &mut self.faults;
        match point {
            Point::Committed if killed_after <= stopped_after => {
                *killed_after += 1;
                self.director.kill(member);
                return self.director.start_worker(member);
            }
            Point::Committed => *stopped_after += 1,
            Point::Claimed if *stopped_before <= *stopped_after => *stopped_before += 1,
            _ => return false,
        }
        let stopped = self.director.stop(member);
        self.stopped.extend(stopped.map(|since| (member, since)));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_must_have_as_many_effects_as_its_guard_allows() {
        let faults = Faults { killed_after: 2, stopped_before: 2, stopped_after: 2 };
        let outcome =
            |mode, effects, distinct| Outcome { mode, effects, distinct, faults, ..whole() }.violation();
        assert_eq!((outcome(Mode::With, 10, 10), outcome(Mode::Without, 11, 10)), (None, None));
        for bad in [outcome(Mode::With, 11, 10), outcome(Mode::With, 9, 9), outcome(Mode::Without, 10, 10)] {
            assert!(bad.is_some());
        }
        assert!(whole().violation().is_some(), "too few faults");
        let twice = Some("a message was claimed after it was done".to_owned());
        assert!(Outcome { faults, not_linearizable: twice, ..whole() }.violation().is_some());
    }

    /// Returns the outcome of a run without faults.
    fn whole() -> Outcome {
        Outcome {
            mode: Mode::With,
            messages: 10,
            effects: 10,
            distinct: 10,
            faults: Faults::default(),
            seconds: 1.0,
            linearizability: Value::Null,
            not_linearizable: None,
        }
    }
}
