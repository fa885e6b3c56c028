//! Starts everything, makes the faults, reads the journals and has them checked.

use super::{
    Args,
    arena::Arena,
    checks::{Check, Claims, Exclusion, Fencing, HORIZON, Liveness, StepDown, Ticks, leftover},
    faults::{Action, Deck, Episode, Fault, Kind},
    figures::Figures,
    journal::{Entry, Event},
    settings::{NODES, Post, TTL, WORKERS, is_durable, quorum},
    table::Summary,
    truth::Truth,
    worker,
};
use quorate::env::{BootTime, SystemWorld, World};
use quorate_testkit::proxy::Directions;
use quorate_tests::support::{Crew, PATIENCE, Told, Who, keys as keys_on};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::process::CommandExt,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Between two rounds of the director, when nobody says anything.
const STEP: Duration = Duration::from_millis(10);
/// Lines taken before the agenda is looked at again.
const LINES: usize = 500;
/// Between two judgements.
const SETTLE_EVERY: Duration = Duration::from_millis(500);
/// How long a worker may take to end: its grace, a completion that is retried for a TTL, and a busy machine.
const TO_END: Duration = Duration::from_secs(6);
/// How long everything may take to be done once all is well.
const TO_DRAIN: Duration = Duration::from_secs(45);
/// Between two words on how it goes.
const SAY_EVERY: Duration = Duration::from_secs(30);
/// Violations that are written out.
const WRITTEN: usize = 40;

/// The parent of it all.
#[derive(Debug)]
pub(crate) struct Director {
    // First, so that it goes first: workers outlive no server.
    crew: Crew,
    arena: Arena,
    seed: u64,
    verbose: bool,
    deck: Deck,
    agenda: BTreeMap<(BootTime, u64), (Option<Kind>, Action)>,
    planned: u64,
    /// What is done to the leader once it begins to run a job.
    ambush: Option<Action>,
    next_episode: BootTime,
    truth: Truth,
    figures: Figures,
    exclusion: Exclusion,
    fencing: Fencing,
    step_down: StepDown,
    ticks: Ticks,
    claims: Claims,
    liveness: Liveness,
    talking: BTreeSet<Who>,
    settle_at: BootTime,
    say_at: BootTime,
    began: BootTime,
    took: Duration,
    violations: usize,
}

impl Director {
    /// Starts servers and workers.
    pub(crate) fn start(args: &Args) -> Self {
        let seed = args.seed.unwrap_or_else(|| SystemWorld.random() % 1_000_000);
        let arena = Arena::start(is_durable(seed));
        let urls = arena.urls();
        admit(&urls, seed);
        let (wall, now) = (SystemWorld.wall(), SystemWorld.now());
        let program = std::env::current_exe().expect("our own path");
        let crew = Crew::new(WORKERS, move |Who { member, run }| {
            let post = Post { member, run, seed, epoch: now, urls: urls.clone() };
            let mut command = Command::new(&program);
            // A Ctrl-C is for us: we end them in our way.
            command.arg(worker::ARGUMENT).args(post.to_args()).process_group(0);
            command
        });
        let mut truth = Truth::default();
        truth.disturb(now);
        let mut director = Self {
            crew,
            arena,
            seed,
            verbose: args.verbose,
            deck: Deck::new(seed, WORKERS),
            agenda: BTreeMap::new(),
            planned: 0,
            ambush: None,
            next_episode: now + Duration::from_secs(3),
            truth,
            figures: Figures::default(),
            exclusion: Exclusion::default(),
            fencing: Fencing::default(),
            step_down: StepDown::default(),
            ticks: Ticks::new(wall, now),
            claims: Claims::new(now),
            liveness: Liveness::default(),
            talking: BTreeSet::new(),
            settle_at: now,
            say_at: now + SAY_EVERY,
            began: now,
            took: Duration::ZERO,
            violations: 0,
        };
        eprintln!("soak: seed {seed}, {WORKERS} workers, {NODES} servers");
        director.act(None, Action::StartWorkers);
        director
    }

