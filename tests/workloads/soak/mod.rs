//! A soak test of all features at the same time. Worker processes use locks, an election with two scheduled
//! jobs, and claims on a stream of messages. Five Redis servers run behind proxies. A seed determines the
//! random faults. Every invariant is checked during the run.
//!
//! # What is not guaranteed
//!
//! Each process reports every 50 ms, and around each action, whether its lease on a resource is valid. If two
//! processes hold one resource at the same time for less than 50 ms, the checks may miss it.

pub(crate) mod choice;
pub(crate) mod deck;
mod faults;
mod figures;

use crate::{
    checks::{AllDone, Check, FencedWrites, HORIZON, Liveness, StepDown, Ticks, leftover},
    harness::{
        Assignment, Director, Entry, Event, LeftOut, Machines, Network, Node, NodeFault, Options, Report,
        Servers, Set, Store, Truth, is_far, on_machine, resident_kib,
    },
    histories::{self, Leases, Messages, Runs},
    work::{Work, lead, locks::LOCKS, messages},
};
use choice::{Action, Target};
use deck::{Deck, Episode, Fault, Kinds};
pub(crate) use faults::SOAK;
use figures::Figures;
use quorate::env::{BootTime, SystemWorld, World};
use quorate_testkit::{history::Findings, machines::Machine};
use quorate_tests::support::{Who, keys};
use serde_json::json;
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const WORKERS: usize = 4;
/// The time without faults before a clock is stepped beyond the allowance. By then each worker has observed each server for
/// longer than the longest TTL, and therefore detects the step. Without this, a step is outside of the guarantee.
const OBSERVED: Duration = Duration::from_millis(4500);
/// The time between the ends of two workers that are started again with a new list of servers.
const ROLLING: Duration = Duration::from_secs(1);
/// The TTL of every lease, term and claim.
const TTL: Duration = Duration::from_secs(2);
/// The longest time that the director waits for an event in one round.
const STEP: Duration = Duration::from_millis(10);
/// The largest number of events that are read before the planned actions are checked again.
const EVENTS: usize = 500;
/// The time between two calls of `settle`, by which the checks judge the events that are old enough.
const SETTLE_EVERY: Duration = Duration::from_millis(500);
/// The time that a worker may take to end. It covers the grace period, a completion that is repeated for a TTL,
/// and a busy machine.
const TO_END: Duration = Duration::from_secs(6);
/// The time within which the workers must complete everything after all faults have ended.
const TO_DRAIN: Duration = Duration::from_secs(45);
/// The largest step of a server's clock. Keys that were stored before it was set back last longer by this.
pub(crate) const FARTHEST: Duration = Duration::from_secs(4);
/// The time between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Settings {
    /// Safety mechanism that the workers leave out: the checks must find that
    #[arg(long = "leave-out", value_enum)]
    pub(crate) left_out: Option<LeftOut>,
}

/// Causes faults until the given time is over or `stop` is set. Then ends all faults, and waits until all work
/// is done.
pub(crate) fn run(settings: &Settings, options: &Options, stop: &AtomicBool) -> Report {
    let (workers, left_out) = (options.workers.unwrap_or(WORKERS), settings.left_out);
    let (network, kinds) = (Network::Shared, SOAK);
    let setting = Setting { plan: "soak", workers, durable: None, network, kinds, left_out };
    run_in(&setting, options, stop)
}

/// The differences between the plans that have the work and the checks of this module.
pub(crate) struct Setting {
    pub(crate) plan: &'static str,
    pub(crate) workers: usize,
    /// True if the servers keep an append-only file, so that a restart loses no data. If `None`, that is so for an odd
    /// seed.
    pub(crate) durable: Option<bool>,
    pub(crate) network: Network,
    pub(crate) kinds: Kinds,
    /// The safety mechanism that the workers leave out, if any.
    pub(crate) left_out: Option<LeftOut>,
}

/// Runs a plan as [`run`] does, in this setting.
pub(crate) fn run_in(setting: &Setting, options: &Options, stop: &AtomicBool) -> Report {
    let mut soak = Soak::start(setting, options);
    let until = SystemWorld.now() + options.duration.unwrap_or(Duration::from_secs(20 * 60));
    while SystemWorld.now() < until && !stop.load(Ordering::Relaxed) {
        soak.make_due_faults();
        soak.step();
    }
    let took = soak.director.elapsed();
    soak.finish();
    soak.report(took)
}

