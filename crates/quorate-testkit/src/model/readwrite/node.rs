//! The key of one node, on which the shipped engine runs. This module also simulates nodes that violate one
//! of the rules.

use super::{AGENTS, Rule};
use crate::model::{
    lease_store::{owner, resource},
    store::{ModelStore, run},
};
use quorate::node::{
    FencingToken, NodeTime, Owner, Reply, Request, Resource,
    engine::{Clocks, CounterRow, LeaseRow, ReaderRow},
};
use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

/// The number of owner tokens. Each agent has two: one of its own, and one for the reader that it becomes after
/// a downgrade.
const TOKENS: usize = AGENTS * 2;
/// The number of requests that an agent may have in flight to one node.
pub(super) const REQUESTS: usize = What::ALL.len();

static NAMES: LazyLock<[Arc<str>; TOKENS]> =
    LazyLock::new(|| std::array::from_fn(|token| owner(token as u8).as_str().into()));

/// The node's present time in every call of the engine. The ends of leases are stored relative to it.
const NOW: u64 = 1000;

/// A request of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The agent asks to write or to read.
    Acquire,
    /// The agent extends its lease.
    Extend,
    /// The agent, a writer, asks for the downgrade that makes it a reader.
    Downgrade,
    /// The agent extends the lease of the reader that it has become.
    ExtendTurned,
}

impl What {
    /// All requests, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Acquire, Self::Extend, Self::Downgrade, Self::ExtendTurned];
}

/// The store of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Key {
    holder: Holder,
    /// The fencing counter. It is zero in a model without downgrades, which needs no counter.
    pub(super) count: u8,
}

/// The holder of the key, and the remaining steps of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
enum Holder {
    #[default]
    Free,
    Alone(u8, u8),
    /// The remaining steps of each reader's lease, by token. Zero means that the token has no lease.
    Read([u8; TOKENS]),
}

impl Key {
    /// Returns a key without a holder. It has a fencing counter if `counts` is true.
    pub(super) fn counting(counts: bool) -> Self {
        Self { holder: Holder::Free, count: u8::from(counts) }
    }

    /// Runs an agent's request. Returns `true` if the node grants it.
    pub(super) fn asked(
        &mut self,
        agent: usize,
        what: What,
        reads: bool,
        ttl: u8,
        token: u8,
        without: Option<Rule>,
    ) -> bool {
        let (me, turned) = (owner(agent as u8), owner((agent + AGENTS) as u8));
        let (resource, ttl) = (resource(), Duration::from_nanos(ttl.into()));
        let keep = Duration::from_secs(1 << 30);
        let (as_reader, looks) = match what {
            What::Acquire if reads => (true, Rule::ReaderLooks),
            What::Acquire => (false, Rule::WriterLooks),
            What::Extend | What::ExtendTurned => (reads || what == What::ExtendTurned, Rule::RepairLooks),
            What::Downgrade => (true, Rule::DowngradeByOwner),
        };
        let others = match self.holder {
            Holder::Alone(..) => as_reader,
            Holder::Read(_) => !as_reader,
            Holder::Free => false,
        };
        let blind = without == Some(looks) && others && (looks != Rule::RepairLooks || as_reader);
        if blind && what != What::Downgrade {
            self.holder = Holder::Free;
        }
        let free = self.holder == Holder::Free;
        let by = if without == Some(Rule::DowngradeByToken) { u8::MAX } else { token };
        let (by, token) = (FencingToken::new(by.into()), FencingToken::new(token.max(1).into()));
        let request = match (what, as_reader) {
            (What::Downgrade, _) if free && without == Some(Rule::DowngradeByOwner) => {
                Request::Share { resource, owner: turned, ttl, ticket: None }
            }
            (What::Downgrade, _) => {
                Request::Downgrade { resource, owner: me, token: by, reader: turned, ttl }
            }
            (What::Acquire, true) => Request::Share { resource, owner: me, ttl, ticket: None },
            (What::Acquire, false) => Request::Acquire {
                resource,
                owner: me,
                ttl,
                propose: FencingToken::new(NOW),
                tolerance: Duration::ZERO,
                keep,
                ticket: None,
            },
            (What::Extend, false) => Request::Extend { resource, owner: me, ttl, token, keep },
            (What::Extend, true) => Request::ExtendShare { resource, owner: me, ttl },
            (What::ExtendTurned, _) => Request::ExtendShare { resource, owner: turned, ttl },
        };
        matches!(self.ask(request), Reply::Granted { .. } | Reply::Shared | Reply::Extended)
    }

