//! One node's ledger record and slots, for the shipped engine to work on.
//!
//! The engine is a pure function, so its answers are cached by node state and request: a search asks the same ones over and over.

use super::record::{GENERATIONS, Mark, TICK};
use crate::model::shelf::owner;
use quorate::node::{
    Batch, Begun, DoneRecord, FencingToken, LedgerState, NodeTime, Refusal, Reply, Request, Resource,
    engine::{self, ClaimRecord, ClaimRow, Clocks, CounterRow, LeaseRow, QueueRow, Store},
};
use std::{
    cell::RefCell,
    convert::Infallible,
    sync::{Arc, LazyLock},
    time::Duration,
};

/// One node's wall clock before the first horizon, and how far it is from one horizon to the next, in microseconds.
const NOW: u64 = 200;
const BETWEEN: u64 = 100;
/// A fencing token that every grant has: see the head of the model.
const TOKEN: FencingToken = FencingToken::new(7);
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

static MARK: LazyLock<Arc<str>> = LazyLock::new(|| "marked".into());
static GROUP: LazyLock<Arc<str>> = LazyLock::new(|| "g".into());
static KEY: LazyLock<Arc<str>> = LazyLock::new(|| "tick".into());
static RESULTS: LazyLock<[Arc<str>; 2]> = LazyLock::new(|| ["done".into(), "void".into()]);
static SLOTS: LazyLock<[Resource; GENERATIONS]> = LazyLock::new(|| {
    let claim = |generation| Resource::claim("slot", &format!("job/tick/{generation}"));
    std::array::from_fn(|at| claim(at + 1).unwrap_or_else(|error| unreachable!("{error}")))
});

/// The record of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) enum Row {
    #[default]
    None,
    /// One attempt.
    Counted,
    /// Its owner has ended the run.
    Done,
    /// Its owner, a leader, has ended it unstarted.
    Void,
}

/// The claim of one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Slot {
    /// The holder's number from one; 0 if the claim is free.
    pub(super) owner: u8,
    pub(super) row: Row,
}

/// The contents of a node's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Core {
    /// The highest term that has sealed or written.
    pub(super) term: u8,
    pub(super) mark: Mark,
    /// Set if the tick is below the low-water mark.
    pub(super) pruned: bool,
    /// How many generations' horizons have passed by this node's clock.
    pub(super) late: u8,
    pub(super) slots: [Slot; GENERATIONS],
}

impl Core {
    pub(super) fn slot(&self, generation: u8) -> &Slot {
        &self.slots[usize::from(generation) - 1]
    }

    pub(super) fn is_past_horizon(&self, generation: u8) -> bool {
        self.late >= generation
    }

    pub(super) fn low_water(&self) -> u64 {
        if self.pruned { TICK + 1 } else { 0 }
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Question {
    Seal(u8),
    Read,
    Write { term: u8, seen: Mark, mark: Mark },
    Prune(u8),
    Acquire { generation: u8, owner: u8 },
    Extend { generation: u8, owner: u8 },
    Count { generation: u8, owner: u8, back: bool },
    Complete { generation: u8, owner: u8, void: bool },
    Inspect { generation: u8 },
}

/// The way in which requests are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Manner {
    /// A closed record is the last word: the engine does not overwrite it.
    pub(super) finals: bool,
    /// A slot's acquires and counts carry its horizon as the time after which the node refuses them.
    pub(super) horizon: bool,
}

/// A reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Ledger,
    Written,
    Standing(Mark),
    Granted {
        counted: bool,
    },
    Counted,
    Superseded,
    Done {
        void: bool,
    },
    /// The holder and the row are the node's own.
    State,
    /// Extended, completed, pruned.
    Agreed,
    Refused,
}

