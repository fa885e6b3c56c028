//! Starts everything, brings one leader down after the other, and gathers what all wrote down.

use super::{
    account::{Change, Kind, Story},
    arena::Arena,
    journal::{Entry, Event},
    settings::{JOBS, Post, TICK_EVERY, WORKERS},
    worker,
};
use quorate::{
    env::{BootTime, SystemWorld, World},
    schedule::Delivery,
};
use quorate_testkit::sim::SeedRng;
use quorate_tests::support::{Crew, PATIENCE, Told, Who};
use std::{
    collections::BTreeSet,
    os::unix::process::CommandExt,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Between two looks, when nobody says anything.
const STEP: Duration = Duration::from_millis(5);
/// How long a leader leads before it is hit, in milliseconds.
const LEADS_MS: (u64, u64) = (100, 1900);
/// How long a stopped or cut-off leader stays so after another leads, in milliseconds.
const LATE_MS: u64 = 600;
/// How long anybody may take to lead.
const TO_LEAD: Duration = Duration::from_secs(30);
/// How long made-up ticks may take once all is well.
const TO_DRAIN: Duration = Duration::from_secs(30);
/// Changes between two words on how it goes.
const SAY_EVERY: usize = 20;

/// The parent of it all.
#[derive(Debug)]
pub(crate) struct Director {
    // First, so that it goes first: workers outlive no server.
    crew: Crew,
    arena: Arena,
    rng: SeedRng,
    story: Story,
    leader: Option<(Who, u64)>,
    /// Everybody has been told to end.
    ending: bool,
    /// Ticks that came to their end.
    done: BTreeSet<(Arc<str>, u64)>,
}

impl Director {
    /// Starts servers and workers.
    pub(crate) fn start(seed: u64, ttl: Duration) -> Self {
        let arena = Arena::start();
        let program = std::env::current_exe().expect("our own path");
        let roads: Vec<_> = (0..WORKERS).map(|member| arena.roads(member)).collect();
        let crew = Crew::new(WORKERS, move |Who { member, run }| {
            let post = Post { name: format!("worker-{member}.{run}"), ttl, roads: roads[member].clone() };
            let mut command = Command::new(&program);
            // A Ctrl-C is for us: we end them in our way.
            command.arg(worker::ARGUMENT).args(post.to_args()).process_group(0);
            command
        });
        let story = Story { clocks: (SystemWorld.wall(), SystemWorld.now()), ..Story::default() };
        let rng = SeedRng::new(seed, "promises");
        let mut director =
            Self { crew, arena, rng, story, leader: None, ending: false, done: BTreeSet::new() };
        for member in 0..WORKERS {
            director.crew.start(member);
        }
        director
    }

    /// Where the servers are.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.arena.urls()
    }

    /// Brings leaders down until there were so many changes, or `stop`.
    pub(crate) fn run(&mut self, changes: usize, stop: &AtomicBool) {
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
            if number % SAY_EVERY == 0 {
                eprintln!("promises: {number} changes, {} lines", self.story.lines.len());
            }
        }
    }

    /// Lets everything come to its end, and tells the story.
    pub(crate) fn finish(mut self) -> (Story, Arena) {
        let until = SystemWorld.wall() + TICK_EVERY * 2;
        // The last tick that is judged, and those that are made up before it, are to be over.
        let give_up = SystemWorld.now() + TO_DRAIN;
        while !(SystemWorld.wall() > until + TICK_EVERY && self.all_done(until.as_micros()))
            && SystemWorld.now() < give_up
        {
            self.listen(STEP);
        }
        // From here on nobody falls by itself.
        self.ending = true;
        for member in 0..WORKERS {
            self.crew.tell_to_end(member);
        }
        let give_up = SystemWorld.now() + PATIENCE;
        while !self.crew.pids().is_empty() && SystemWorld.now() < give_up {
            self.crew.ended(PATIENCE).into_iter().for_each(|(member, how)| {
                if let Err(why) = how {
                    eprintln!("promises: worker {member} {why}");
                }
            });
            self.listen(STEP);
        }
        while self.listen(STEP * 10) {}
        self.story.until = until;
        (self.story, self.arena)
    }

    /// One leader goes, another comes.
    fn change(&mut self, kind: Kind) {
        let (who, term) = self.await_leader(0);
        let leads = self.rng.millis(LEADS_MS.0..=LEADS_MS.1);
        let hit_at = SystemWorld.now() + leads;
        while SystemWorld.now() < hit_at {
            self.listen(STEP);
            if self.leader != Some((who, term)) {
                // It fell by itself; another is hit.
                return self.change(kind);
            }
        }
        let member = who.member;
        let at = SystemWorld.now();
        match kind {
            Kind::Killed => drop(self.crew.kill(member)),
            Kind::Told => drop(self.crew.tell_to_end(member)),
            Kind::Stopped => drop(self.crew.stop(member)),
            Kind::CutOff => self.arena.cut_off(member),
            Kind::ByItself => {}
        }
        self.story.changes.push(Change { kind, who, term, at });
        match kind {
            Kind::Killed => drop(self.crew.start(member)),
            Kind::Told => self.begin_anew(member),
            _ => {}
        }
        self.await_leader(term);
        if matches!(kind, Kind::Stopped | Kind::CutOff) {
            let late = self.rng.millis(0..=LATE_MS);
            let wake_at = SystemWorld.now() + late;
            while SystemWorld.now() < wake_at {
                self.listen(STEP);
            }
            match kind {
                Kind::Stopped => drop(self.crew.go_on(member)),
                _ => self.arena.heal(member),
            }
        }
    }

    /// Waits for the end of a member that was told to, and starts it again.
    fn begin_anew(&mut self, member: usize) {
        let give_up = SystemWorld.now() + PATIENCE;
        loop {
            if let Some((_, how)) = self.crew.ended(PATIENCE).into_iter().find(|(ended, _)| *ended == member)
            {
                if let Err(why) = how {
                    panic!("worker {member} {why}");
                }
                break;
            }
            assert!(SystemWorld.now() < give_up, "worker {member} does not end");
            self.listen(STEP);
        }
        self.crew.start(member);
    }

    /// Waits until somebody leads under a later term than `after`.
    fn await_leader(&mut self, after: u64) -> (Who, u64) {
        let give_up = SystemWorld.now() + TO_LEAD;
        loop {
            if let Some((who, term)) = self.leader
                && term > after
            {
                return (who, term);
            }
            assert!(SystemWorld.now() < give_up, "nobody leads: {:?}", self.leader);
            self.listen(STEP);
        }
    }

    /// Takes the next line, if one comes within `wait`.
    fn listen(&mut self, wait: Duration) -> bool {
        let Some(Told { who, line }) = self.crew.next(wait) else { return false };
        let Some(line) = line else { return true };
        let entry: Entry = match serde_json::from_str(&line) {
            Ok(entry) => entry,
            Err(error) => panic!("the journal of {who:?} says {line:?}: {error}"),
        };
        match &entry.event {
            Event::Leads { term } => self.leads(who, *term, entry.at()),
            Event::Over { term } if self.leader == Some((who, *term)) => self.fell(who, *term, entry.at()),
            Event::Done { job, tick, .. } => drop(self.done.insert((Arc::clone(job), *tick))),
            _ => {}
        }
        self.story.lines.push((who, entry));
        true
    }

    fn leads(&mut self, who: Who, term: u64, at: BootTime) {
        if let Some((before, old)) = self.leader
            && old < term
        {
            self.fell(before, old, at);
        }
        // The lines of one process come in order, those of two need not.
        if self.leader.is_none_or(|(_, old)| old < term) {
            self.leader = Some((who, term));
        }
    }

    /// A leader is none any more: by what was done to it, or by itself.
    fn fell(&mut self, who: Who, term: u64, at: BootTime) {
        if !self.ending && !self.story.changes.iter().any(|change| change.term == term) {
            self.story.changes.push(Change { kind: Kind::ByItself, who, term, at });
        }
    }

    /// Whether every tick up to `until` that must be done is.
    fn all_done(&self, until: u64) -> bool {
        let period = TICK_EVERY.as_micros() as u64;
        JOBS.iter().filter(|kind| kind.delivery == Delivery::AtLeastOnce).all(|kind| {
            let job: Arc<str> = kind.name.into();
            let first = self.done.range((Arc::clone(&job), 0)..).next().filter(|(of, _)| *of == job);
            first.is_some_and(|(_, first)| {
                (*first..=until)
                    .step_by(period as usize)
                    .all(|tick| self.done.contains(&(Arc::clone(&job), tick)))
            })
        })
    }
}
