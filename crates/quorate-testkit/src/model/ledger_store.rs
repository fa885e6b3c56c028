//! The part of a model node's store that has the ledger of one group. The shipped engine runs on it.

use super::store::{ModelStore, run};
use quorate::node::{FencingToken, LedgerState, NodeTime, Record, Reply, Request, engine::Clocks};
use std::sync::{Arc, LazyLock};

/// The time at which the tick is due, in microseconds.
pub(super) const TICK: u64 = 100;
/// The nodes' time, which is later than the tick.
pub(super) const NOW: u64 = 200;

static GROUP: LazyLock<Arc<str>> = LazyLock::new(|| "g".into());
static KEY: LazyLock<Arc<str>> = LazyLock::new(|| "tick".into());
static NAMES: LazyLock<[Arc<str>; 8]> =
    LazyLock::new(|| std::array::from_fn(|name| format!("{name}").into()));

/// A ledger that has at most one record, the record of one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct LedgerStore {
    term: u8,
    pruned: bool,
    /// The term and the writer of the stored record, and whether the record is final.
    record: Option<(u8, u8, bool)>,
}

impl LedgerStore {
    pub(super) fn low_water(&self) -> u64 {
        if self.pruned { TICK + 1 } else { 0 }
    }
}

/// Returns the record that is stored for the tick.
pub(super) fn stored_record(store: &LedgerStore) -> Option<Record> {
    store.record.map(|(term, writer, last)| record(term, writer, last))
}

/// Returns the record that `writer` writes.
pub(super) fn record(term: u8, writer: u8, last: bool) -> Record {
    let value = Arc::clone(&NAMES[usize::from(writer)]);
    Record { at: TICK, term: FencingToken::new(term.into()), last, value }
}

pub(super) fn seal(term: u8) -> Request {
    Request::Seal { ledger: Arc::clone(&GROUP), term: FencingToken::new(term.into()), after: None }
}

pub(super) fn read() -> Request {
    Request::Read { ledger: Arc::clone(&GROUP), after: None, key: None }
}

pub(super) fn write(term: u8, seen: Option<Record>, record: Record) -> Request {
    Request::Write {
        ledger: Arc::clone(&GROUP),
        term: FencingToken::new(term.into()),
        key: Arc::clone(&KEY),
        seen,
        record,
    }
}

pub(super) fn prune(term: u8) -> Request {
    let term = FencingToken::new(term.into());
    Request::Prune { ledger: Arc::clone(&GROUP), term, below: TICK + 1, after: None }
}

/// Runs `request` on the shipped engine.
pub(super) fn ask(store: &mut LedgerStore, request: Request) -> Reply {
    let now = NodeTime::from_micros(NOW);
    run(store, request, Clocks { wall: now, lease_nanos: 0 }, now)
}

impl ModelStore for LedgerStore {
    fn ledger(&self) -> LedgerState {
        let records = stored_record(self).map(|record| (Arc::clone(&KEY), record)).into_iter().collect();
        let term = FencingToken::new(self.term.into());
        LedgerState { term, low_water: self.low_water(), records }
    }

    fn set_ledger(&mut self, state: LedgerState) {
        let small = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        self.term = small(state.term.get());
        self.pruned = state.low_water > TICK;
        self.record = state.records.first().map(|(_, record)| {
            let writer = record.value.parse().unwrap_or_else(|e| unreachable!("{e}"));
            (small(record.term.get()), writer, record.last)
        });
    }
}
