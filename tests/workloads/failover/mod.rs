//! A plan that measures how long a group has no leader after a fault of its leader, for several TTLs and numbers of
//! nodes. Many groups of two candidates each run beside each other. In each trial the leader of a group is killed,
//! terminated, stopped or cut off, and the time until the other candidate leads is taken.

pub(crate) mod candidate;
mod kind;
mod picture;
mod trials;

use crate::{
    harness::{Assignment, Director, Durations, Entry, Event, Network, Options, Report, Servers},
    histories::{self, Leases},
    work::Work,
};
use candidate::Task;
use kind::Kind;
use quorate::env::{BootTime, SystemWorld, World};
use quorate_testkit::sim::SeedRng;
use quorate_tests::support::{PATIENCE, Who};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use trials::{Step, Trials};

/// The number of candidates of a group.
const CANDIDATES: usize = 2;
/// The longest time that the director waits for an event in one round.
const STEP: Duration = Duration::from_millis(5);

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Settings {
    /// TTLs of the leaders' leases, one after the other
    #[arg(long, value_delimiter = ',', default_value = "2s,5s,10s,30s", value_parser = humantime::parse_duration)]
    ttl: Vec<Duration>,
    /// Numbers of nodes, beside each other
    #[arg(long, value_delimiter = ',', default_value = "3,5")]
    nodes: Vec<usize>,
    /// Number of trials of each kind of fault, for each TTL and number of nodes
    #[arg(long, default_value_t = 200)]
    trials: usize,
    /// Number of groups that run beside each other, for each number of nodes
    #[arg(long, default_value_t = 20)]
    groups: usize,
    /// Draws the distributions into this SVG file
    #[arg(long)]
    picture: Option<PathBuf>,
}

/// The durations of the trials, by TTL, number of nodes and kind of fault.
type Figures = BTreeMap<(Duration, usize, Kind), Durations>;

/// Makes all trials, unless `stop` is set before.
pub(crate) fn run(settings: &Settings, options: &Options, stop: &AtomicBool) -> Report {
    let seed = options.seed();
    eprintln!("workload: failover: seed {seed}, {} trials of each kind", settings.trials);
    let (mut figures, mut violations, began) = (Figures::new(), Vec::new(), SystemWorld.now());
    for (index, ttl) in settings.ttl.iter().enumerate() {
        let rng = SeedRng::new(seed, &format!("failover {index}"));
        let found = Failover::start(settings, options, *ttl, rng).run(*ttl, stop, &mut figures);
        violations.extend(found);
        eprintln!("workload: TTL {ttl:?} after {:.0?}", began.until(SystemWorld.now()));
    }
    if let Some(path) = &settings.picture
        && let Err(error) = picture::draw(&figures, path)
    {
        violations.push(format!("--picture {}: {error}", path.display()));
    }
    let seconds = began.until(SystemWorld.now()).as_secs_f64();
    Report {
        figures: json!({ "seed": seed, "seconds": seconds, "without_leader_ms": rows(&figures) }),
        violations,
    }
}

fn rows(figures: &Figures) -> Vec<Value> {
    let row = |((ttl, nodes, kind), durations): (&(Duration, usize, Kind), &Durations)| {
        let mut row = durations.json();
        row["ttl_s"] = json!(ttl.as_secs_f64());
        row["nodes"] = json!(nodes);
        row["fault"] = json!(kind.to_string());
        row
    };
    figures.iter().map(row).collect()
}

/// The trials of one TTL.
struct Failover {
    // This field is declared first, so that the workers are dropped before their servers.
    director: Director,
    /// The servers of each number of nodes, with that number.
    deployments: Vec<(usize, Servers)>,
    /// The groups, those of one deployment after those of the other. Each has `CANDIDATES` members.
    groups: Vec<Trials>,
    /// The members that have ended after SIGTERM and are started again when their group has a leader.
    ended: BTreeSet<usize>,
    terms: Leases,
}

impl Failover {
    fn start(settings: &Settings, options: &Options, ttl: Duration, mut rng: SeedRng) -> Self {
        let members = settings.groups * CANDIDATES;
        let servers = |count: &usize| (*count, Servers::start(*count, false, Network::PerWorker(members)));
        let deployments: Vec<_> = settings.nodes.iter().map(servers).collect();
        let nodes: Vec<_> = deployments
            .iter()
            .flat_map(|(_, servers)| (0..members).map(|member| servers.nodes(member)))
            .collect();
        let each = settings.trials.div_ceil(settings.groups.max(1));
        let groups: Vec<_> =
            (0..settings.groups * deployments.len()).map(|_| Trials::new(ttl, each, rng.split())).collect();
        let assign = move |member: usize| {
            let task = Task { group: group_name(member / CANDIDATES) };
            Assignment::new(nodes[member].clone(), ttl, Work::Failover(task))
        };
        Self {
            director: Director::start(options, groups.len() * CANDIDATES, "", assign),
            deployments,
            groups,
            ended: BTreeSet::new(),
            terms: Leases::default(),
        }
    }

