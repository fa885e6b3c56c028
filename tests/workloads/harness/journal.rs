//! The journal of a worker: one JSON object a line, one `write` a line, on standard output.

use quorate::env::{BootTime, Env};
use quorate_tests::support::say;
use serde::{Deserialize, Serialize};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// An event of a worker. All times are of the machine's boot clock, in nanoseconds, unless stated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// The worker begins.
    Ready,
    /// A lease was acquired and was valid just *before* this time. It was requested at `requested` or later; 0 where
    /// that is not known.
    Acquired { resource: Arc<str>, token: u64, requested: u64, until: u64 },
    /// A lease was valid just *after* this time, and ends at `until` at the earliest unless it is lost.
    Valid { resource: Arc<str>, token: u64, until: u64 },
    /// As `Valid`; the worker ends the lease next.
    Releasing { resource: Arc<str>, token: u64 },
    /// A lease was found to have ended.
    Ended { resource: Arc<str>, token: u64 },
    /// The work under a lease received the notice to step down.
    SteppedDown { resource: Arc<str>, token: u64 },
    /// A run of a job begins. `tick` is in microseconds of the wall clock.
    RunStarted { job: Arc<str>, tick: u64, term: u64 },
    /// The run has completed.
    RunDone { job: Arc<str>, tick: u64, term: u64 },
    /// The run was dropped before it completed.
    RunInterrupted { job: Arc<str>, tick: u64, term: u64 },
    /// A message's done record is stored on so many nodes. Writing it took so many microseconds: meanwhile a node may
    /// have lost its data with its reply on the way.
    MessageDone { message: u64, token: u64, nodes: usize, took: u64 },
    /// A message was found to be done already.
    MessageFoundDone { message: u64 },
    /// This process was not scheduled from `from` until now.
    Stalled { from: u64 },
    /// The worker has reached a point of its work with this element.
    Reached { point: Point, element: u64 },
    /// Runs have begun so many microseconds after their ticks.
    Late { micros: Vec<u64> },
    /// A contender has requested, acquired and released the lease.
    Turn { requested: u64, acquired: u64, released: u64 },
}

/// A point in a worker's work at which a plan may stop or kill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Point {
    /// The set has been read; the worker thinks, then it checks its lease, where it does.
    Read,
    /// The worker checks its lease next, where it does.
    Checking,
    /// The lease has been checked, where it is; the worker thinks, then it writes.
    Checked,
    /// The check failed, and nothing was written.
    Skipped,
    /// The store has acknowledged the write.
    Acknowledged,
    /// A batch of messages is claimed; the worker thinks, then it commits the effects.
    Claimed,
    /// The effects are committed; the worker thinks, then it completes the claims.
    Committed,
    /// Nothing is left to do.
    AllDone,
}

/// A line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) event: Event,
}

impl Entry {
    pub(crate) fn at(&self) -> BootTime {
        BootTime::from_nanos(self.at)
    }
}

/// Writes the journal of this process.
#[derive(Clone, Debug)]
pub(crate) struct Journal(Env);

impl Journal {
    pub(crate) fn new(env: &Env) -> Self {
        Self(env.clone())
    }

    pub(crate) fn env(&self) -> &Env {
        &self.0
    }

    pub(crate) fn now(&self) -> BootTime {
        self.0.now()
    }

    /// Writes an event of this moment. Once this returns, a SIGKILL cannot lose the line: the kernel has it.
    pub(crate) fn write(&self, event: Event) {
        self.write_at(self.now(), event);
    }

    /// Writes an event of a moment just past.
    pub(crate) fn write_at(&self, at: BootTime, event: Event) {
        say(&Entry { at: at.as_nanos(), event });
    }
}

/// Writes the events of one lease: its end and its step-down once each.
#[derive(Debug)]
pub(crate) struct LeaseLog {
    journal: Journal,
    resource: Arc<str>,
    token: u64,
    stepped_down: AtomicBool,
    closed: AtomicBool,
}

impl LeaseLog {
    /// Writes that a lease was acquired, where `remaining` gives what is left of it. `None` where it has ended already.
    pub(crate) fn begin(
        journal: &Journal,
        resource: &str,
        token: u64,
        requested: BootTime,
        remaining: impl FnOnce() -> Duration,
    ) -> Option<Self> {
        let before = journal.now();
        let left = remaining();
        if left.is_zero() {
            return None;
        }
        let (stepped_down, closed) = (AtomicBool::new(false), AtomicBool::new(false));
        let log = Self { journal: journal.clone(), resource: resource.into(), token, stepped_down, closed };
        let (requested, until) = (requested.as_nanos(), (before + left).as_nanos());
        journal.write(Event::Acquired { resource: Arc::clone(&log.resource), token, requested, until });
        Some(log)
    }

    /// Checks the lease, and writes that it is valid or has ended.
    pub(crate) fn check(&self, remaining: impl FnOnce() -> Duration) -> bool {
        let at = self.journal.now();
        let left = remaining();
        let (resource, token) = (Arc::clone(&self.resource), self.token);
        let valid = !left.is_zero();
        if valid {
            self.journal.write_at(at, Event::Valid { resource, token, until: (at + left).as_nanos() });
        } else if !self.closed.swap(true, Ordering::Relaxed) {
            self.journal.write(Event::Ended { resource, token });
        }
        valid
    }

    /// Checks the lease for the last time, before the worker ends it itself. `false` where it has ended already.
    pub(crate) fn end(&self, remaining: impl FnOnce() -> Duration) -> bool {
        if self.closed.swap(true, Ordering::Relaxed) {
            return false;
        }
        let at = self.journal.now();
        let (resource, token) = (Arc::clone(&self.resource), self.token);
        let valid = !remaining().is_zero();
        let event =
            if valid { Event::Releasing { resource, token } } else { Event::Ended { resource, token } };
        self.journal.write_at(at, event);
        valid
    }

    /// Writes that the work received the notice to step down.
    pub(crate) fn step_down(&self) {
        if !self.stepped_down.swap(true, Ordering::Relaxed) {
            let (resource, token) = (Arc::clone(&self.resource), self.token);
            self.journal.write(Event::SteppedDown { resource, token });
        }
    }

    pub(crate) fn has_stepped_down(&self) -> bool {
        self.stepped_down.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_parsed_as_it_was_written() {
        for event in [
            Event::Ready,
            Event::Acquired {
                resource: "lock-0".into(),
                token: 1_790_000_000_000_000,
                requested: 3,
                until: 9,
            },
            Event::RunInterrupted { job: "at-most-once".into(), tick: 5, term: 6 },
            Event::Reached { point: Point::Checked, element: 12 },
            Event::Late { micros: vec![1, 2] },
        ] {
            let entry = Entry { at: 77, event };
            let line = serde_json::to_string(&entry).unwrap();
            assert_eq!(serde_json::from_str::<Entry>(&line).unwrap(), entry, "{line}");
        }
    }
}
