//! Runs the workers of one mode, and hits them where it hurts.

use super::{
    Args, Mode, Outcome, store,
    worker::{self, says},
};
use quorate::env::{BootTime, SystemWorld, World};
use quorate_tests::support::{Crew, PATIENCE, until};
use serde::Serialize;
use std::{process::Command, time::Duration};

/// From one fault to the next, at least.
const PERIOD: Duration = Duration::from_millis(250);
/// Each fault is made so often at least, or the messages were too few.
const EACH: u32 = 2;

/// How often each fault was made.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Faults {
    /// Killed between the effect and `complete`.
    pub(crate) killed_after: u32,
    /// Stopped between the claim and the effect, until the claim was over.
    pub(crate) stopped_before: u32,
    /// Stopped between the effect and `complete`, until the claim was over.
    pub(crate) stopped_after: u32,
}

/// Runs one mode to its end.
pub(crate) fn run(mode: Mode, args: &Args, urls: &[String], database: &str) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = store::connect(database).await.expect("a connection");
        store::prepare(&client, mode).await.expect("tables");
    });
    let program = std::env::current_exe().expect("our own path");
    let (ttl, messages, urls, url) = (args.ttl, args.messages, urls.to_vec(), database.to_owned());
    let mut crew = Crew::new(args.workers, move |who| {
        let mut command = Command::new(&program);
        command.args(worker::to_args(who.member, mode, ttl, messages, &url, &urls));
        command
    });
    for member in 0..args.workers {
        crew.start(member);
    }
    let began = SystemWorld.now();
    let mut nemesis = Nemesis {
        crew,
        ttl,
        faults: Faults::default(),
        stopped: Vec::new(),
        over: vec![false; args.workers],
    };
    nemesis.haunt(began);
    let seconds = SystemWorld.now().since(began).as_secs_f64();
    let (effects, distinct) = runtime.block_on(async {
        let client = store::connect(database).await.expect("a connection");
        store::count(&client, mode).await.expect("two numbers")
    });
    let faults = nemesis.faults;
    let fewest = faults.killed_after.min(faults.stopped_before).min(faults.stopped_after);
    assert!(fewest >= EACH, "{mode}: too few faults were made ({faults:?}): more messages are needed");
    Outcome { mode: mode.to_string(), messages: args.messages, effects, distinct, faults, seconds }
}

struct Nemesis {
    crew: Crew,
    ttl: Duration,
    faults: Faults,
    /// Who stands still, and since when.
    stopped: Vec<(usize, BootTime)>,
    over: Vec<bool>,
}

impl Nemesis {
    /// Hits workers, one fault after the other in turn, until all have said that all is done.
    fn haunt(&mut self, began: BootTime) {
        let (mut last, mut heard) = (began, began);
        while self.over.contains(&false) {
            let now = SystemWorld.now();
            assert!(now.since(heard) < PATIENCE * 3, "nobody says anything any more: {:?}", self.over);
            self.wake(now);
            assert_eq!(self.crew.ended(PATIENCE), [], "a worker ended");
            let Some(told) = self.crew.next(Duration::from_millis(20)) else { continue };
            let Some(line) = told.line else { continue };
            heard = now;
            let member = told.who.member;
            if line == says::OVER {
                self.over[member] = true;
            } else if now.since(last) >= PERIOD
                && told.who == self.crew.who(member)
                && self.crew.is_going(member)
            {
                last = if self.hit(member, &line) { now } else { last };
            }
        }
        self.end();
    }

    /// Tells all to end, who have no more to do.
    fn end(&mut self) {
        for (member, _) in std::mem::take(&mut self.stopped) {
            self.crew.go_on(member);
        }
        for member in 0..self.over.len() {
            self.crew.tell_to_end(member);
        }
        until("end of the workers", PATIENCE, || {
            for (member, how) in self.crew.ended(PATIENCE) {
                assert!(how.is_ok(), "worker {member}: {how:?}");
            }
            self.crew.pids().is_empty().then_some(())
        });
    }

    /// Lets go on whoever stood still for longer than a claim lasts.
    fn wake(&mut self, now: BootTime) {
        let over = self.ttl * 3 / 2;
        let due = self.stopped.iter().filter(|(_, since)| now.since(*since) > over);
        for member in due.map(|(member, _)| *member).collect::<Vec<_>>() {
            self.crew.go_on(member);
            self.stopped.retain(|(other, _)| *other != member);
        }
    }

    /// Makes the fault whose turn it is, where `line` says that the worker is at its place.
    fn hit(&mut self, member: usize, line: &str) -> bool {
        let Faults { killed_after, stopped_before, stopped_after } = &mut self.faults;
        match line {
            says::COMMITTED if killed_after <= stopped_after => {
                *killed_after += 1;
                self.crew.kill(member);
                self.crew.start(member);
            }
            says::COMMITTED => {
                *stopped_after += 1;
                self.stopped.push((member, self.crew.stop(member)));
            }
            says::CLAIMED if *stopped_before <= *stopped_after => {
                *stopped_before += 1;
                self.stopped.push((member, self.crew.stop(member)));
            }
            _ => return false,
        }
        true
    }
}
