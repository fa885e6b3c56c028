//! Jepsen's lock workload (from its analysis of etcd 3.4.3), on real Redis servers: five processes take a lock in turn;
//! each reads a set from a store outside, adds an element, and writes the whole set back. The director stops one of them
//! (SIGSTOP) inside its critical section for longer than the lease. Three modes run at the same time, each with processes,
//! a lock and a store of its own:
//!
//! | mode | the store compares tokens | a worker checks its lease before it writes |
//! | --- | --- | --- |
//! | naive | no | no |
//! | check | no | yes |
//! | fenced | yes | no |
//!
//! It fails where *fenced* lost an acknowledged addition, and also where the others lost none: then nothing was tested.
//!
//! # What is not guaranteed
//!
//! The store is one process that never fails. The token goes with the *read* too, and the store remembers the largest that
//! either carried. With a token on writes alone, a paused writer that comes back between another's read and its write would
//! be accepted, and then overwritten.

mod outcome;
mod store;
pub(crate) mod worker;

use crate::{
    harness::{Assignment, Director, Event, Network, Node, Options, Point, Report, Servers},
    work::Work,
};
use outcome::{Outcome, Pause};
use quorate::env::{BootTime, SystemWorld, World};
use quorate_tests::support::PATIENCE;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::Duration,
};
use store::{Set, Store};

const WORKERS: usize = 5;
/// The additions of others that must be acknowledged during a pause, so that there is something to lose.
const OTHERS: usize = 3;
/// The time that a request may take from a worker to the store, and a line from its output to the director.
const UNDER_WAY: Duration = Duration::from_millis(100);

/// The guard of the set besides the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Nothing.
    Naive,
    /// The worker checks its lease before it writes.
    Check,
    /// The store refuses a token lower than the largest that it has seen.
    Fenced,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Settings {
    /// TTL of the lease
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// Time from the beginning of a pause to that of the next one
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    pause_every: Duration,
}

/// Runs all modes.
pub(crate) fn run(settings: &Settings, options: &Options) -> Report {
    let servers = Servers::start(options.servers, false, Network::Direct);
    let runs = [Mode::Naive, Mode::Check, Mode::Fenced].map(|mode| {
        let (settings, options, nodes) = (settings.clone(), options.clone(), servers.nodes(0));
        thread::spawn(move || Run::start(mode, &settings, &options, nodes).finish(mode))
    });
    let outcomes = runs.map(|run| run.join().expect("a mode panicked"));
    let violations = outcomes.iter().filter_map(Outcome::violation).collect();
    let (ttl, every) = (settings.ttl.as_millis(), settings.pause_every.as_millis());
    Report { figures: json!({ "ttl_ms": ttl, "pause_every_ms": every, "runs": outcomes }), violations }
}

/// One mode.
struct Run {
    director: Director,
    store: Store,
    ttl: Duration,
    acknowledged: BTreeSet<u64>,
    skipped: BTreeSet<u64>,
    /// The element for which each worker last went to check its lease.
    checking: BTreeMap<usize, u64>,
    pauses: Vec<Pause>,
}

impl Run {
    /// Starts the workers and pauses them, before the check and after it in turn, until the time is over.
    fn start(mode: Mode, settings: &Settings, options: &Options, nodes: Vec<Node>) -> Self {
        let store = Store::serve(Set::new(mode == Mode::Fenced)).expect("a port");
        let task = worker::Task { mode, store: store.port() };
        let assignment = Assignment::new(nodes, settings.ttl, Work::Lock(task));
        let workers = options.workers.unwrap_or(WORKERS);
        let mut run = Self {
            director: Director::start(options, workers, "", move |_| assignment.clone()),
            store,
            ttl: settings.ttl,
            acknowledged: BTreeSet::new(),
            skipped: BTreeSet::new(),
            checking: BTreeMap::new(),
            pauses: Vec::new(),
        };
        run.make_pauses(options.duration.unwrap_or(Duration::from_secs(300)), settings.pause_every);
        run
    }

