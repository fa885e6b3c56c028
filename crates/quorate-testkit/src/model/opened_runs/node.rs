//! One node's slots, on which the shipped engine runs.
//!
//! The engine is a pure function, and a search asks for the same replies again and again. The replies are
//! therefore cached, by the node's state and the request.

use super::record::GENERATIONS;
use crate::model::{
    lease_store::owner,
    store::{ModelStore, run},
};
use quorate::node::{
    AttemptCount, DoneRecord, FencingToken, NodeTime, Refusal, Reply, Request, Resource,
    engine::{ClaimRecord, ClaimRow, Clocks, CounterRow, LeaseRow},
};
use std::{
    cell::RefCell,
    sync::{Arc, LazyLock},
    time::Duration,
};

/// Times in microseconds: the node's wall clock before the first horizon has passed, and the time from one
/// horizon to the next.
const NOW: u64 = 200;
const BETWEEN: u64 = 100;
/// The fencing token of every grant. All grants have the same token, because the model does not cover fencing
/// tokens.
const TOKEN: FencingToken = FencingToken::new(7);
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

static RESULTS: LazyLock<[Arc<str>; 2]> = LazyLock::new(|| ["done".into(), "void".into()]);
static SLOTS: LazyLock<[Resource; GENERATIONS]> = LazyLock::new(|| {
    let claim = |generation| Resource::claim("slot", &format!("job/tick/{generation}"));
    std::array::from_fn(|at| claim(at + 1).unwrap_or_else(|error| unreachable!("{error}")))
});

/// The record of a slot on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) enum Row {
    #[default]
    None,
    /// One attempt has been counted.
    Counted,
    /// The owner of the slot, a worker, has ended the run.
    Done,
    /// The owner of the slot, a leader, has ended the run, and the run had not started.
    Void,
}

/// The slot of one generation on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Slot {
    /// The number of the claim's holder, from one. It is 0 if the claim is free.
    pub(super) owner: u8,
    pub(super) row: Row,
}

/// The data in a node's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Core {
    /// The number of generations whose horizons have passed on this node.
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
}

/// A request in packed form. Owners and generations are small numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Question {
    Acquire { generation: u8, owner: u8 },
    Extend { generation: u8, owner: u8 },
    Count { generation: u8, owner: u8, withdraw: bool },
    Complete { generation: u8, owner: u8, void: bool },
    Inspect { generation: u8 },
}

/// The part of a reply that the model needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeReply {
    Granted {
        counted: bool,
    },
    Counted,
    Superseded,
    Done {
        void: bool,
    },
    /// The reply to an inspection. The caller reads the holder and the row from the node's [`Core`].
    State,
    /// The node has done what was requested: extended or completed.
    Agreed,
    Refused,
}

/// Runs `question` on the shipped engine. If `horizon` is true, acquires and counts of a slot do not run after the
/// slot's horizon.
pub(super) fn ask(core: &mut Core, question: Question, horizon: bool) -> NodeReply {
    #[expect(clippy::disallowed_types, reason = "it is looked up, and never iterated")]
    type Known = std::collections::HashMap<(Core, Question, bool), (Core, NodeReply)>;
    thread_local! {
        static KNOWN: RefCell<Known> = RefCell::default();
    }
    let key = (*core, question, horizon);
    let known = KNOWN.with_borrow(|known| known.get(&key).copied());
    let (after, node_reply) = known.unwrap_or_else(|| {
        let served = serve(*core, question, horizon);
        KNOWN.with_borrow_mut(|known| known.insert(key, served));
        served
    });
    *core = after;
    node_reply
}

fn serve(core: Core, question: Question, horizon: bool) -> (Core, NodeReply) {
    let wall = NodeTime::from_micros(NOW + BETWEEN * u64::from(core.late));
    let not_after = match question {
        Question::Acquire { generation, .. } | Question::Count { generation, .. } if horizon => {
            NodeTime::from_micros(NOW + BETWEEN * u64::from(generation) - BETWEEN / 2)
        }
        _ => NodeTime::from_micros(u64::MAX),
    };
    let mut store = NodeStore(core);
    let reply = run(&mut store, request(question), Clocks { wall, lease_nanos: 0 }, not_after);
    (store.0, node_reply(&reply))
}

fn request(question: Question) -> Request {
    let slot = |generation: u8| SLOTS[usize::from(generation) - 1].clone();
    match question {
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
        Question::Count { generation, owner: by, withdraw } => Request::Count {
            resource: slot(generation),
            owner: owner(by),
            attempts: 1,
            payload: None,
            withdraw,
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

fn node_reply(reply: &Reply) -> NodeReply {
    match reply {
        Reply::Granted { begun, .. } => {
            NodeReply::Granted { counted: begun.as_ref().is_some_and(|begun| begun.attempts > 0) }
        }
        Reply::Counted => NodeReply::Counted,
        Reply::Refused(Refusal::Superseded) => NodeReply::Superseded,
        Reply::Done(done) => NodeReply::Done { void: &*done.result == "void" },
        Reply::State { .. } => NodeReply::State,
        Reply::Extended | Reply::Completed => NodeReply::Agreed,
        _ => NodeReply::Refused,
    }
}

/// The data of a node, as a store on which the engine runs.
struct NodeStore(Core);

impl NodeStore {
    fn slot(&mut self, resource: &Resource) -> &mut Slot {
        let at = SLOTS.iter().position(|slot| slot == resource);
        &mut self.0.slots[at.unwrap_or_else(|| unreachable!("{resource} is no slot"))]
    }

    fn slot_of(&self, resource: &Resource) -> Slot {
        let at = SLOTS.iter().position(|slot| slot == resource);
        self.0.slots[at.unwrap_or_else(|| unreachable!("{resource} is no slot"))]
    }
}

impl ModelStore for NodeStore {
    fn lease(&self, resource: &Resource) -> Option<LeaseRow> {
        let by = self.slot_of(resource).owner;
        let row =
            || LeaseRow { owner: owner(by).as_str().into(), until_nanos: u64::MAX, readers: Vec::new() };
        (by > 0).then(row)
    }

    fn set_lease(&mut self, resource: &Resource, row: Option<LeaseRow>) {
        self.slot(resource).owner = row.map_or(0, |row| row.owner.as_bytes()[0] - b'0');
    }

    fn counter(&self, _: &Resource) -> Option<CounterRow> {
        // The counter is one below the token, so that each grant has the same token.
        let count = FencingToken::new(TOKEN.get() - 1);
        Some(CounterRow { count, until_micros: u64::MAX })
    }

    fn claim(&self, resource: &Resource) -> Option<ClaimRow> {
        let done = |void: bool| {
            let result = Arc::clone(&RESULTS[usize::from(void)]);
            ClaimRecord::Done(DoneRecord { token: TOKEN, result, ..DoneRecord::default() })
        };
        let record = match self.slot_of(resource).row {
            Row::None => return None,
            Row::Counted => ClaimRecord::Begun(AttemptCount { attempts: 1, payload: None }),
            Row::Done => done(false),
            Row::Void => done(true),
        };
        Some(ClaimRow { record, until_micros: u64::MAX })
    }

    fn set_claim(&mut self, resource: &Resource, row: Option<ClaimRow>) {
        self.slot(resource).row = match row.map(|row| row.record) {
            Some(ClaimRecord::Begun(begun)) if begun.attempts > 0 => Row::Counted,
            Some(ClaimRecord::Begun(_)) | None => Row::None,
            Some(ClaimRecord::Done(done)) if &*done.result == "void" => Row::Void,
            Some(ClaimRecord::Done(_)) => Row::Done,
        };
    }
}