    /// Makes the trials, adds their durations to `figures`, and returns the violations.
    fn run(mut self, ttl: Duration, stop: &AtomicBool, figures: &mut Figures) -> Vec<String> {
        while !stop.load(Ordering::Relaxed) && self.groups.iter().any(|group| !group.is_done()) {
            if let Some((who, entry)) = self.director.next(STEP) {
                self.on_event(who, &entry);
            }
            self.next_steps();
            for (member, _) in self.director.ended(PATIENCE) {
                self.ended.insert(member);
            }
            self.restart_ended();
        }
        self.finish(ttl, figures)
    }

    fn on_event(&mut self, who: Who, entry: &Entry) {
        self.terms.on_event(who, entry, self.director.truth());
        let group = &mut self.groups[who.member / CANDIDATES];
        let candidate = who.member % CANDIDATES;
        match &entry.event {
            Event::Ready => group.on_ready(candidate, entry.at()),
            Event::Acquired { token, .. } => group.on_leader(candidate, *token, entry.at()),
            _ => {}
        }
    }

    /// Causes the faults that are due, and ends those whose trial is over.
    fn next_steps(&mut self) {
        for index in 0..self.groups.len() {
            let now = SystemWorld.now();
            match self.groups[index].step(now) {
                None => {}
                Some(Step::Fault(kind, candidate)) => {
                    let member = index * CANDIDATES + candidate;
                    let at =
                        self.fail(kind, member).unwrap_or_else(|| panic!("member {member} does not run"));
                    self.groups[index].on_fault(at);
                }
                Some(Step::Heal(kind, candidate)) => self.heal(kind, index * CANDIDATES + candidate),
                Some(Step::GiveUp(why)) => self.director.violate([format!("{}: {why}", group_name(index))]),
            }
        }
    }

    /// Causes a fault of a member that runs. Returns the time of the fault.
    fn fail(&mut self, kind: Kind, member: usize) -> Option<BootTime> {
        match kind {
            Kind::Killed => self.director.kill(member),
            Kind::Terminated => self.director.terminate(member),
            Kind::Stopped => self.director.stop(member),
            Kind::CutOff => {
                let (servers, member) = self.route(member);
                let at = SystemWorld.now();
                servers.cut_off(member);
                Some(at)
            }
        }
    }

    /// Ends the fault of a member, so that it is a candidate again.
    fn heal(&mut self, kind: Kind, member: usize) {
        match kind {
            Kind::Killed => drop(self.director.start_worker(member)),
            // It starts again once it has ended.
            Kind::Terminated => {}
            Kind::Stopped => drop(self.director.resume(member)),
            Kind::CutOff => {
                let (servers, member) = self.route(member);
                servers.reconnect(member);
            }
        }
    }

    fn restart_ended(&mut self) {
        let groups = &self.groups;
        let free: Vec<usize> =
            self.ended.iter().copied().filter(|member| !groups[member / CANDIDATES].is_in_trial()).collect();
        for member in free {
            self.ended.remove(&member);
            self.director.start_worker(member);
        }
    }

    /// Returns the servers of a member, and the member's number among the members that use them.
    fn route(&self, member: usize) -> (&Servers, usize) {
        let members = self.groups.len() / self.deployments.len() * CANDIDATES;
        (&self.deployments[member / members].1, member % members)
    }

    /// Ends the workers, and adds the durations of the trials.
    fn finish(self, ttl: Duration, figures: &mut Figures) -> Vec<String> {
        let each = self.groups.len() / self.deployments.len();
        for (index, group) in self.groups.iter().enumerate() {
            let nodes = self.deployments[index / each].0;
            for (kind, duration) in group.durations() {
                figures.entry((ttl, nodes, *kind)).or_default().add(*duration);
            }
        }
        for (_, servers) in &self.deployments {
            (0..each * CANDIDATES).for_each(|member| servers.reconnect(member));
        }
        let Self { mut director, mut terms, deployments, .. } = self;
        director.end(PATIENCE, |director, who, entry| terms.on_event(who, entry, director.truth()));
        let found = terms.finish(SystemWorld.now(), director.truth());
        director.violate(histories::violations("terms", &found));
        drop(deployments);
        director.into_violations()
    }
}

fn group_name(index: usize) -> String {
    format!("failover-{index}")
}