/// Runs `question` on the shipped engine.
pub(super) fn ask(core: &mut Core, question: Question, manner: Manner) -> Said {
    #[expect(clippy::disallowed_types, reason = "it is looked up, and never iterated")]
    type Known = std::collections::HashMap<(Core, Question, Manner), (Core, Said)>;
    thread_local! {
        static KNOWN: RefCell<Known> = RefCell::default();
    }
    let key = (*core, question, manner);
    let known = KNOWN.with_borrow(|known| known.get(&key).copied());
    let (after, said) = known.unwrap_or_else(|| {
        let served = serve(*core, question, manner);
        KNOWN.with_borrow_mut(|known| known.insert(key, served));
        served
    });
    *core = after;
    said
}

fn serve(core: Core, question: Question, manner: Manner) -> (Core, Said) {
    let wall = NodeTime::from_micros(NOW + BETWEEN * u64::from(core.late));
    let not_after = match question {
        Question::Acquire { generation, .. } | Question::Count { generation, .. } if manner.horizon => {
            NodeTime::from_micros(NOW + BETWEEN * u64::from(generation) - BETWEEN / 2)
        }
        _ => NodeTime::from_micros(u64::MAX),
    };
    let batch = Batch { requests: vec![request(question, manner)], not_after, stamp: Arc::clone(&MARK) };
    let mut disk = Disk { core, finals: manner.finals };
    let reply = engine::run(&mut disk, &batch, Clocks { wall, lease_nanos: 0 });
    let reply = reply.replies.into_iter().next().unwrap_or_else(|| unreachable!("one request has one reply"));
    (disk.core, said(&reply))
}

fn request(question: Question, manner: Manner) -> Request {
    let ledger = || Arc::clone(&GROUP);
    let term = |term: u8| FencingToken::new(term.into());
    let slot = |generation: u8| SLOTS[usize::from(generation) - 1].clone();
    match question {
        Question::Seal(by) => Request::Seal { ledger: ledger(), term: term(by), after: None },
        Question::Read => Request::Read { ledger: ledger(), after: None },
        Question::Write { term: by, seen, mark } => Request::Write {
            ledger: ledger(),
            term: term(by),
            key: Arc::clone(&KEY),
            seen: seen.record(manner.finals),
            record: mark.record(manner.finals).unwrap_or_else(|| unreachable!("a record is written")),
        },
        Question::Prune(by) => {
            Request::Prune { ledger: ledger(), term: term(by), below: TICK + 1, after: None }
        }
        Question::Acquire { generation, owner: by } => Request::Acquire {
            resource: slot(generation),
            owner: owner(by),
            ttl: FOR_EVER,
            propose: TOKEN,
            tolerance: FOR_EVER,
            keep: FOR_EVER,
            ticket: None,
        },
        Question::Extend { generation, owner: by } => Request::Extend {
            resource: slot(generation),
            owner: owner(by),
            ttl: FOR_EVER,
            token: TOKEN,
            keep: FOR_EVER,
        },
        Question::Count { generation, owner: by, back } => Request::Count {
            resource: slot(generation),
            owner: owner(by),
            attempts: 1,
            payload: None,
            back,
            keep: FOR_EVER,
        },
        Question::Complete { generation, owner: by, void } => {
            let result = Arc::clone(&RESULTS[usize::from(void)]);
            let record = DoneRecord { token: TOKEN, result, ..DoneRecord::default() };
            Request::Complete { resource: slot(generation), owner: owner(by), record, retention: FOR_EVER }
        }
        Question::Inspect { generation } => Request::Inspect { resource: slot(generation) },
    }
}

fn said(reply: &Reply) -> Said {
    match reply {
        Reply::Ledger(_) => Said::Ledger,
        Reply::Written => Said::Written,
        Reply::Standing(record) => Said::Standing(Mark::of_record(record)),
        Reply::Granted { begun, .. } => {
            Said::Granted { counted: begun.as_ref().is_some_and(|begun| begun.attempts > 0) }
        }
        Reply::Counted => Said::Counted,
        Reply::Refused(Refusal::Superseded) => Said::Superseded,
        Reply::Done(done) => Said::Done { void: &*done.result == "void" },
        Reply::State { .. } => Said::State,
        Reply::Extended | Reply::Completed | Reply::Pruned { .. } => Said::Agreed,
        _ => Said::Refused,
    }
}