    fn make_pauses(&mut self, duration: Duration, every: Duration) {
        let began = SystemWorld.now();
        let give_up = began + duration + PATIENCE * 3;
        // However short the time, each kind of pause is made.
        let mut next = began + every / 2;
        while SystemWorld.now() < began + duration || self.pauses.len() < 2 {
            assert!(SystemWorld.now() < give_up, "no pause hits its point: {:?}", self.pauses);
            let point = if self.pauses.len().is_multiple_of(2) { Point::Read } else { Point::Checked };
            let Some((member, reached, element)) = self.listen() else { continue };
            if reached == point && SystemWorld.now() >= next && self.pause(member, point, element) {
                self.pauses.push(Pause { point, element });
                next = next.max(SystemWorld.now() - every) + every;
            }
        }
    }

    /// Pauses a worker that adds `element`, until its lease has ended and others have added more. Returns false where it
    /// was beyond `point` before it stopped.
    fn pause(&mut self, member: usize, point: Point, element: u64) -> bool {
        let stopped = self.director.stop(member).expect("it runs");
        // What it may have sent before it was stopped arrives within this time.
        thread::sleep(UNDER_WAY);
        while self.listen_for(Duration::ZERO).is_some() {}
        let mut hit = self.is_at(member, point, element);
        if hit {
            self.wait_for_others(stopped);
            // A line that took longer has arrived by now.
            hit = self.is_at(member, point, element);
        }
        self.director.resume(member);
        hit
    }

    /// Returns whether a stopped worker has not gone beyond `point` with `element`, by what has arrived.
    fn is_at(&self, member: usize, point: Point, element: u64) -> bool {
        let beyond = point == Point::Read && self.checking.get(&member) == Some(&element);
        !beyond && !self.store.set().has_seen(element)
    }

    fn wait_for_others(&mut self, stopped: BootTime) {
        let (ended, give_up) = (stopped + self.ttl + self.ttl / 2, stopped + PATIENCE + self.ttl * 2);
        let before = self.acknowledged.len();
        while SystemWorld.now() < ended || self.acknowledged.len() < before + OTHERS {
            assert!(SystemWorld.now() < give_up, "no worker takes the lock of a paused worker");
            self.listen();
        }
    }

    /// The next point that a worker reaches.
    fn listen(&mut self) -> Option<(usize, Point, u64)> {
        self.director.expect_all_alive();
        self.listen_for(Duration::from_millis(50))
    }

    fn listen_for(&mut self, wait: Duration) -> Option<(usize, Point, u64)> {
        let (who, entry) = self.director.next(wait)?;
        let Event::Reached { point, element } = entry.event else { return None };
        match point {
            Point::Acknowledged => drop(self.acknowledged.insert(element)),
            Point::Skipped => drop(self.skipped.insert(element)),
            Point::Checking => drop(self.checking.insert(who.member, element)),
            _ => {}
        }
        Some((who.member, point, element))
    }

    /// Lets the worker of the last pause finish its addition, ends all, and compares.
    fn finish(mut self, mode: Mode) -> Outcome {
        if let Some(last) = self.pauses.last().copied() {
            let give_up = SystemWorld.now() + PATIENCE;
            while !(self.store.set().has_seen(last.element) || self.skipped.contains(&last.element)) {
                assert!(SystemWorld.now() < give_up, "a worker that was paused does not go on");
                self.listen();
            }
        }
        for member in 0..self.director.workers() {
            self.director.kill(member);
        }
        // Acknowledgements that are under way count, up to the end of every output.
        let give_up = SystemWorld.now() + PATIENCE;
        while self.director.has_output() {
            assert!(SystemWorld.now() < give_up, "the output of a killed worker does not end");
            self.listen_for(Duration::from_millis(50));
        }
        Outcome::of(mode, &self.acknowledged, &self.store.set(), self.skipped.len(), &self.pauses)
    }
}
