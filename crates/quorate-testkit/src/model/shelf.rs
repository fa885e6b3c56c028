//! The part of a model node's store that holds one resource, for the shipped engine to work on.

use super::NODES;
use quorate::node::{
    Batch, FencingToken, LedgerState, NodeTime, Owner, Reply, Request, Resource,
    engine::{self, ClaimRow, Clocks, CounterRow, LeaseRow, QueueRow, Store},
};
use quorate::{
    env::BootTime,
    internals::{Answer, NodeEpoch, Tally, Vote},
};
use std::{
    convert::Infallible,
    sync::{Arc, LazyLock},
};

/// The number of owner tokens.
pub const OWNERS: usize = 8;

static SIGNED: LazyLock<[Owner; OWNERS]> =
    LazyLock::new(|| std::array::from_fn(|owner| Owner::from_node(&format!("{owner}"))));
static MARK: LazyLock<Arc<str>> = LazyLock::new(|| "marked".into());
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
pub struct Shelf {
    /// The number of the holder's owner token, and the end of its lease on the clock that times leases.
    pub lease: Option<(u8, u32)>,
    /// The fencing counter, and the time from which the node may forget it.
    pub counter: Option<(u32, u32)>,
}

/// Packs a number. A number that is too large becomes the end of time.
pub fn pack(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn unpack(number: u32) -> u64 {
    if number == u32::MAX { u64::MAX } else { number.into() }
}

impl Shelf {
    /// Runs `request` on the shipped engine. The marker is always stored: the model decides whether a node
    /// may vote.
    pub fn ask(&mut self, request: Request, clocks: Clocks, not_after: NodeTime) -> Reply {
        let batch = Batch { requests: vec![request], not_after, stamp: Arc::clone(&MARK) };
        let reply = engine::run(self, &batch, clocks);
        reply.replies.into_iter().next().unwrap_or_else(|| unreachable!("one request has one reply"))
    }
}

impl Store for Shelf {
    type Error = Infallible;

    fn lease(&self, _: &Resource) -> Result<Option<LeaseRow>, Infallible> {
        let row = |(number, until)| LeaseRow {
            owner: owner(number).as_str().into(),
            until_nanos: unpack(until),
            readers: Vec::new(),
        };
        Ok(self.lease.map(row))
    }

    fn set_lease(&mut self, _: &Resource, row: Option<LeaseRow>) -> Result<(), Infallible> {
        self.lease = row.map(|row| (row.owner.as_bytes()[0] - b'0', pack(row.until_nanos)));
        Ok(())
    }

    fn queue(&self, _: &Resource) -> Result<Option<QueueRow>, Infallible> {
        Ok(None)
    }

    fn set_queue(&mut self, _: &Resource, _: Option<QueueRow>) -> Result<(), Infallible> {
        Ok(())
    }

    fn counter(&self, _: &Resource) -> Result<Option<CounterRow>, Infallible> {
        let row = |(count, until): (u32, u32)| CounterRow {
            count: FencingToken::new(count.into()),
            until_micros: unpack(until),
        };
        Ok(self.counter.map(row))
    }

    fn set_counter(&mut self, _: &Resource, row: CounterRow) -> Result<(), Infallible> {
        self.counter = Some((pack(row.count.get()), pack(row.until_micros)));
        Ok(())
    }

    fn claim(&self, _: &Resource) -> Result<Option<ClaimRow>, Infallible> {
        Ok(None)
    }

    fn set_claim(&mut self, _: &Resource, _: Option<ClaimRow>) -> Result<(), Infallible> {
        Ok(())
    }

    fn ledger(&self, _: &str) -> Result<LedgerState, Infallible> {
        Ok(LedgerState::default())
    }

    fn set_ledger(&mut self, _: &str, _: LedgerState) -> Result<(), Infallible> {
        Ok(())
    }

    fn marker(&self) -> Result<Option<Arc<str>>, Infallible> {
        Ok(Some(Arc::clone(&MARK)))
    }

    fn set_marker(&mut self, _: Arc<str>) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Returns the shipped tally of these grants. A grant has the counter; the time when the node's memory
/// began and the time from which it votes, in microseconds; and the time when the request was sent.
pub fn tally(grants: [Option<(u32, [u32; 2], u32)>; NODES]) -> Tally {
    let mut tally = Tally::new(NODES);
    for (node, grant) in grants.into_iter().enumerate() {
        if let Some((counter, [since, votes_from], sent)) = grant {
            tally.count(&Vote {
                node,
                ticket: 0,
                sent: Some(BootTime::from_nanos(sent.into())),
                memory: NodeEpoch {
                    epoch: 0,
                    session: 0,
                    since: NodeTime::from_micros(since.into()),
                    votes_from: NodeTime::from_micros(votes_from.into()),
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
