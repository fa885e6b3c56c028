//! The record of the run in the sealed ledger, packed into a byte.

use quorate::node::{FencingToken, Record};
use std::{
    fmt,
    sync::{Arc, LazyLock},
};

/// The time at which the tick is due, in microseconds. It is the [`Record::at`] of all records of the tick.
pub(super) const TICK: u64 = 100;
/// The maximum number of generations of a run.
pub const GENERATIONS: usize = 2;
/// The maximum number of memory losses, of all nodes together.
pub(super) const FAULTS: u8 = 2;
/// The maximum number of terms.
const TERMS: u8 = 3;

const EPOCHS: u8 = FAULTS + 1;
const FIRST_CLOSED: u8 = 1 + GENERATIONS as u8 * EPOCHS;
const STAGES: u8 = FIRST_CLOSED + 3;

/// The end of a run, as the ledger and the history store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// A handler ran to its end.
    Done,
    /// The run was started, or may have been started, and its end is unknown.
    Lost,
    /// The run was never started.
    Skipped,
}

impl End {
    pub(super) const ALL: [Self; 3] = [Self::Done, Self::Lost, Self::Skipped];
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The leader was about to start the run itself.
    Started,
    /// Workers may take this generation. A node counts for the generation only if its memory began before
    /// `at`. `at` is a value of [`State::epoch`](super::State).
    Open {
        generation: u8,
        at: u8,
    },
    Closed(End),
}

/// A record packed into a byte. Zero means that there is no record. Records are ordered by term, and within a
/// term by the order in which the leader writes them. Of two records, the greater one decides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Mark(u8);

static VALUES: LazyLock<[Arc<str>; STAGES as usize]> =
    LazyLock::new(|| std::array::from_fn(|stage| format!("{stage}").into()));

impl Mark {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn new(term: u8, stage: Stage) -> Self {
        let stage = match stage {
            Stage::Started => 0,
            Stage::Open { generation, at } => 1 + (generation - 1) * EPOCHS + at,
            Stage::Closed(end) => FIRST_CLOSED + end as u8,
        };
        Self(1 + (term - 1) * STAGES + stage)
    }

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(super) fn term(self) -> u8 {
        if self.is_none() { 0 } else { 1 + (self.0 - 1) / STAGES }
    }

    pub(super) fn stage(self) -> Option<Stage> {
        let stage = self.0.checked_sub(1)? % STAGES;
        Some(match stage {
            0 => Stage::Started,
            closed if closed >= FIRST_CLOSED => Stage::Closed(End::ALL[usize::from(closed - FIRST_CLOSED)]),
            open => Stage::Open { generation: 1 + (open - 1) / EPOCHS, at: (open - 1) % EPOCHS },
        })
    }

    pub(super) fn end(self) -> Option<End> {
        match self.stage() {
            Some(Stage::Closed(end)) => Some(end),
            _ => None,
        }
    }

    /// Returns the byte of the packed record.
    pub(super) fn code(self) -> u8 {
        self.0
    }

    pub(super) fn of_code(code: u8) -> Self {
        debug_assert!(code <= TERMS * STAGES);
        Self(code)
    }

    /// Returns the record that the engine stores. If `finals` is true, a closed record is final, so that the
    /// engine never overwrites it.
    pub(super) fn record(self, finals: bool) -> Option<Record> {
        let stage = self.0.checked_sub(1)? % STAGES;
        Some(Record {
            at: TICK,
            term: FencingToken::new(self.term().into()),
            last: finals && self.end().is_some(),
            value: Arc::clone(&VALUES[usize::from(stage)]),
        })
    }

    pub(super) fn of_record(record: &Record) -> Self {
        let stage: u8 = record.value.parse().unwrap_or_else(|e| unreachable!("{e}"));
        let term = u8::try_from(record.term.get()).unwrap_or(TERMS);
        Self(1 + (term - 1) * STAGES + stage)
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stage() {
            None => write!(f, "nothing"),
            Some(Stage::Started) => write!(f, "started by L{}", self.term()),
            Some(Stage::Open { generation, at: 0 }) => write!(f, "open {generation} by L{}", self.term()),
            Some(Stage::Open { generation, at }) => {
                write!(f, "open {generation} (at {at}) by L{}", self.term())
            }
            Some(Stage::Closed(end)) => write!(f, "closed {end:?} by L{}", self.term()),
        }
    }
}
