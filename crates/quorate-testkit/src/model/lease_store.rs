//! The part of a model node's store that has the data of one resource. The shipped engine runs on it.

use super::{
    NODES,
    store::{ModelStore, run},
};
use quorate::node::{
    FencingToken, NodeTime, Owner, Reply, Request, Resource,
    engine::{Clocks, CounterRow, LeaseRow},
};
use quorate::{
    env::BootTime,
    internals::{Answer, NodeEpoch, Tally, Vote},
};
use std::sync::LazyLock;

/// The number of owner tokens.
pub const OWNERS: usize = 8;

static SIGNED: LazyLock<[Owner; OWNERS]> =
    LazyLock::new(|| std::array::from_fn(|owner| Owner::from_node(&format!("{owner}"))));
static LOCK: LazyLock<Resource> =
    LazyLock::new(|| Resource::lock("r").unwrap_or_else(|error| unreachable!("{error}")));

/// Returns the resource that all attempts compete for.
pub fn resource() -> Resource {
    LOCK.clone()
}

/// Returns the owner token with this number.
pub fn owner(number: u8) -> Owner {
    SIGNED[usize::from(number)].clone()
}

/// One resource on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LeaseStore {
    /// The number of the holder's owner token, and the end of its lease on the clock that times leases.
    pub lease: Option<(u8, u32)>,
    /// The fencing counter, and the time from which the node may forget it.
    pub counter: Option<(u32, u32)>,
}

/// Packs a number into 32 bits. A number that does not fit becomes the largest one.
pub fn pack(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn unpack(number: u32) -> u64 {
    if number == u32::MAX { u64::MAX } else { number.into() }
}

impl LeaseStore {
    /// Runs `request` on the shipped engine. In the store, the marker is always the expected one, because the
    /// model itself decides whether a node may vote.
    pub fn ask(&mut self, request: Request, clocks: Clocks, not_after: NodeTime) -> Reply {
        run(self, request, clocks, not_after)
    }
}

impl ModelStore for LeaseStore {
    fn lease(&self, _: &Resource) -> Option<LeaseRow> {
        let row = |(number, until)| LeaseRow {
            owner: owner(number).as_str().into(),
            until_nanos: unpack(until),
            readers: Vec::new(),
        };
        self.lease.map(row)
    }

    fn set_lease(&mut self, _: &Resource, row: Option<LeaseRow>) {
        self.lease = row.map(|row| (row.owner.as_bytes()[0] - b'0', pack(row.until_nanos)));
    }

    fn counter(&self, _: &Resource) -> Option<CounterRow> {
        let row = |(count, until): (u32, u32)| CounterRow {
            count: FencingToken::new(count.into()),
            until_micros: unpack(until),
        };
        self.counter.map(row)
    }

    fn set_counter(&mut self, _: &Resource, row: CounterRow) {
        self.counter = Some((pack(row.count.get()), pack(row.until_micros)));
    }
}

/// Returns the shipped tally with these grants as its votes. A grant has the counter, the time at which the
/// node's memory began, the time from which the node votes (both in microseconds), and the time when the
/// request was sent.
pub fn tally(grants: [Option<(u32, [u32; 2], u32)>; NODES]) -> Tally {
    let mut tally = Tally::new(NODES);
    for (node, grant) in grants.into_iter().enumerate() {
        if let Some((counter, [since, votes_from], sent)) = grant {
            tally.count(&Vote {
                node,
                ticket: 0,
                requests: 1,
                sent: Some(BootTime::from_nanos(sent.into())),
                memory: NodeEpoch {
                    epoch: 0,
                    session: 0,
                    since: NodeTime::from_micros(since.into()),
                    votes_from: NodeTime::from_micros(votes_from.into()),
                    ..NodeEpoch::default()
                },
                answer: Answer::Reply(Reply::Granted {
                    counter: FencingToken::new(counter.into()),
                    begun: None,
                }),
            });
        }
    }
    tally
}