struct Soak {
    // This field is declared first, so that the workers are dropped before their servers.
    director: Director,
    servers: Servers,
    plan: &'static str,
    seed: u64,
    verbose: bool,
    deck: Deck,
    /// The planned actions, in order. The first action of a fault has the fault's kind.
    agenda: BTreeMap<(BootTime, u64), (Option<&'static str>, Action)>,
    planned: u64,
    /// The planned action that is carried out when the leader begins to run a job.
    ambush: Option<Action>,
    next_episode: BootTime,
    /// The list of servers of each worker, for its next start.
    lists: Lists,
    /// The workers that were started with an old list of servers.
    outdated: Vec<Who>,
    figures: Figures,
    checks: Checks,
    settle_at: BootTime,
    progress_at: BootTime,
}

type Lists = Arc<Mutex<Vec<Vec<Node>>>>;

fn locked(lists: &Lists) -> MutexGuard<'_, Vec<Vec<Node>>> {
    lists.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The invariants that the soak test checks.
struct Checks {
    fenced_writes: FencedWrites,
    step_down: StepDown,
    ticks: Ticks,
    messages: AllDone,
    liveness: Liveness,
    histories: Histories,
}

/// The histories that a linearizability checker judges at the end. Unlike the checks, they keep every operation.
struct Histories {
    leases: Leases,
    runs: Runs,
    messages: Messages,
}

impl Default for Histories {
    fn default() -> Self {
        let (leases, runs) = (Leases::default(), Runs::new(lead::soak_delivery));
        Self { leases, runs, messages: Messages::retained_for(messages::RETENTION) }
    }
}

impl Histories {
    fn on_event(&mut self, who: Who, entry: &Entry, truth: &Truth) {
        self.leases.on_event(who, entry, truth);
        self.runs.on_event(who, entry);
        self.messages.on_event(who, entry, truth);
    }

    fn settle(&mut self, now: BootTime, truth: &Truth) {
        self.runs.settle(now, truth);
        self.messages.settle(now, truth);
    }

    fn finish(self, now: BootTime, truth: &Truth) -> Findings {
        let mut found = self.leases.finish(now, truth);
        found.merge(self.runs.finish(truth));
        found.merge(self.messages.finish(now, truth));
        found
    }
}

impl Checks {
    fn each(&mut self) -> [&mut dyn Check; 5] {
        let Self { fenced_writes, step_down, ticks, messages, liveness, .. } = self;
        [fenced_writes, step_down, ticks, messages, liveness]
    }
}

impl Soak {
    fn start(setting: &Setting, options: &Options) -> Self {
        let (seed, workers) = (options.seed(), setting.workers);
        let durable = setting.durable.unwrap_or(!seed.is_multiple_of(2));
        let servers = Servers::start(options.servers, durable, setting.network);
        let (wall, now) = (SystemWorld.wall(), SystemWorld.now());
        let address = servers.machines().map_or(Ipv4Addr::LOCALHOST, Machines::bridge);
        let store = |_| Store::serve(Set::new(true), address).expect("a port").address();
        let stores: Vec<SocketAddr> = LOCKS.iter().map(store).collect();
        let epoch = now.as_nanos();
        let assignment = Assignment {
            seed,
            durable,
            trust_new_nodes: false,
            max_ttl: crate::harness::MAX_TTL,
            left_out: setting.left_out,
            ..Assignment::new(servers.direct_nodes(), TTL, Work::Soak { epoch, stores: stores.clone() })
        };
        let lists: Lists = Arc::default();
        *locked(&lists) = (0..workers).map(|member| servers.nodes(member)).collect();
        // In a plan with shared proxies, the workers name the servers by the proxies.
        let trusted = if servers.machines().is_some() { servers.direct_nodes() } else { servers.nodes(0) };
        Servers::trust_all(&Assignment { nodes: trusted, ..assignment.clone() });
        eprintln!("workload: {}: seed {seed}", setting.plan);
        let machines: Vec<_> =
            servers.machines().map(|machines| machines.workers().to_vec()).unwrap_or_default();
        let clocks: Vec<Duration> = (0..workers)
            .map(|member| machines.get(member).map_or(Duration::ZERO, Machine::boot_offset))
            .collect();
        let (ahead, next) = (clocks.clone(), Arc::clone(&lists));
        let mut director = Director::start_by(options, crate::work::TERM, clocks, move |who| {
            let Who { member, run } = who;
            let nodes = locked(&next)[member].clone();
            let epoch = (now + ahead[member]).as_nanos();
            let work = Work::Soak { epoch, stores: stores.clone() };
            let command = Assignment { member, run, nodes, work, ..assignment.clone() }.command();
            match machines.get(member) {
                Some(machine) => on_machine(machine, &command),
                None => command,
            }
        });
        director.truth_mut().disturb(SystemWorld.now());
        Self {
            director,
            servers,
            plan: setting.plan,
            seed,
            verbose: options.verbose,
            deck: Deck::new(setting.kinds, seed, workers, options.servers),
            lists,
            outdated: Vec::new(),
            agenda: BTreeMap::new(),
            planned: 0,
            ambush: None,
            next_episode: now + Duration::from_secs(3),
            figures: Figures::default(),
            checks: Checks {
                fenced_writes: FencedWrites::default(),
                step_down: StepDown::default(),
                ticks: Ticks::new(wall, now),
                messages: AllDone::new(now),
                liveness: Liveness::default(),
                histories: Histories::default(),
            },
            settle_at: now,
            progress_at: now + PROGRESS_EVERY,
        }
    }

