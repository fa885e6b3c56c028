//! A plan that checks the guarantees of the scheduler. Three worker processes run jobs that are due each
//! second, on five Redis servers. Two hundred times, the plan kills, terminates, stops or cuts off the leader.
//! A leader that was stopped or cut off continues only when another worker already leads. At the end, the plan
//! judges every tick, and compares the ticks with the histories of the jobs.

mod account;
mod history;
pub(crate) mod load;

use crate::{
    harness::{Assignment, Director, Event, Network, Options, Report, Servers},
    histories::{self, Leases, Runs},
    work::{
        TERM, Work,
        lead::{GUARANTEES, TICK_EVERY},
    },
};
use account::{Change, Kind, Story};
use quorate::{
    env::{BootTime, SystemWorld, World},
    scheduler::Delivery,
};
use quorate_testkit::sim::SeedRng;
use quorate_tests::support::{PATIENCE, Who};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const WORKERS: usize = 3;
/// The longest time that the director waits for an event in one round.
const STEP: Duration = Duration::from_millis(5);
/// The shortest and the longest time for which a leader leads before a fault hits it, in milliseconds.
const LEADS_MS: (u64, u64) = (100, 1900);
/// The longest time for which a leader stays stopped or cut off after another worker was elected, in
/// milliseconds.
const LATE_MS: u64 = 600;
/// The longest time until a worker leads.
const TO_LEAD: Duration = Duration::from_secs(30);
/// The longest time that catch-up runs may take after all faults have ended.
const TO_DRAIN: Duration = Duration::from_secs(30);
/// The number of changes between two reports of progress.
const PROGRESS_EVERY: usize = 20;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Settings {
    /// Number of changes of the leader
    #[arg(long, default_value_t = 200)]
    changes: usize,
    /// TTL of the leader's lease
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    ttl: Duration,
}

/// Changes the leader until there were enough changes, or `stop` is set. Then judges all journals.
pub(crate) fn run(settings: &Settings, options: &Options, stop: &AtomicBool) -> Report {
    let seed = options.seed();
    eprintln!("workload: guarantees: seed {seed}, {} changes", settings.changes);
    let mut guarantees = Guarantees::start(settings, options, seed);
    guarantees.run(settings.changes, stop);
    guarantees.finish(seed, settings.ttl)
}

struct Guarantees {
    // This field is declared first, so that the workers are dropped before their servers.
    director: Director,
    servers: Servers,
    rng: SeedRng,
    story: Story,
    terms: Leases,
    runs: Runs,
    /// The ticks that are done, each with its job.
    done: BTreeSet<(Arc<str>, u64)>,
}

impl Guarantees {
    fn start(settings: &Settings, options: &Options, seed: u64) -> Self {
        let workers = options.workers.unwrap_or(WORKERS);
        let servers = Servers::start(options.servers, false, Network::PerWorker(workers));
        let nodes: Vec<_> = (0..workers).map(|member| servers.nodes(member)).collect();
        let ttl = settings.ttl;
        let assign = move |member: usize| Assignment::new(nodes[member].clone(), ttl, Work::Jobs);
        let story = Story { clocks: (SystemWorld.wall(), SystemWorld.now()), ..Story::default() };
        Self {
            director: Director::start(options, workers, TERM, assign),
            servers,
            rng: SeedRng::new(seed, "guarantees"),
            story,
            terms: Leases::default(),
            runs: Runs::new(delivery),
            done: BTreeSet::new(),
        }
    }

    fn run(&mut self, changes: usize, stop: &AtomicBool) {
        let mut deck: Vec<Kind> = Vec::new();
        for number in 1..=changes {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            if deck.is_empty() {
                deck = Kind::MADE.to_vec();
            }
            let kind = deck.swap_remove(self.rng.index(deck.len()));
            self.change(kind);
            if number % PROGRESS_EVERY == 0 {
                eprintln!("workload: {number} changes, {} lines", self.director.lines());
            }
        }
    }

    /// Makes the leader lose its term by a fault of this kind. Waits until another worker leads.
    fn change(&mut self, kind: Kind) {
        let (who, term) = self.await_leader(0);
        let hit_at = SystemWorld.now() + self.rng.millis(LEADS_MS.0..=LEADS_MS.1);
        while SystemWorld.now() < hit_at {
            self.listen(STEP);
            if self.director.leader() != Some((who, term)) {
                // The leader lost its term before the fault. So this call waits for the next leader, and the
                // fault hits that one.
                return self.change(kind);
            }
        }
        let (member, at) = (who.member, SystemWorld.now());
        let hit = match kind {
            Kind::Killed => self.director.kill(member),
            Kind::Terminated => self.director.terminate(member),
            Kind::Stopped => self.director.stop(member),
            Kind::CutOff => {
                self.servers.cut_off(member);
                Some(at)
            }
            Kind::ByItself => None,
        };
        assert!(hit.is_some(), "the leader {who:?} does not run");
        self.story.changes.push(Change { kind, who, term, at });
        match kind {
            Kind::Killed => drop(self.director.start_worker(member)),
            Kind::Terminated => self.restart(member),
            _ => {}
        }
        self.await_leader(term);
        if matches!(kind, Kind::Stopped | Kind::CutOff) {
            let resume_at = SystemWorld.now() + self.rng.millis(0..=LATE_MS);
            while SystemWorld.now() < resume_at {
                self.listen(STEP);
            }
            match kind {
                Kind::Stopped => drop(self.director.resume(member)),
                _ => self.servers.reconnect(member),
            }
        }
    }