    /// Removes everything that the agent holds: its lease as a reader, its lease as a writer, or the lease of
    /// the reader that it became.
    pub(super) fn released(&mut self, agent: usize, reads: bool, without: Option<Rule>) {
        if without == Some(Rule::ReleasesItself) && reads && matches!(self.holder, Holder::Read(_)) {
            self.holder = Holder::Free;
        }
        let own = |token: usize| (resource(), owner(token as u8));
        let requests = if reads {
            let (resource, owner) = own(agent);
            vec![Request::ReleaseShare { resource, owner }]
        } else {
            let ((resource, owner), (same, turned)) = (own(agent), own(agent + AGENTS));
            vec![
                Request::Release { resource, owner },
                Request::ReleaseShare { resource: same, owner: turned },
            ]
        };
        for request in requests {
            self.ask(request);
        }
    }

    /// Subtracts a step from all remaining times.
    pub(super) fn step(&mut self) {
        self.holder = match self.holder {
            Holder::Alone(who, left) if left > 1 => Holder::Alone(who, left - 1),
            Holder::Read(left) if left.iter().any(|left| *left > 1) => {
                Holder::Read(left.map(|left| left.saturating_sub(1)))
            }
            _ => Holder::Free,
        };
    }

    /// Runs *raise*. Returns `true` if the agent is still the owner of the key.
    pub(super) fn raised(&mut self, agent: usize, token: u8) -> bool {
        let mine = matches!(self.holder, Holder::Alone(who, _) if usize::from(who) == agent);
        if mine {
            self.count = token;
        }
        mine
    }

    /// Runs `request` on the shipped engine. The expected marker is always stored, because the model itself
    /// decides whether a node may vote.
    fn ask(&mut self, request: Request) -> Reply {
        let clocks = Clocks { wall: NodeTime::from_micros(NOW), lease_nanos: NOW };
        run(self, request, clocks, NodeTime::from_micros(u64::MAX))
    }
}

fn token_of(name: &str) -> usize {
    NAMES.iter().position(|token| **token == *name).unwrap_or_else(|| unreachable!("{name} is no token"))
}

impl ModelStore for Key {
    fn lease(&self, _: &Resource) -> Option<LeaseRow> {
        let until = |left: u8| NOW + u64::from(left);
        match &self.holder {
            Holder::Free => None,
            Holder::Alone(who, left) => Some(LeaseRow {
                owner: Arc::clone(&NAMES[usize::from(*who)]),
                until_nanos: until(*left),
                readers: Vec::new(),
            }),
            Holder::Read(readers) => {
                let row = |(name, left): (&Arc<str>, &u8)| ReaderRow {
                    owner: Arc::clone(name),
                    until_nanos: until(*left),
                };
                let live = NAMES.iter().zip(readers).filter(|(_, left)| **left > 0);
                let last = readers.iter().max().copied().unwrap_or_default();
                Some(LeaseRow {
                    owner: Owner::READERS.into(),
                    until_nanos: until(last),
                    readers: live.map(row).collect(),
                })
            }
        }
    }

    fn set_lease(&mut self, _: &Resource, row: Option<LeaseRow>) {
        let left = |until: u64| (until - NOW) as u8;
        self.holder = match row {
            None => Holder::Free,
            Some(row) if row.is_read() => {
                let mut readers = [0; TOKENS];
                row.readers.iter().for_each(|r| readers[token_of(&r.owner)] = left(r.until_nanos));
                Holder::Read(readers)
            }
            Some(row) => Holder::Alone(token_of(&row.owner) as u8, left(row.until_nanos)),
        };
    }

    fn counter(&self, _: &Resource) -> Option<CounterRow> {
        let count = FencingToken::new(self.count.max(1).into());
        Some(CounterRow { count, until_micros: u64::MAX })
    }

    fn set_counter(&mut self, _: &Resource, row: CounterRow) {
        if self.count > 0 {
            self.count = row.count.get() as u8;
        }
    }
}
