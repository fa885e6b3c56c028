//! The record of the run in the ledger, and the shipped decisions that depend on it.

use quorate::{
    env::WallTime,
    internals::{self, Incarnation, OpenRun, RunRecord},
    ledger::Answered,
    node::{
        FencingToken, LedgerState, Record,
        copy::{HEADER_KEY, Header, Seal},
    },
    scheduler::{Delivery, RunCause, RunOutcome},
};
use std::sync::LazyLock;

/// The time at which the tick is due, in microseconds.
pub(super) const TICK: u64 = 100;
/// The time between two memory losses, in microseconds.
const EPOCH: u64 = 10;
/// The maximum number of generations of a run.
pub const GENERATIONS: usize = 2;
/// The maximum number of memory losses, of all nodes together.
pub(super) const FAULTS: u8 = 2;
/// The number of values that the `at` of an *open* record can have.
const EPOCHS: usize = FAULTS as usize + 1;

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

/// The content of the run's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

impl Stage {
    pub(super) fn end(self) -> Option<End> {
        match self {
            Self::Closed(end) => Some(end),
            Self::Started | Self::Open { .. } => None,
        }
    }

    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Open { .. })
    }
}

/// Returns the time at which `epoch` began, in microseconds on every node's clock. An epoch begins with the
/// loss of a node's memory. The new memory of this node begins shortly before the returned time.
pub(super) fn time_of(epoch: u8) -> u64 {
    TICK + EPOCH * u64::from(epoch)
}

fn epoch_of(time: WallTime) -> u8 {
    ((time.as_micros() - TICK) / EPOCH) as u8
}

/// Returns the `at` of a generation that a leader opens. The leader's term began in the epoch `began`.
pub(super) fn memory_needed(began: u8) -> u8 {
    let at = WallTime::from_micros;
    epoch_of(internals::memory_needed(at(TICK), at(time_of(began))))
}

/// Returns the generation that a leader opens if it found no *open* record. `known` is true if the run has not
/// started.
pub(super) fn first_opened(known: bool) -> u8 {
    internals::first_opened(known) as u8
}

/// Returns the end of a generation that a leader ended through its slot. The library gives a later generation
/// the end *cancelled*, because its leader knows that it ended the generation. Here this is *lost*: an earlier
/// generation may have been started.
pub(super) fn voided(generation: u8) -> End {
    match internals::voided(generation.into(), RunOutcome::SkippedMisfire).is_skipped() {
        true => End::Skipped,
        false => End::Lost,
    }
}

/// Returns the generation that a worker may take, and the `at` of this generation, if `shown` of `nodes` nodes
/// show a record with the content `stage`.
pub(super) fn takes(stage: Stage, shown: usize, nodes: usize) -> Option<(u8, u8)> {
    let Stage::Open { generation, at } = stage else { return None };
    let copy = &OPENED[usize::from(generation) - 1][usize::from(at)];
    let open = internals::is_open(&vec![copy.clone(); shown], KEY, nodes)?;
    Some((open.generation as u8, epoch_of(open.at)))
}

const KEY: &str = "tick";
const TERM: FencingToken = FencingToken::new(1);

/// The copy of the ledger on a node that has the record of a generation, for each generation and each `at`.
static OPENED: LazyLock<[[Answered; EPOCHS]; GENERATIONS]> = LazyLock::new(|| {
    std::array::from_fn(|generation| std::array::from_fn(|at| opened(generation as u32 + 1, at as u8)))
});

fn opened(generation: u32, at: u8) -> Answered {
    let open = OpenRun {
        generation,
        at: WallTime::from_micros(time_of(at)),
        not_before: WallTime::default(),
        take_by: WallTime::default(),
        horizon: WallTime::default(),
        delivery: Delivery::AtLeastOnce,
        cause: RunCause::Scheduled,
        term: TERM,
        state: None,
        cancel: None,
    };
    let record = Record { at: TICK, term: TERM, last: false, value: RunRecord::Open(open).to_value() };
    let seal = Some(Seal { term: TERM, leader: 1 });
    let header = Header { seal, mark: Some(TERM), ..Header::empty(Incarnation::default()) };
    let header = header.to_record().map(|header| (HEADER_KEY.into(), header));
    let records = [(KEY.into(), record)].into_iter().chain(header).collect();
    Answered { state: LedgerState { records, ..LedgerState::default() } }
}
