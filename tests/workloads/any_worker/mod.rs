//! A plan with jobs that are placed on any worker. The plan kills one worker after the other, judges every
//! tick, and checks that the live workers share the runs.

mod account;
mod worker;

pub(crate) use worker::work;

use crate::{
    harness::{Assignment, Director, Event, Network, Options, Report, Servers, block_on},
    histories::{self, Runs},
    work::{Work, lead::GROUP},
};
use account::{Kill, Story};
use quorate::{
    env::{SystemWorld, WallTime, World},
    scheduler::{HistoryEntry, Jobs},
};
use quorate_tests::support::PATIENCE;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    collections::BTreeMap,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const WORKERS: usize = 3;
/// The longest time that the plan waits for one event.
const STEP: Duration = Duration::from_millis(20);
/// The longest time that the catch-up runs and the history entries may take after the last kill.
const TO_DRAIN: Duration = Duration::from_secs(60);
/// The number of kills after which the test reports its progress.
const PROGRESS_EVERY: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub(crate) struct Settings {
    /// Number of ticks of all jobs
    #[arg(long, default_value_t = 10_000)]
    ticks: u32,
    /// Number of jobs, each due once a second, by turns at most once and at least once
    #[arg(long, default_value_t = 40)]
    jobs: u32,
    /// Time between two kills; each worker is killed in turn, and started again at once
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    kill_every: Duration,
    /// TTL of the leader's lease and of the slots
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    ttl: Duration,
}

impl Settings {
    fn jobs(&self) -> impl Iterator<Item = Arc<str>> {
        (0..self.jobs).map(|number| format!("{}-{number:03}", account::rule(number)).into())
    }

    /// Returns the number of ticks of each job.
    fn of_each(&self) -> usize {
        self.ticks.div_ceil(self.jobs) as usize
    }
}

/// Kills workers until enough ticks were due, or until `stop` is set. Then judges all journals and histories.
pub(crate) fn run(settings: &Settings, options: &Options, stop: &AtomicBool) -> Report {
    let workers = options.workers.unwrap_or(WORKERS);
    let servers = Servers::start(options.servers, false, Network::Direct);
    let assignment = Assignment::new(servers.nodes(0), settings.ttl, Work::AnyWorker(settings.clone()));
    let reader = assignment.clone();
    let director = Director::start(options, workers, "", move |_| assignment.clone());
    let runs = Runs::new(account::delivery_of);
    let mut plan = Plan { director, _servers: servers, story: Story::new(settings), runs };
    plan.kill_workers(settings, stop);
    let histories = plan.drain(settings, &reader);
    plan.judge(histories)
}

struct Plan {
    // This field is declared first, so that the workers are dropped before their servers.
    director: Director,
    _servers: Servers,
    story: Story,
    runs: Runs,
}

impl Plan {
    fn kill_workers(&mut self, settings: &Settings, stop: &AtomicBool) {
        let length = Duration::from_secs(settings.of_each() as u64);
        let give_up = SystemWorld.now() + PATIENCE;
        while !self.story.has_begun() {
            assert!(SystemWorld.now() < give_up, "no run has started");
            self.listen();
        }
        let end = SystemWorld.now() + length;
        for number in 0.. {
            let kill_at = SystemWorld.now() + settings.kill_every;
            while SystemWorld.now() < kill_at.min(end) && !stop.load(Ordering::Relaxed) {
                self.listen();
            }
            if SystemWorld.now() >= end || stop.load(Ordering::Relaxed) {
                return;
            }
            let member = number % self.director.workers();
            let who = self.director.who(member);
            let at = self.director.kill(member).expect("every worker runs");
            self.story.killed(Kill { who, at });
            self.director.start_worker(member);
            if (number + 1) % PROGRESS_EVERY == 0 {
                eprintln!("workload: any-worker: {} kills, {} lines", number + 1, self.director.lines());
            }
        }
    }

    /// Reads events until the histories have an entry for each tick so far, or until [`TO_DRAIN`] has passed.
    fn drain(&mut self, settings: &Settings, reader: &Assignment) -> BTreeMap<Arc<str>, Vec<HistoryEntry>> {
        self.story.until = SystemWorld.wall();
        let give_up = SystemWorld.now() + TO_DRAIN;
        loop {
            let next = SystemWorld.now() + Duration::from_secs(1);
            while SystemWorld.now() < next {
                self.listen();
            }
            match read(reader, settings) {
                Ok(histories) if self.story.is_entered(&histories) || SystemWorld.now() >= give_up => {
                    return histories;
                }
                Ok(_) => {}
                Err(error) if SystemWorld.now() >= give_up => {
                    self.director.violate([format!("history: {error}")]);
                    return BTreeMap::new();
                }
                Err(_) => {}
            }
        }
    }

    fn judge(self, histories: BTreeMap<Arc<str>, Vec<HistoryEntry>>) -> Report {
        let Self { mut director, _servers, mut story, mut runs } = self;
        director.end(PATIENCE, |_, who, entry| {
            runs.on_event(who, entry);
            story.add(who, entry);
        });
        let linear = runs.finish(director.truth());
        director.violate(histories::violations("runs", &linear));
        let mut verdict = story.judge(&histories);
        director.violate(std::mem::take(&mut verdict.violations));
        let figures = json!({
            "seconds": director.elapsed().as_secs_f64(),
            "kills": story.kills(),
            "ticks": verdict.ticks,
            "done": verdict.done,
            "started_again": verdict.again,
            "lost": verdict.lost,
            "shares": verdict.shares,
            "linearizability": histories::figures(&linear),
            "late_ms": verdict.late.json(),
        });
        Report { figures, violations: director.into_violations() }
    }

    fn listen(&mut self) {
        if let Some((who, entry)) = self.director.next(STEP) {
            if let Event::Ready = entry.event {
                self.story.ready(who, entry.at());
            }
            self.runs.on_event(who, &entry);
            self.runs.settle(entry.at(), self.director.truth());
            self.story.add(who, &entry);
        }
        let ended = self.director.ended(PATIENCE);
        assert!(ended.is_empty(), "no worker was asked to end: {ended:?}");
    }
}

/// Reads the histories of all jobs.
fn read(
    reader: &Assignment,
    settings: &Settings,
) -> Result<BTreeMap<Arc<str>, Vec<HistoryEntry>>, Box<dyn Error>> {
    block_on(async {
        let quorum = reader.quorum()?;
        quorum.met(PATIENCE).await;
        let jobs = Jobs::new(&quorum, GROUP)?;
        let mut histories = BTreeMap::new();
        for name in settings.jobs() {
            let entries = jobs.history(&name, kept(settings)).await?;
            histories.insert(name, entries);
        }
        quorum.close().await;
        Ok(histories)
    })
}

/// Returns the number of entries that a history keeps. It must be larger than the number of judged ticks,
/// because ticks continue until the workers end.
fn kept(settings: &Settings) -> usize {
    settings.of_each() * 2 + 200
}

/// Returns the time of a tick, given in microseconds as in a journal.
fn wall(micros: u64) -> WallTime {
    WallTime::from_micros(micros)
}