    /// Makes faults for `time`, or until `stop`.
    pub(crate) fn run(&mut self, time: Duration, stop: &AtomicBool) {
        let until = SystemWorld.now() + time;
        while SystemWorld.now() < until && !stop.load(Ordering::Relaxed) {
            let now = SystemWorld.now();
            if self.agenda.is_empty() && now >= self.next_episode {
                self.plan(now);
            }
            while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= now) {
                let (kind, action) = entry.remove();
                self.act(kind, action);
            }
            self.step();
        }
        self.took = self.began.until(SystemWorld.now());
    }

    /// Heals everything, waits until all is done, ends the workers, and looks at what is left.
    pub(crate) fn finish(&mut self) {
        self.agenda.clear();
        self.ambush = None;
        self.arena.heal_all();
        self.act(None, Action::ResumeWorkers);
        self.act(None, Action::StartWorkers);
        self.truth.disturb(SystemWorld.now());
        let due = SystemWorld.now();
        // What is due now may start a little later, and a crashed holder's lease ends by itself.
        let (least, most) = (due + TTL * 2, due + TO_DRAIN);
        while SystemWorld.now() < least
            || (SystemWorld.now() < most && !(self.claims.all_done(due) && self.ticks.past(due)))
        {
            self.step();
        }
        for member in 0..WORKERS {
            if self.crew.is_going(member) {
                self.crew.tell_to_end(member);
            }
        }
        let give_up = SystemWorld.now() + TO_END * 2;
        while !(self.talking.is_empty() && self.crew.pids().is_empty()) && SystemWorld.now() < give_up {
            self.bury();
            self.listen();
        }
        let mut found = self.claims.finish(due);
        found.extend(self.ticks.finish(due, &self.truth));
        // Nothing can come any more: all that is open is ripe.
        let end = SystemWorld.now() + HORIZON * 2;
        found.extend(self.exclusion.settle(end, &self.truth));
        found.extend(self.step_down.settle(end, &self.truth));
        found.extend(self.crew.pids().into_iter().map(|pid| format!("leftovers: the process {pid}")));
        found.extend(self.talking.iter().map(|who| format!("leftovers: the journal of {who:?} is open")));
        found.extend(self.leftovers());
        self.tell(found);
    }

    /// What came of it all.
    pub(crate) fn summary(&self) -> Summary<'_> {
        Summary {
            seed: self.seed,
            time: self.took,
            figures: &self.figures,
            ticks: self.ticks.counts(),
            messages: (self.claims.done(), self.claims.again()),
            calms: self.liveness.calms(),
            violations: self.violations,
        }
    }

    /// The next episode goes on the agenda.
    fn plan(&mut self, now: BootTime) {
        // One that was slow to end when it was told to.
        self.act(None, Action::StartWorkers);
        let Episode { faults, calm } = self.deck.episode();
        let mut last = now;
        for Fault { kind, actions } in faults {
            let mut kind = Some(kind);
            for (after, action) in actions {
                self.planned += 1;
                // The first action of a fault is the one that counts it.
                self.agenda.insert((now + after, self.planned), (kind.take(), action));
                last = last.max(now + after);
            }
        }
        self.next_episode = last + calm;
    }

    /// Reads, counts, judges.
    fn step(&mut self) {
        self.bury();
        self.listen();
        let now = self.count();
        if now >= self.settle_at {
            self.settle_at = now + SETTLE_EVERY;
            self.settle(now);
        }
        if now >= self.say_at {
            self.say_at = now + SAY_EVERY;
            let (done, Figures { locks, terms, faults, .. }) = (self.claims.done(), &self.figures);
            eprintln!(
                "soak: {:.0?}: {locks} locks, {terms} terms, {done} messages, {} faults, {} violations",
                self.began.until(now),
                faults.values().sum::<usize>(),
                self.violations
            );
        }
    }

    /// Notes how many nodes can vote, and how many workers run.
    fn count(&mut self) -> BootTime {
        let now = SystemWorld.now();
        let going = (0..WORKERS).filter(|member| self.crew.is_going(*member)).count();
        self.truth.count(now, self.arena.usable(now), going);
        now
    }

    fn listen(&mut self) {
        let mut told = self.crew.next(STEP);
        for _ in 0..LINES {
            let Some(Told { who, line }) = told else { return };
            match line.map(|line| serde_json::from_str::<Entry>(&line)) {
                None => drop(self.talking.remove(&who)),
                Some(Ok(entry)) => self.take(who, &entry),
                Some(Err(error)) => self.tell(vec![format!("journal: {who:?}: {error}")]),
            }
            told = self.crew.next(Duration::ZERO);
        }
        if let Some(Told { who, line: Some(line) }) = told
            && let Ok(entry) = serde_json::from_str::<Entry>(&line)
        {
            self.take(who, &entry);
        }
    }

    fn take(&mut self, who: Who, entry: &Entry) {
        if let Event::Stalled { from } = entry.event {
            self.truth.stalled(who, BootTime::from_nanos(from), entry.at());
        }
        self.figures.take(who, entry, &self.truth);
        let truth = &self.truth;
        let checks: [&mut dyn Check; 6] = [
            &mut self.exclusion,
            &mut self.fencing,
            &mut self.step_down,
            &mut self.ticks,
            &mut self.claims,
            &mut self.liveness,
        ];
        let found = checks.into_iter().flat_map(|check| check.take(who, entry, truth)).collect();
        self.tell(found);
        if matches!(entry.event, Event::TickStart { .. }) && self.figures.leader() == Some(who) {
            self.spring(who);
        }
    }

    fn settle(&mut self, now: BootTime) {
        let truth = &self.truth;
        let checks: [&mut dyn Check; 6] = [
            &mut self.exclusion,
            &mut self.fencing,
            &mut self.step_down,
            &mut self.ticks,
            &mut self.claims,
            &mut self.liveness,
        ];
        let mut found = Vec::new();
        let mut watched = 0;
        for check in checks {
            found.extend(check.settle(now, truth));
            watched += check.watching();
        }
        self.figures.watched = self.figures.watched.max(watched);
        self.figures.prune(now);
        self.truth.prune(now);
        let memory = self.crew.pids().into_iter().filter_map(resident).max().unwrap_or_default();
        self.figures.memory = self.figures.memory.max(memory);
        self.tell(found);
    }

    /// Workers that have ended start again, if they were told to end; else that is a violation.
    fn bury(&mut self) {
        for (member, how) in self.crew.ended(TO_END) {
            let who = self.crew.who(member);
            self.truth.ended(who, SystemWorld.now());
            match how {
                Ok(took) => self.figures.to_end.add(took),
                Err(why) => self.tell(vec![format!("processes: {who:?} {why}")]),
            }
        }
    }

    fn tell(&mut self, found: Vec<String>) {
        for what in found {
            self.violations += 1;
            if self.violations <= WRITTEN {
                let after = self.began.until(SystemWorld.now());
                eprintln!("soak: VIOLATION after {after:.1?} (seed {}): {what}", self.seed);
            }
        }
    }

    fn act(&mut self, kind: Option<Kind>, action: Action) {
        let done = match action {
            Action::StartServer(node) => self.arena.bring_up(node),
            Action::KillServer(node) => self.arena.kill(node, &mut self.truth),
            Action::StopServer(node) => self.arena.stop(node),
            Action::ResumeServer(node) => self.arena.resume(node),
            Action::Flush(node) => self.arena.flush(node, &mut self.truth),
            Action::CutThere(node) => self.arena.cut(node, Directions::There),
            Action::CutBack(node) => self.arena.cut(node, Directions::Back),
            Action::CutBoth(node) => self.arena.cut(node, Directions::Both),
            Action::Slow(node, each_way, jitter) => self.arena.slow(node, each_way, jitter),
            Action::HealProxy(node) => self.arena.heal(node),
            Action::Sever(node) => self.arena.sever(node),
            Action::CutReply(node, bytes) => self.arena.cut_reply(node, bytes),
            Action::KillLeader => self.figures.leader().is_some_and(|who| self.kill(who.member)),
            Action::TellLeader => self.figures.leader().is_some_and(|who| self.tell_to_end(who.member)),
            Action::KillLeaderAtWork | Action::StopLeaderAtWork(_) => {
                self.ambush = Some(action);
                true
            }
            Action::KillWorker(member) => self.kill(member),
            Action::StopLeader => self.figures.leader().is_some_and(|who| self.stop(who.member)),
            Action::StopWorker(member) => self.stop(member),
            Action::TellWorker(member) => self.tell_to_end(member),
            Action::ResumeWorkers => (0..WORKERS).map(|member| self.resume(member)).fold(false, |a, b| a | b),
            Action::StartWorkers => {
                (0..WORKERS).map(|member| self.start_worker(member)).fold(false, |a, b| a | b)
            }
        };
        let now = self.count();
        if done {
            self.truth.disturb(now);
            if let Some(kind) = kind {
                *self.figures.faults.entry(kind).or_default() += 1;
            }
            if self.verbose {
                eprintln!("soak: {:.3?}: {action:?}", self.began.until(now));
            }
        }
    }

    /// Does to the leader, which has just begun to run a job, what was waiting for that.
    fn spring(&mut self, who: Who) {
        let (undo, after) = match self.ambush.take() {
            Some(Action::StopLeaderAtWork(time)) if self.stop(who.member) => (Action::ResumeWorkers, time),
            Some(Action::KillLeaderAtWork) if self.kill(who.member) => {
                (Action::StartWorkers, Duration::from_secs(1))
            }
            _ => return,
        };
        let now = self.count();
        self.truth.disturb(now);
        self.planned += 1;
        self.agenda.insert((now + after, self.planned), (None, undo));
    }

    fn kill(&mut self, member: usize) -> bool {
        if !self.crew.is_going(member) {
            return false;
        }
        let who = self.crew.who(member);
        let at = self.crew.kill(member);
        self.truth.ended(who, at);
        if self.figures.leader() == Some(who) {
            self.figures.leader_ends(at, true);
        }
        true
    }

    fn tell_to_end(&mut self, member: usize) -> bool {
        if !self.crew.is_going(member) {
            return false;
        }
        let at = self.crew.tell_to_end(member);
        if self.figures.leader() == Some(self.crew.who(member)) {
            self.figures.leader_ends(at, false);
        }
        true
    }

    fn stop(&mut self, member: usize) -> bool {
        if !self.crew.is_going(member) {
            return false;
        }
        let at = self.crew.stop(member);
        self.truth.stopped(self.crew.who(member), at);
        true
    }

    fn resume(&mut self, member: usize) -> bool {
        let who = self.crew.who(member);
        if !self.truth.is_stopped(who) {
            return false;
        }
        let at = self.crew.go_on(member);
        self.truth.went_on(who, at);
        true
    }

    fn start_worker(&mut self, member: usize) -> bool {
        if self.crew.pid(member).is_some() {
            return false;
        }
        let who = self.crew.start(member);
        self.talking.insert(who);
        true
    }

    /// Keys that nobody holds any more, once the last lease must have ended.
    fn leftovers(&self) -> Vec<String> {
        let give_up = SystemWorld.now() + TTL + Duration::from_secs(1);
        loop {
            let found: Vec<String> = self.arena.servers().flat_map(keys).collect();
            if found.is_empty() || SystemWorld.now() > give_up {
                return found;
            }
            std::thread::sleep(STEP);
        }
    }
}

/// What stands on a server that should not.
fn keys(server: &quorate_testkit::redis::RedisServer) -> Vec<String> {
    keys_on(server).iter().filter_map(|key| leftover(&key.name, key.left, key.claimed.is_some())).collect()
}

/// Lets new servers vote at once, which is sound while nobody has ever held anything there.
fn admit(urls: &[String], seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let quorum = quorum(urls, "admits", seed).expect("a sound setup");
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

/// A process's resident set, in KiB.
fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
