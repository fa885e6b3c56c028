//! What a worker writes down: one JSON object a line, one `write` a line, on standard output.

use quorate::env::{BootTime, Env};
use quorate_tests::support::say;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What happened to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "e", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// It begins to lead.
    Leads { term: u64 },
    /// It leads no more, and knows.
    Over { term: u64 },
    /// A tick's handler begins.
    Start { job: Arc<str>, tick: u64, term: u64, made_up: bool },
    /// It has come to its end.
    Done { job: Arc<str>, tick: u64, term: u64 },
    /// It was dropped before its end.
    Cut { job: Arc<str>, tick: u64, term: u64 },
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

    /// The world it writes of.
    pub(crate) fn env(&self) -> &Env {
        &self.0
    }

    /// Writes that `event` happens now.
    pub(crate) fn write(&self, event: Event) {
        say(&Entry { at: self.0.now().as_nanos(), event });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for event in [
            Event::Leads { term: 1_790_000_000_000_000 },
            Event::Start { job: "most-quick".into(), tick: 5, term: 6, made_up: true },
            Event::Cut { job: "least-long".into(), tick: 5, term: 6 },
        ] {
            let entry = Entry { at: 77, event };
            let line = serde_json::to_string(&entry).unwrap();
            assert_eq!(serde_json::from_str::<Entry>(&line).unwrap(), entry, "{line}");
        }
    }
}
