//! What a model's node keeps of one group's ledger, for the shipped engine to work on.

use quorate::node::{
    Batch, FencingToken, LedgerState, NodeTime, Record, Reply, Request, Resource,
    engine::{self, ClaimRow, Clocks, CounterRow, LeaseRow, QueueRow, Store},
};
use std::{
    convert::Infallible,
    sync::{Arc, LazyLock},
};

/// When the tick is due, in microseconds.
pub(super) const TICK: u64 = 100;
/// The nodes' time: later than the tick.
pub(super) const NOW: u64 = 200;

static MARK: LazyLock<Arc<str>> = LazyLock::new(|| "marked".into());
static GROUP: LazyLock<Arc<str>> = LazyLock::new(|| "g".into());
static KEY: LazyLock<Arc<str>> = LazyLock::new(|| "tick".into());
static NAMES: LazyLock<[Arc<str>; 8]> =
    LazyLock::new(|| std::array::from_fn(|name| format!("{name}").into()));

/// A ledger with at most one record: that of one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Book {
    term: u8,
    pruned: bool,
    /// The term and the writer of what stands, and whether it is the last word.
    record: Option<(u8, u8, bool)>,
}

impl Book {
    pub(super) fn low_water(&self) -> u64 {
        if self.pruned { TICK + 1 } else { 0 }
    }
}

/// What stands for the tick.
pub(super) fn standing(book: &Book) -> Option<Record> {
    book.record.map(|(term, writer, last)| record(term, writer, last))
}

/// What `writer` writes.
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

/// Asks the shipped engine.
pub(super) fn ask(book: &mut Book, request: Request) -> Reply {
    let batch =
        Batch { requests: vec![request], not_after: NodeTime::from_micros(NOW), stamp: Arc::clone(&MARK) };
    let reply = engine::run(book, &batch, Clocks { wall: NodeTime::from_micros(NOW), lease_nanos: 0 });
    reply.replies.into_iter().next().unwrap_or_else(|| unreachable!("one request has one reply"))
}

impl Store for Book {
    type Error = Infallible;

    fn ledger(&self, _: &str) -> Result<LedgerState, Infallible> {
        let records = standing(self).map(|record| (Arc::clone(&KEY), record)).into_iter().collect();
        let term = FencingToken::new(self.term.into());
        Ok(LedgerState { term, low_water: self.low_water(), records })
    }

    fn set_ledger(&mut self, _: &str, state: LedgerState) -> Result<(), Infallible> {
        let small = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        self.term = small(state.term.get());
        self.pruned = state.low_water > TICK;
        self.record = state.records.first().map(|(_, record)| {
            let writer = record.value.parse().unwrap_or_else(|e| unreachable!("{e}"));
            (small(record.term.get()), writer, record.last)
        });
        Ok(())
    }

    fn marker(&self) -> Result<Option<Arc<str>>, Infallible> {
        Ok(Some(Arc::clone(&MARK)))
    }

    fn set_marker(&mut self, _: Arc<str>) -> Result<(), Infallible> {
        Ok(())
    }

    fn lease(&self, _: &Resource) -> Result<Option<LeaseRow>, Infallible> {
        Ok(None)
    }

    fn set_lease(&mut self, _: &Resource, _: Option<LeaseRow>) -> Result<(), Infallible> {
        Ok(())
    }

    fn queue(&self, _: &Resource) -> Result<Option<QueueRow>, Infallible> {
        Ok(None)
    }

    fn set_queue(&mut self, _: &Resource, _: Option<QueueRow>) -> Result<(), Infallible> {
        Ok(())
    }

    fn counter(&self, _: &Resource) -> Result<Option<CounterRow>, Infallible> {
        Ok(None)
    }

    fn set_counter(&mut self, _: &Resource, _: CounterRow) -> Result<(), Infallible> {
        Ok(())
    }

    fn claim(&self, _: &Resource) -> Result<Option<ClaimRow>, Infallible> {
        Ok(None)
    }

    fn set_claim(&mut self, _: &Resource, _: Option<ClaimRow>) -> Result<(), Infallible> {
        Ok(())
    }
}