    fn make_due_faults(&mut self) {
        let now = SystemWorld.now();
        if self.servers.replaced(self.director.truth_mut()) {
            self.roll_out(now);
        }
        if self.agenda.is_empty() && now >= self.next_episode && !self.servers.is_replacing() {
            self.plan_episode(now);
        }
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= now) {
            let (kind, action) = entry.remove();
            self.act(kind, action);
        }
    }

    fn plan_episode(&mut self, now: BootTime) {
        // A worker may have ended late, in the previous episode. So it is started again here.
        self.act(None, Action::StartWorkers);
        self.director.let_fail(false);
        let Episode { faults, calm } = self.deck.episode();
        let mut last = now;
        for Fault { kind, actions } in faults {
            let mut kind = Some(kind);
            for (after, action) in actions {
                // Each fault is counted once, with its first action.
                self.plan(now + after, kind.take(), action);
                last = last.max(now + after);
            }
        }
        self.next_episode = last + calm;
    }

    /// Begins to start all workers again with the new list of servers, one after the other.
    fn roll_out(&mut self, now: BootTime) {
        let workers = self.director.workers();
        *locked(&self.lists) = (0..workers).map(|member| self.servers.nodes(member)).collect();
        self.outdated = (0..workers).map(|member| self.director.who(member)).collect();
        self.plan(now, None, Action::Update);
        self.director.truth_mut().disturb(now);
    }

    /// Ends the next worker that has an old list of servers, or starts it again. Plans the same for later until there are no
    /// such workers.
    fn update(&mut self) -> bool {
        let started = self.director.start_all();
        let Some(who) = self.outdated.last().copied() else { return started };
        let ended = if self.director.who(who.member) == who {
            // A worker that is stopped is ended once it continues.
            self.end_worker(who.member, false)
        } else {
            self.outdated.pop();
            false
        };
        self.plan(SystemWorld.now() + ROLLING, None, Action::Update);
        started || ended
    }

    fn plan(&mut self, at: BootTime, kind: Option<&'static str>, action: Action) {
        self.planned += 1;
        self.agenda.insert((at, self.planned), (kind, action));
    }

