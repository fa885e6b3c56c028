//! What a worker writes down: one JSON object a line, one `write` a line, on standard output.

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

/// What happened to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "e", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// The worker begins.
    Ready,
    /// A lease was granted, and was seen valid just *before* this time. Asked for at `asked` or later; 0 where
    /// that is not known.
    Held { res: Arc<str>, token: u64, asked: u64, until: u64 },
    /// A lease was seen valid just *after* this time, and would end at `until` at the earliest, by itself.
    Look { res: Arc<str>, token: u64, until: u64 },
    /// As `Look`; and the worker is about to end it.
    Ending { res: Arc<str>, token: u64 },
    /// A lease was found to have ended.
    Over { res: Arc<str>, token: u64 },
    /// The work under a lease was told to stop.
    Told { res: Arc<str>, token: u64 },
    /// A tick's handler begins.
    TickStart { job: Arc<str>, tick: u64, term: u64 },
    /// It has come to its end.
    TickDone { job: Arc<str>, tick: u64, term: u64 },
    /// A message's done record stands on this many nodes. Recording it took so long, in microseconds: a node may
    /// have forgotten meanwhile, with its answer on the way.
    Done { message: u64, token: u64, nodes: usize, took: u64 },
    /// A message was found to be done.
    Seen { message: u64 },
    /// This process did not run from `from` until now.
    Stalled { from: u64 },
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The machine's boot clock, in nanoseconds.
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) event: Event,
}

impl Entry {
    pub(crate) fn at(&self) -> BootTime {
        BootTime::from_nanos(self.at)
    }
}

/// A worker's side.
#[derive(Clone, Debug)]
pub(crate) struct Journal(Env);

impl Journal {
    pub(crate) fn new(env: &Env) -> Self {
        Self(env.clone())
    }

    pub(crate) fn now(&self) -> BootTime {
        self.0.now()
    }

    /// Writes that `event` happens now.
    pub(crate) fn write(&self, event: Event) {
        self.write_at(self.now(), event);
    }

    /// Writes a line.
    pub(crate) fn write_at(&self, at: BootTime, event: Event) {
        say(&Entry { at: at.as_nanos(), event });
    }
}

/// Writes down the life of one lease: its end once, and that its work was told to stop once.
#[derive(Debug)]
pub(crate) struct Diary {
    journal: Journal,
    res: Arc<str>,
    token: u64,
    told: AtomicBool,
    closed: AtomicBool,
}

impl Diary {
    /// A lease was granted; `remaining` is what it says of itself now. `None` where it is over already.
    pub(crate) fn begin(
        journal: &Journal,
        res: &str,
        token: u64,
        asked: BootTime,
        remaining: impl FnOnce() -> Duration,
    ) -> Option<Self> {
        let before = journal.now();
        let left = remaining();
        let (told, closed) = (AtomicBool::new(false), AtomicBool::new(false));
        let diary = Self { journal: journal.clone(), res: res.into(), token, told, closed };
        let (res, asked, until) = (Arc::clone(&diary.res), asked.as_nanos(), (before + left).as_nanos());
        if left.is_zero() {
            return None;
        }
        journal.write(Event::Held { res, token, asked, until });
        Some(diary)
    }

    /// Looks at the lease, and writes down that it is valid, or over.
    pub(crate) fn look(&self, remaining: impl FnOnce() -> Duration) -> bool {
        let at = self.journal.now();
        let left = remaining();
        let (res, token) = (Arc::clone(&self.res), self.token);
        let valid = !left.is_zero();
        if valid {
            self.journal.write_at(at, Event::Look { res, token, until: (at + left).as_nanos() });
        } else if !self.closed.swap(true, Ordering::Relaxed) {
            self.journal.write(Event::Over { res, token });
        }
        valid
    }

    /// The last look, before the worker ends the lease itself. `false` where it is over already.
    pub(crate) fn end(&self, remaining: impl FnOnce() -> Duration) -> bool {
        if self.closed.swap(true, Ordering::Relaxed) {
            return false;
        }
        let at = self.journal.now();
        let (res, token) = (Arc::clone(&self.res), self.token);
        let valid = !remaining().is_zero();
        let event = if valid { Event::Ending { res, token } } else { Event::Over { res, token } };
        self.journal.write_at(at, event);
        valid
    }

    /// The work was told to stop.
    pub(crate) fn told(&self) {
        if !self.told.swap(true, Ordering::Relaxed) {
            self.journal.write(Event::Told { res: Arc::clone(&self.res), token: self.token });
        }
    }

    /// Whether that has been written.
    pub(crate) fn has_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for event in [
            Event::Ready,
            Event::Held { res: "lock-0".into(), token: 1_790_000_000_000_000, asked: 3, until: 9 },
            Event::TickDone { job: "at-most-once".into(), tick: 5, term: 6 },
            Event::Stalled { from: 12 },
        ] {
            let entry = Entry { at: 77, event };
            let line = serde_json::to_string(&entry).unwrap();
            assert_eq!(serde_json::from_str::<Entry>(&line).unwrap(), entry, "{line}");
        }
    }
}
