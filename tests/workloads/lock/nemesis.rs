//! Runs the workers of one mode, and pauses them where it hurts.

use super::{
    Args, Mode, WORKERS,
    report::Outcome,
    store::{Set, Store},
    worker::{self, says},
};
use quorate::env::{BootTime, SystemWorld, World};
use quorate_tests::support::{Crew, PATIENCE, Told};
use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    thread,
    time::Duration,
};

/// How many additions of others must be acknowledged during a pause, so that there is something to lose.
const OTHERS: usize = 3;
/// How long a request may take from a worker's socket to the store, and a line from its output to us.
const ON_THE_WAY: Duration = Duration::from_millis(100);

/// Where a worker is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// After its read, and before it looks at its lease, where it does.
    BeforeLook,
    /// After that look, and before its write.
    AfterLook,
}

/// A pause, and the element that the paused worker was adding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    pub(crate) point: Point,
    pub(crate) element: u64,
}

/// Runs one mode to its end.
pub(crate) fn run(mode: Mode, args: &Args, urls: &[String]) -> Outcome {
    let store = Store::serve(Set::new(mode == Mode::Fenced)).expect("a port");
    let program = std::env::current_exe().expect("our own path");
    let (ttl, port, urls) = (args.ttl, store.port(), urls.to_vec());
    let crew = Crew::new(WORKERS, move |who| {
        let mut command = Command::new(&program);
        command.args(worker::to_args(who.member, mode, ttl, port, &urls));
        command
    });
    let mut nemesis = Nemesis {
        crew,
        store,
        ttl,
        acknowledged: BTreeSet::new(),
        skipped: BTreeSet::new(),
        looking: BTreeMap::new(),
        pauses: Vec::new(),
    };
    for member in 0..WORKERS {
        nemesis.crew.start(member);
    }
    nemesis.haunt(args);
    nemesis.finish(mode)
}

struct Nemesis {
    crew: Crew,
    store: Store,
    ttl: Duration,
    acknowledged: BTreeSet<u64>,
    skipped: BTreeSet<u64>,
    /// The element for which each member last went to look at its lease.
    looking: BTreeMap<usize, u64>,
    pauses: Vec<Pause>,
}

impl Nemesis {
    /// Pauses workers, before the look and after it in turn, until the time is over. The last pause runs to
    /// its end.
    fn haunt(&mut self, args: &Args) {
        let began = SystemWorld.now();
        let give_up = began + args.time + PATIENCE * 3;
        // Whatever the time, each kind of pause is tried.
        let mut next = began + args.pause_every / 2;
        while SystemWorld.now() < began + args.time || self.pauses.len() < 2 {
            assert!(SystemWorld.now() < give_up, "no pause hits where it should: {:?}", self.pauses);
            let even = self.pauses.len().is_multiple_of(2);
            let point = if even { Point::BeforeLook } else { Point::AfterLook };
            let Some((told, said)) = self.listen() else { continue };
            let at_point = match point {
                Point::BeforeLook => said.0 == says::READ,
                Point::AfterLook => said.0 == says::LOOKED,
            };
            if at_point && SystemWorld.now() >= next && self.pause(told.who.member, point, said.1) {
                self.pauses.push(Pause { point, element: said.1 });
                next = next.max(SystemWorld.now() - args.pause_every) + args.pause_every;
            }
        }
    }

    /// Pauses a member that is adding `element`, until its lease is over and others have added more. `false`
    /// where it had passed `point` before it stood still.
    fn pause(&mut self, member: usize, point: Point, element: u64) -> bool {
        let stopped = self.crew.stop(member);
        // What it may have sent before it was stopped arrives now or never.
        thread::sleep(ON_THE_WAY);
        while self.listen_for(Duration::ZERO).is_some() {}
        let mut hit = self.stands_at(member, point, element);
        if hit {
            self.wait_for_others(stopped);
            // A line that took longer than all that has come by now.
            hit = self.stands_at(member, point, element);
        }
        self.crew.go_on(member);
        hit
    }

    /// Whether a member that stands still has not gone beyond `point` with `element`, by what has arrived.
    fn stands_at(&self, member: usize, point: Point, element: u64) -> bool {
        let beyond = point == Point::BeforeLook && self.looking.get(&member) == Some(&element);
        !beyond && !self.store.set().has_seen(element)
    }

    fn wait_for_others(&mut self, stopped: BootTime) {
        let (over, give_up) = (stopped + self.ttl + self.ttl / 2, stopped + PATIENCE + self.ttl * 2);
        let before = self.acknowledged.len();
        while SystemWorld.now() < over || self.acknowledged.len() < before + OTHERS {
            assert!(SystemWorld.now() < give_up, "nobody takes the lock of a worker that is paused");
            self.listen();
        }
    }

    /// The next thing that a worker says.
    fn listen(&mut self) -> Option<(Told, (String, u64))> {
        let fallen = self.crew.ended(PATIENCE);
        assert!(fallen.is_empty(), "workers ended: {fallen:?}");
        self.listen_for(Duration::from_millis(50))
    }

    fn listen_for(&mut self, wait: Duration) -> Option<(Told, (String, u64))> {
        let told = self.crew.next(wait)?;
        let (what, element) = told.line.as_deref()?.split_once(' ').expect("two words");
        let said = (what.to_owned(), element.parse().expect("a number"));
        match &*said.0 {
            says::ACKNOWLEDGED => drop(self.acknowledged.insert(said.1)),
            says::SKIPPED => drop(self.skipped.insert(said.1)),
            says::LOOKING => drop(self.looking.insert(told.who.member, said.1)),
            _ => {}
        }
        Some((told, said))
    }

    /// Lets the last paused worker do what it will, then ends all, and compares.
    fn finish(mut self, mode: Mode) -> Outcome {
        if let Some(last) = self.pauses.last().copied() {
            let give_up = SystemWorld.now() + PATIENCE;
            while !(self.store.set().has_seen(last.element) || self.skipped.contains(&last.element)) {
                assert!(SystemWorld.now() < give_up, "a worker that was paused does not go on");
                self.listen();
            }
        }
        let mut open = WORKERS;
        for member in 0..WORKERS {
            self.crew.kill(member);
        }
        // Acknowledgements that are on the way count, up to the end of every output.
        while open > 0 {
            let told = self.crew.next(PATIENCE).expect("the end of a killed worker's output");
            match told.line.as_deref().and_then(|line| line.split_once(' ')) {
                Some((says::ACKNOWLEDGED, element)) => {
                    self.acknowledged.insert(element.parse().expect("a number"));
                }
                Some((says::SKIPPED, element)) => {
                    self.skipped.insert(element.parse().expect("a number"));
                }
                Some(_) => {}
                None => open -= 1,
            }
        }
        Outcome::of(mode, &self.acknowledged, &self.store.set(), self.skipped.len(), &self.pauses)
    }
}
