//! Jepsen's lock workload (from its analysis of etcd 3.4.3), on real Redis servers: five processes acquire a
//! lock in turn. The holder reads a set from an external store, adds an element, and writes the whole set
//! back. The director stops one of them (SIGSTOP) inside its critical section for longer than the lease.
//! Three modes run at the same time, each with its own processes, its own lock and its own store:
//!
//! | mode | the store compares tokens | a worker checks its lease before it writes |
//! | --- | --- | --- |
//! | naive | no | no |
//! | check | no | yes |
//! | fenced | yes | no |
//!
//! The workload fails if mode *fenced* lost an acknowledged addition. It also fails if the other modes lost
//! none, because then the test has proved nothing.
//!
//! # What is not guaranteed
//!
//! The store is one process that never fails. A *read* carries the token, too, and the store remembers the
//! largest token of any read or write. If only writes carried a token, this history would lose an update.
//! Worker A is paused before its write. Worker B, which has a larger token, reads. A continues, and the store
//! accepts its write. B then overwrites the write of A.

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
/// The number of additions of other workers that must be acknowledged during a pause. Without them the paused
/// worker could not overwrite anything.
const OTHERS: usize = 3;
/// The longest time that a request takes from a worker to the store, or a line from a worker's output to the
/// director.
const UNDER_WAY: Duration = Duration::from_millis(100);

/// The mechanism that protects the set in addition to the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// No mechanism.
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
    /// For each worker, the element that it was about to add when it last began to check its lease.
    checking: BTreeMap<usize, u64>,
    pauses: Vec<Pause>,
}

impl Run {
    /// Starts the workers, and pauses them until the time is over. The pauses are alternately before and
    /// after the check.
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
        // Each kind of pause happens at least once, however short the time is.
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

    /// Pauses a worker that adds `element`, until its lease has ended and other workers have added elements.
    /// Returns false if the worker had passed `point` before it stopped.
    fn pause(&mut self, member: usize, point: Point, element: u64) -> bool {
        let stopped = self.director.stop(member).expect("it runs");
        // A request that the worker sent before it was stopped arrives within this time.
        thread::sleep(UNDER_WAY);
        while self.listen_for(Duration::ZERO).is_some() {}
        let mut hit = self.is_at(member, point, element);
        if hit {
            self.wait_for_others(stopped);
            // A journal line that took longer has arrived by now.
            hit = self.is_at(member, point, element);
        }
        self.director.resume(member);
        hit
    }

    /// Returns whether, according to the lines that have arrived, a stopped worker has not passed `point`
    /// with `element`.
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

    /// Waits for the next point that a worker reaches, and returns it.
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

    /// Lets the worker of the last pause finish its addition, ends all processes, and compares the set with
    /// the acknowledgements.
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
        // Acknowledgements that are still in transit count, until the output of every process has ended.
        let give_up = SystemWorld.now() + PATIENCE;
        while self.director.has_output() {
            assert!(SystemWorld.now() < give_up, "the output of a killed worker does not end");
            self.listen_for(Duration::from_millis(50));
        }
        Outcome::of(mode, &self.acknowledged, &self.store.set(), self.skipped.len(), &self.pauses)
    }
}
