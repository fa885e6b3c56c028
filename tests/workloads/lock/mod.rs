//! Jepsen's lock workload (from its analysis of etcd 3.4.3), on real Redis servers: five processes acquire a
//! lock in turn. The holder reads a set from an external store, adds an element, and writes the whole set
//! back. The director stops one of the processes (SIGSTOP) inside its critical section for longer than the
//! lease. Three modes run at the same time, each with its own processes, its own lock and its own store:
//!
//! | mode | the store compares tokens | a worker checks its lease before it writes |
//! | --- | --- | --- |
//! | naive | no | no |
//! | check | no | yes |
//! | fenced | yes | no |
//!
//! The workload fails if mode *fenced* lost an acknowledged addition, or if its history of calls is not linearizable. It
//! also fails if the other modes lost none or if their histories are linearizable, because then the test has proved
//! nothing.
//!
//! # What is not guaranteed
//!
//! The store is one process that never fails. A *read* carries the token, too, and the store remembers the
//! largest token of any read or write. If only writes carried a token, this history would lose an update.
//! Worker A is paused before its write. Worker B, which has a larger token, reads. A continues, and the store
//! accepts its write. B then overwrites the write of A.

mod outcome;
pub(crate) mod worker;

use crate::{
    harness::{Assignment, Director, Event, Network, Node, Options, Point, Report, Servers, Set, Store},
    histories::Calls,
    work::Work,
};
use outcome::{Outcome, Pause};
use quorate::env::{BootTime, SystemWorld, World};
use quorate_tests::support::PATIENCE;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    thread,
    time::Duration,
};

const WORKERS: usize = 5;
/// The number of additions by other workers that must be acknowledged during a pause. Without them, the paused
/// worker could not overwrite anything.
const OTHERS: usize = 3;
/// The longest time that a request takes to reach the store, or a journal line to reach the director.
const UNDER_WAY: Duration = Duration::from_millis(100);

/// The mechanism that protects the set besides the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Only the lock.
    Naive,
    /// The worker checks its lease before it writes to the store.
    Check,
    /// The store compares tokens. It refuses one that is lower than the largest that it has seen.
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

/// The run of one mode.
struct Run {
    director: Director,
    store: Store,
    ttl: Duration,
    acknowledged: BTreeSet<u64>,
    skipped: BTreeSet<u64>,
    /// For each worker, the element that it was adding when it last began to check its lease.
    checking: BTreeMap<usize, u64>,
    pauses: Vec<Pause>,
    calls: Calls,
}

impl Run {
    /// Starts the workers of a mode, and pauses them until the time is over. The pauses alternate: one is
    /// before the check, the next one after it.
    fn start(mode: Mode, settings: &Settings, options: &Options, nodes: Vec<Node>) -> Self {
        let store = Store::serve(Set::new(mode == Mode::Fenced), Ipv4Addr::LOCALHOST).expect("a port");
        let task = worker::Task { mode, store: store.address() };
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
            calls: Calls::new(mode == Mode::Fenced),
        };
        run.make_pauses(options.duration.unwrap_or(Duration::from_secs(300)), settings.pause_every);
        run
    }

    fn make_pauses(&mut self, duration: Duration, every: Duration) {
        let began = SystemWorld.now();
        let give_up = began + duration + PATIENCE * 3;
        // There must be a pause of each kind, even if the time is very short.
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

    /// Pauses a worker that is adding `element`, until its lease has ended and other workers have added
    /// elements. Returns false if the worker had already passed `point` when it stopped.
    fn pause(&mut self, member: usize, point: Point, element: u64) -> bool {
        let stopped = self.director.stop(member).expect("it runs");
        // A request that the worker sent before it was stopped arrives within this time, so that the store has
        // seen it.
        thread::sleep(UNDER_WAY);
        while self.listen_for(Duration::ZERO).is_some() {}
        let mut hit = self.is_at(member, point, element);
        if hit {
            self.wait_for_others(stopped);
            // By now, even a slow journal line of the worker has arrived. So its position is checked again.
            hit = self.is_at(member, point, element);
        }
        self.director.resume(member);
        hit
    }

    /// Returns whether a stopped worker has not passed `point` with `element`, according to the journal lines
    /// that have arrived.
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
        self.calls.on_event(who, &entry);
        let Event::Reached { point, element } = entry.event else { return None };
        match point {
            Point::Acknowledged => drop(self.acknowledged.insert(element)),
            Point::Skipped => drop(self.skipped.insert(element)),
            Point::Checking => drop(self.checking.insert(who.member, element)),
            _ => {}
        }
        Some((who.member, point, element))
    }

    /// Lets the worker of the last pause finish its addition. Ends all processes, and compares the set with the
    /// acknowledged additions.
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
        // Acknowledgements that have not arrived yet count too. So the output of every process is read to its
        // end.
        let give_up = SystemWorld.now() + PATIENCE;
        while self.director.has_output() {
            assert!(SystemWorld.now() < give_up, "the output of a killed worker does not end");
            self.listen_for(Duration::from_millis(50));
        }
        let found = self.calls.finish();
        Outcome::of(mode, &self.acknowledged, &self.store.set(), self.skipped.len(), &self.pauses, &found)
    }
}