    /// Waits until a worker that got SIGTERM has ended, and starts it again.
    fn restart(&mut self, member: usize) {
        let give_up = SystemWorld.now() + PATIENCE;
        while !self.director.ended(PATIENCE).iter().any(|(ended, _)| *ended == member) {
            assert!(SystemWorld.now() < give_up, "worker {member} does not end");
            self.listen(STEP);
        }
        self.director.start_worker(member);
    }

    /// Waits until a worker leads under a later term than `after`.
    fn await_leader(&mut self, after: u64) -> (Who, u64) {
        let give_up = SystemWorld.now() + TO_LEAD;
        loop {
            if let Some(leader) = self.director.leader().filter(|(_, term)| *term > after) {
                return leader;
            }
            assert!(SystemWorld.now() < give_up, "no worker leads: {:?}", self.director.leader());
            self.listen(STEP);
        }
    }

    /// Reads the next event, if one arrives within `wait`.
    fn listen(&mut self, wait: Duration) {
        let before = self.director.leader();
        let Some((who, entry)) = self.director.next(wait) else { return };
        // The leader has changed although no fault was caused. So the previous leader lost its term by itself.
        if let Some((who, term)) = before
            && self.director.leader() != before
            && !self.story.changes.iter().any(|change| change.term == term)
        {
            self.story.changes.push(Change { kind: Kind::ByItself, who, term, at: entry.at() });
        }
        self.terms.on_event(who, &entry, self.director.truth());
        self.runs.on_event(who, &entry);
        self.runs.settle(entry.at(), self.director.truth());
        match &entry.event {
            Event::RunDone { job, tick, .. } => drop(self.done.insert((Arc::clone(job), *tick))),
            Event::Valid { .. } => return,
            _ => {}
        }
        self.story.lines.push((who, entry));
    }

    /// Waits until every tick is done, ends the workers, and judges the journals.
    fn finish(mut self, seed: u64, ttl: Duration) -> Report {
        let until = SystemWorld.wall() + TICK_EVERY * 2;
        // The test waits until the last tick that is judged, and all catch-up runs before it, have ended.
        let give_up = SystemWorld.now() + TO_DRAIN;
        while !(SystemWorld.wall() > until + TICK_EVERY && self.all_done(until.as_micros()))
            && SystemWorld.now() < give_up
        {
            self.listen(STEP);
        }
        let Self { mut director, servers, mut story, mut terms, mut runs, .. } = self;
        director.end(PATIENCE, |director, who, entry| {
            terms.on_event(who, entry, director.truth());
            runs.on_event(who, entry);
            story.lines.push((who, entry.clone()));
        });
        story.until = until;
        let mut linear = terms.finish(SystemWorld.now(), director.truth());
        linear.merge(runs.finish(director.truth()));
        director.violate(histories::violations("terms and runs", &linear));
        let mut verdict = story.judge();
        director.violate(std::mem::take(&mut verdict.violations));
        match history::read(&Assignment::new(servers.direct_nodes(), ttl, Work::Jobs)) {
            Ok(histories) => director.violate(history::differences(&story, &histories)),
            Err(error) => director.violate([format!("history: {error}")]),
        }
        let mut changes: BTreeMap<String, usize> = BTreeMap::new();
        story.changes.iter().for_each(|change| *changes.entry(change.kind.to_string()).or_default() += 1);
        let figures = json!({
            "seed": seed,
            "seconds": director.elapsed().as_secs_f64(),
            "changes": changes,
            "terms": account::terms(&story.lines).len(),
            "journal_lines": director.lines(),
            "jobs": verdict.jobs,
            "linearizability": histories::figures(&linear),
            "late_ms": verdict.late.json(),
            "longest_without_start_ms": verdict.longest_gap.as_millis(),
        });
        Report { figures, violations: director.into_violations() }
    }

    /// Returns whether every at-least-once tick up to `until` is done. (At-most-once ticks may be lost.)
    fn all_done(&self, until: u64) -> bool {
        let period = TICK_EVERY.as_micros() as usize;
        GUARANTEES.iter().filter(|kind| kind.delivery == Delivery::AtLeastOnce).all(|kind| {
            let job: Arc<str> = kind.name.into();
            let first = self.done.range((Arc::clone(&job), 0)..).next().filter(|(of, _)| *of == job);
            first.is_some_and(|(_, first)| {
                (*first..=until).step_by(period).all(|tick| self.done.contains(&(Arc::clone(&job), tick)))
            })
        })
    }
}

fn delivery(job: &str) -> Delivery {
    GUARANTEES.iter().find(|kind| kind.name == job).map_or(Delivery::AtMostOnce, |kind| kind.delivery)
}

/// Converts a time of the wall clock to the boot clock. The first argument is one moment, as read on both
/// clocks.
fn to_boot((wall, boot): (quorate::env::WallTime, BootTime), micros: u64) -> BootTime {
    let time = quorate::env::WallTime::from_micros(micros);
    if time < wall { boot - time.until(wall) } else { boot + wall.until(time) }
}