    /// Ends all faults, waits until all work is done, ends the workers, and checks what is left.
    fn finish(&mut self) {
        self.ambush = None;
        if self.servers.is_replacing() || !self.outdated.is_empty() {
            // The replacement must succeed, and then the workers must get the new list.
            self.agenda.retain(|_, (_, action)| !action.begins_fault());
            while self.servers.is_replacing() || !self.outdated.is_empty() {
                self.make_due_faults();
                self.step();
            }
        }
        self.agenda.clear();
        self.director.let_fail(false);
        self.servers.heal_all(self.director.truth_mut());
        self.act(None, Action::ResumeWorkers);
        self.act(None, Action::StartWorkers);
        self.director.truth_mut().disturb(SystemWorld.now());
        let due = SystemWorld.now();
        // The ticks that are due now may still start a little later, and the lease of a crashed holder must
        // still end.
        let (least, most) = (due + TTL * 2, due + TO_DRAIN);
        let done = |checks: &mut Checks| checks.messages.are_done(due) && checks.ticks.decided(due);
        while SystemWorld.now() < least || (SystemWorld.now() < most && !done(&mut self.checks)) {
            self.step();
        }
        let Self { director, plan, figures, checks, .. } = self;
        director.end(TO_END, |director, who, entry| take(director, figures, checks, who, entry));
        let mut found = checks.messages.finish(due);
        found.extend(checks.ticks.finish(due, director.truth()));
        let linear = std::mem::take(&mut checks.histories).finish(SystemWorld.now(), director.truth());
        found.extend(histories::violations(plan, &linear));
        figures.linearizability = histories::figures(&linear);
        // No more events can arrive. At a time as late as `end`, the checks judge all events.
        let end = SystemWorld.now() + HORIZON * 2;
        found.extend(checks.step_down.settle(end, director.truth()));
        found.extend(checks.fenced_writes.settle(end, director.truth()));
        found.extend(self.leftovers());
        self.director.violate(found);
    }

    fn report(self, took: Duration) -> Report {
        let (mut figures, checks) = (self.figures.json(), &self.checks);
        figures["seed"] = json!(self.seed);
        figures["seconds"] = json!(took.as_secs_f64());
        figures["ticks"] = json!(checks.ticks.counts());
        figures["messages_done"] = json!(checks.messages.done());
        figures["messages_done_again"] = json!(checks.messages.again());
        let (accepted, refused) = checks.fenced_writes.counts();
        figures["fenced_writes"] = json!({ "accepted": accepted, "refused": refused });
        figures["workers_with_an_old_list_ended"] = json!(self.director.failed());
        figures["fault_free_phases_judged"] = json!(checks.liveness.phases());
        figures["journal_lines"] = json!(self.director.lines());
        figures["violation_count"] = json!(self.director.violation_count());
        Report { figures, violations: self.director.into_violations() }
    }

    /// Reads and handles events for one round. Calls `settle` of the checks at regular intervals.
    fn step(&mut self) {
        for (_, took) in self.director.ended(TO_END) {
            self.figures.to_end.add(took);
        }
        let mut wait = STEP;
        for _ in 0..EVENTS {
            let Some((who, entry)) = self.director.next(wait) else { break };
            wait = Duration::ZERO;
            take(&mut self.director, &mut self.figures, &mut self.checks, who, &entry);
            let leads = self.director.leader().is_some_and(|(leader, _)| leader == who);
            if leads && matches!(entry.event, Event::RunStarted { .. }) {
                self.spring_ambush(who);
            }
        }
        let now = self.observe();
        if now >= self.settle_at {
            self.settle_at = now + SETTLE_EVERY;
            self.settle(now);
        }
        if now >= self.progress_at {
            self.progress_at = now + PROGRESS_EVERY;
            let (elapsed, done) = (self.director.elapsed(), self.checks.messages.done());
            let (Figures { locks, terms, .. }, violations) = (&self.figures, self.director.violation_count());
            eprintln!(
                "workload: {elapsed:.0?}: {locks} locks, {terms} terms, {done} messages, {violations} violations"
            );
        }
    }

    /// Notes which nodes can vote, and how many workers run.
    fn observe(&mut self) -> BootTime {
        let now = SystemWorld.now();
        let active: Vec<bool> =
            (0..self.director.workers()).map(|member| self.director.is_active(member)).collect();
        let (voting, active) = self.servers.voting(now, &active);
        self.director.truth_mut().observe(now, &voting, active);
        now
    }

    fn settle(&mut self, now: BootTime) {
        let (mut found, mut held) = (Vec::new(), 0);
        for check in self.checks.each() {
            found.extend(check.settle(now, self.director.truth()));
            held += check.held();
        }
        self.checks.histories.settle(now, self.director.truth());
        self.figures.held = self.figures.held.max(held);
        self.figures.prune(now);
        self.director.truth_mut().prune(now);
        let memory = self.director.pids().into_iter().filter_map(resident_kib).max().unwrap_or_default();
        self.figures.memory = self.figures.memory.max(memory);
        self.director.violate(found);
    }

