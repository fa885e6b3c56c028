//! The journal of a worker. The worker writes it to standard output, as one JSON object per line, with a single
//! `write` call for each line.

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

/// An event of a worker. Unless stated otherwise, all times are in nanoseconds of the machine's boot clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// The worker has started.
    Ready,
    /// A lease was acquired, and was valid just *before* this time. The attempt began at `requested` or later.
    /// `requested` is 0 if that time is not known.
    Acquired { resource: Arc<str>, token: u64, requested: u64, until: u64 },
    /// A lease was valid just *after* this time. Its validity ends at `until`, unless the lease is extended or
    /// lost before that.
    Valid { resource: Arc<str>, token: u64, until: u64 },
    /// A holder begins to write `element` to the store that its lock protects, with its token. If the process ends before
    /// the reply, it is not known whether the store accepted the write.
    Writing { resource: Arc<str>, token: u64, element: u64 },
    /// The write of `element` that began at `requested` has ended. The
    /// store accepted it in place of the element `before`, or refused it because it has seen a larger token. `valid` says
    /// whether the lease was still valid after the reply.
    Written {
        resource: Arc<str>,
        token: u64,
        element: u64,
        requested: u64,
        before: u64,
        accepted: bool,
        valid: bool,
    },
    /// The lease was valid, as for `Valid`. The worker ends it next.
    Releasing { resource: Arc<str>, token: u64 },
    /// The worker found that its lease has ended.
    Ended { resource: Arc<str>, token: u64 },
    /// The work under a lease received the notice to step down.
    SteppedDown { resource: Arc<str>, token: u64 },
    /// A run of a job begins. `tick` is in microseconds of the wall clock.
    RunStarted { job: Arc<str>, tick: u64, term: u64 },
    /// The run has completed.
    RunDone { job: Arc<str>, tick: u64, term: u64 },
    /// The run was dropped before it completed.
    RunInterrupted { job: Arc<str>, tick: u64, term: u64 },
    /// A message's done record is stored on `nodes` nodes. Writing the record took `took` microseconds. During
    /// that time, a node may have stored the record and then lost its data.
    MessageDone { message: u64, token: u64, nodes: usize, took: u64 },
    /// A message was found to be done already. The claim that found it was requested at `requested`.
    MessageFoundDone { message: u64, requested: u64 },
    /// This process was not scheduled from `from` until now.
    Stalled { from: u64 },
    /// The worker has reached this point of its work. `element` is the element that it adds to a set, or the
    /// number of its batch of messages.
    Reached { point: Point, element: u64 },
    /// The lateness of runs: for each run, the microseconds from its tick to its start.
    Late { micros: Vec<u64> },
    /// A batch of messages was claimed by a request that began at `requested`: the messages that this worker has claimed,
    /// each with its token, and those that were found to be done already.
    BatchClaimed { requested: u64, claimed: Vec<(u64, u64)>, done: Vec<u64> },
    /// The claims of a batch were completed, from `requested` on. `stored` has the messages of which the worker knows that
    /// a majority stores the done record, each with its token.
    BatchCompleted { requested: u64, stored: Vec<(u64, u64)> },
    /// The worker calls the store that its lock protects. A write replaces a set by another one, and a set is given by
    /// its fingerprint. If the process ends before `StoreReturned`, it is not known whether the call took effect.
    StoreCalled { token: u64, write: Option<[u64; 2]> },
    /// The last call has returned, with the fingerprint that was read or written. `None` if the store refused the
    /// call.
    StoreReturned { value: Option<u64> },
    /// A contender has requested, acquired and released the lease.
    Turn { requested: u64, acquired: u64, released: u64 },
}

/// A point in a worker's work at which a plan may stop or kill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Point {
    /// The worker has read the set, and waits. Then it checks its lease, if its mode requires that.
    Read,
    /// The worker has waited, and checks its lease next, if its mode requires that.
    Checking,
    /// The worker has checked its lease, if its mode requires that, and waits. Then it writes.
    Checked,
    /// The check of the lease failed, and the worker wrote nothing.
    Skipped,
    /// The store has acknowledged the write.
    Acknowledged,
    /// A batch of messages is claimed. The worker waits, and then commits the effects.
    Claimed,
    /// The effects are committed. The worker waits, and then completes the claims.
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

    /// Converts the times of an entry from the clock that wrote it to a clock that is behind by `ahead`.
    pub(crate) fn on_clock_behind(mut self, ahead: Duration) -> Self {
        let ahead = u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX);
        // 0 is no time: it says that the time is not known.
        let convert = |at: &mut u64| *at = at.saturating_sub(ahead);
        convert(&mut self.at);
        match &mut self.event {
            Event::Acquired { requested, until, .. } => [requested, until].into_iter().for_each(convert),
            Event::Valid { until, .. } => convert(until),
            Event::Stalled { from } => convert(from),
            Event::Written { requested, .. }
            | Event::MessageFoundDone { requested, .. }
            | Event::BatchClaimed { requested, .. }
            | Event::BatchCompleted { requested, .. } => convert(requested),
            Event::Turn { requested, acquired, released } => {
                [requested, acquired, released].into_iter().for_each(convert);
            }
            _ => {}
        }
        self
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

    /// Writes an event that happens now. When this method returns, the kernel has the line. So a SIGKILL of
    /// this process cannot undo the write.
    pub(crate) fn write(&self, event: Event) {
        self.write_at(self.now(), event);
    }

    /// Writes an event that happened at `at`, shortly before now.
    pub(crate) fn write_at(&self, at: BootTime, event: Event) {
        say(&Entry { at: at.as_nanos(), event });
    }
}

/// Writes the events of one lease to the journal. The end and the step-down are written only once each.
#[derive(Debug)]
pub(crate) struct LeaseLog {
    journal: Journal,
    resource: Arc<str>,
    token: u64,
    stepped_down: AtomicBool,
    closed: AtomicBool,
}

impl LeaseLog {
    /// Writes that a lease was acquired. `remaining` must return its remaining time. Returns `None` if the
    /// lease has already ended.
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

    /// Checks the lease just before the worker itself ends it. Returns `false` if the lease has already ended.
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

    /// Lists every event that has times of the boot clock, besides the time of the entry.
    #[test]
    fn all_times_are_converted_from_another_clock() {
        let second = |n: u64| n * 1_000_000_000;
        let of = |from: u64| {
            let resource: Arc<str> = "x".into();
            let (requested, until) = (second(from + 1), second(from + 2));
            let (token, element, before, accepted, valid) = (1, 2, 3, true, true);
            vec![
                Event::Acquired { resource: Arc::clone(&resource), token, requested, until },
                Event::Valid { resource: Arc::clone(&resource), token, until },
                Event::Stalled { from: until },
                Event::Written { resource, token, element, requested, before, accepted, valid },
                Event::MessageFoundDone { message: 1, requested },
                Event::Turn { requested, acquired: until, released: until },
                Event::MessageDone { message: 1, token, nodes: 3, took: second(9) },
            ]
        };
        for (ahead, here) in of(1000).into_iter().zip(of(0)) {
            let entry = Entry { at: second(1007), event: ahead }.on_clock_behind(Duration::from_secs(1000));
            assert_eq!(entry, Entry { at: second(7), event: here });
        }
        let event = Event::Acquired { resource: "x".into(), token: 1, requested: 0, until: second(1001) };
        let entry = Entry { at: second(1001), event }.on_clock_behind(Duration::from_secs(1000));
        assert!(matches!(entry.event, Event::Acquired { requested: 0, .. }), "an unknown time stays unknown");
    }

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