/// A node's store.
struct Disk {
    core: Core,
    finals: bool,
}

impl Disk {
    fn slot(&mut self, resource: &Resource) -> &mut Slot {
        let at = SLOTS.iter().position(|slot| slot == resource);
        &mut self.core.slots[at.unwrap_or_else(|| unreachable!("{resource} is no slot"))]
    }

    fn slot_of(&self, resource: &Resource) -> Slot {
        let at = SLOTS.iter().position(|slot| slot == resource);
        self.core.slots[at.unwrap_or_else(|| unreachable!("{resource} is no slot"))]
    }
}

impl Store for Disk {
    type Error = Infallible;

    fn lease(&self, resource: &Resource) -> Result<Option<LeaseRow>, Infallible> {
        let by = self.slot_of(resource).owner;
        let row =
            || LeaseRow { owner: owner(by).as_str().into(), until_nanos: u64::MAX, readers: Vec::new() };
        Ok((by > 0).then(row))
    }

    fn set_lease(&mut self, resource: &Resource, row: Option<LeaseRow>) -> Result<(), Infallible> {
        self.slot(resource).owner = row.map_or(0, |row| row.owner.as_bytes()[0] - b'0');
        Ok(())
    }

    fn queue(&self, _: &Resource) -> Result<Option<QueueRow>, Infallible> {
        Ok(None)
    }

    fn set_queue(&mut self, _: &Resource, _: Option<QueueRow>) -> Result<(), Infallible> {
        Ok(())
    }

    fn counter(&self, _: &Resource) -> Result<Option<CounterRow>, Infallible> {
        // One below: each grant has the same token.
        let count = FencingToken::new(TOKEN.get() - 1);
        Ok(Some(CounterRow { count, until_micros: u64::MAX }))
    }

    fn set_counter(&mut self, _: &Resource, _: CounterRow) -> Result<(), Infallible> {
        Ok(())
    }

    fn claim(&self, resource: &Resource) -> Result<Option<ClaimRow>, Infallible> {
        let done = |void: bool| {
            let result = Arc::clone(&RESULTS[usize::from(void)]);
            ClaimRecord::Done(DoneRecord { token: TOKEN, result, ..DoneRecord::default() })
        };
        let record = match self.slot_of(resource).row {
            Row::None => return Ok(None),
            Row::Counted => ClaimRecord::Begun(Begun { attempts: 1, payload: None }),
            Row::Done => done(false),
            Row::Void => done(true),
        };
        Ok(Some(ClaimRow { record, until_micros: u64::MAX }))
    }

    fn set_claim(&mut self, resource: &Resource, row: Option<ClaimRow>) -> Result<(), Infallible> {
        self.slot(resource).row = match row.map(|row| row.record) {
            Some(ClaimRecord::Begun(begun)) if begun.attempts > 0 => Row::Counted,
            Some(ClaimRecord::Begun(_)) | None => Row::None,
            Some(ClaimRecord::Done(done)) if &*done.result == "void" => Row::Void,
            Some(ClaimRecord::Done(_)) => Row::Done,
        };
        Ok(())
    }

    fn ledger(&self, _: &str) -> Result<LedgerState, Infallible> {
        let record = self.core.mark.record(self.finals);
        let records = record.map(|record| (Arc::clone(&KEY), record)).into_iter().collect();
        let term = FencingToken::new(self.core.term.into());
        Ok(LedgerState { term, low_water: self.core.low_water(), records })
    }

    fn set_ledger(&mut self, _: &str, state: LedgerState) -> Result<(), Infallible> {
        self.core.term = u8::try_from(state.term.get()).unwrap_or(u8::MAX);
        self.core.pruned = state.low_water > TICK;
        self.core.mark = state.records.first().map_or(Mark::NONE, |(_, record)| Mark::of_record(record));
        Ok(())
    }

    fn marker(&self) -> Result<Option<Arc<str>>, Infallible> {
        Ok(Some(Arc::clone(&MARK)))
    }

    fn set_marker(&mut self, _: Arc<str>) -> Result<(), Infallible> {
        Ok(())
    }
}