    fn act(&mut self, kind: Option<&'static str>, action: Action) {
        let done = match action {
            Action::Node(_, NodeFault::SetClock(ms)) if is_far(ms) && !self.all_observe() => false,
            Action::Node(node, fault) => self.servers.make(node, fault, self.director.truth_mut()),
            Action::KillLeaderInRun | Action::StopLeaderInRun(_) => {
                self.ambush = Some(action);
                true
            }
            Action::Kill(target) => self.member(target).is_some_and(|member| self.end_worker(member, true)),
            Action::Terminate(target) => {
                self.member(target).is_some_and(|member| self.end_worker(member, false))
            }
            Action::Stop(target) => {
                self.member(target).is_some_and(|member| self.director.stop(member).is_some())
            }
            Action::ResumeWorkers => self.director.resume_all(),
            Action::StartWorkers => self.director.start_all(),
            Action::Split(split) => {
                self.servers.split(split);
                true
            }
            Action::Join(split) => self.servers.join(split),
            Action::Update => self.update(),
            Action::Replace(node) => {
                let begun = self.servers.replace(node, self.seed ^ self.planned, self.director.truth_mut());
                if begun {
                    self.director.let_fail(true);
                }
                begun
            }
        };
        let now = self.observe();
        if done {
            self.director.truth_mut().disturb(now);
            if let Some(kind) = kind {
                *self.figures.faults.entry(kind).or_default() += 1;
            }
            if self.verbose {
                eprintln!("workload: {:.3?}: {action:?}", self.director.elapsed());
            }
        }
    }

    /// Returns whether every worker has observed every server for long enough to detect a step of its clock.
    fn all_observe(&self) -> bool {
        let now = SystemWorld.now();
        let calm = self.director.truth().calm_since().is_some_and(|since| since.until(now) >= OBSERVED);
        let workers = self.director.workers();
        let (voting, able) = self.servers.voting(now, &vec![true; workers]);
        calm && voting.iter().all(|votes| *votes) && able == workers && self.director.active() == workers
    }

    fn member(&self, target: Target) -> Option<usize> {
        match target {
            Target::Leader => self.director.leader().map(|(who, _)| who.member),
            Target::Member(member) => Some(member),
        }
    }

    /// Kills a worker, or sends it SIGTERM.
    fn end_worker(&mut self, member: usize, kill: bool) -> bool {
        let who = self.director.who(member);
        let at = if kill { self.director.kill(member) } else { self.director.terminate(member) };
        if let Some(at) = at
            && self.director.leader().is_some_and(|(leader, _)| leader == who)
        {
            self.figures.leader_ends(at, kill);
        }
        at.is_some()
    }

    /// Carries out the planned action on the leader, if there is one. The leader has just begun to run a job.
    fn spring_ambush(&mut self, who: Who) {
        let (end, after) = match self.ambush.take() {
            Some(Action::StopLeaderInRun(time)) if self.director.stop(who.member).is_some() => {
                (Action::ResumeWorkers, time)
            }
            Some(Action::KillLeaderInRun) if self.end_worker(who.member, true) => {
                (Action::StartWorkers, Duration::from_secs(1))
            }
            _ => return,
        };
        let now = self.observe();
        self.director.truth_mut().disturb(now);
        self.plan(now + after, None, end);
    }

    /// Waits until the last lease must have ended. Then returns a violation for each key that must not be
    /// left.
    fn leftovers(&self) -> Vec<String> {
        let give_up = SystemWorld.now() + TTL + Duration::from_secs(1) + FARTHEST;
        loop {
            let keys = self.servers.processes().flat_map(keys);
            let found: Vec<String> =
                keys.filter_map(|key| leftover(&key.name, key.left, key.claimed.is_some())).collect();
            if found.is_empty() || SystemWorld.now() > give_up {
                return found;
            }
            std::thread::sleep(STEP);
        }
    }
}

/// Gives an event to the counters and to all checks.
fn take(director: &mut Director, figures: &mut Figures, checks: &mut Checks, who: Who, entry: &Entry) {
    let truth = director.truth();
    figures.on_event(entry, truth);
    checks.histories.on_event(who, entry, truth);
    let found: Vec<String> =
        checks.each().into_iter().flat_map(|check| check.on_event(who, entry, truth)).collect();
    director.violate(found);
}
