//! The state of the model of fencing tokens. An *attempt* is one try of a worker to acquire the lease. Each
//! node has a *counter*, which grows with each grant.

use super::bounds::ATTEMPTS;
use crate::model::{NODES, Name, lease_store::LeaseStore};

/// The state of the nodes and the attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) sites: [Site; NODES],
    pub(super) attempts: [Attempt; ATTEMPTS],
    pub(super) begun: u8,
    pub(super) now: u8,
    pub(super) doubles: u8,
    pub(super) forgets: u8,
    pub(super) returns: u8,
}

/// One node, the messages to and from it, and the replies that each attempt has received from it. All these
/// are in one struct, so that the nodes can be sorted. States that differ only in the order of the nodes then
/// become equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Site {
    pub(super) store: LeaseStore,
    /// The number of steps by which the node's wall clock is ahead.
    pub(super) ahead: u8,
    /// The time when the node's memory began, by its own clock in microseconds.
    pub(super) since: u32,
    /// The time on the node's clock from which the node votes, in microseconds.
    pub(super) votes_from: u32,
    pub(super) saved: Option<LeaseStore>,
    /// True if plain commands have started the counter, which has no end then.
    pub(super) endless: bool,
    pub(super) lines: [Line; ATTEMPTS],
    pub(super) name: Name,
}

/// The messages between one attempt and one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Line {
    /// True if an acquire of the attempt may still run.
    pub(super) acquire: bool,
    /// True if a claim may be acquired by plain commands.
    pub(super) near: bool,
    /// True if an acquire by plain commands that was sent before the node forgot may still run.
    pub(super) stray: bool,
    /// True if a raise may run. It may then run any number of times.
    pub(super) raise: bool,
    /// The grants in flight to the attempt, in order. The counter of an empty entry is zero.
    pub(super) grants: [Grant; 2],
    /// True if a raise has run and its reply is in flight.
    pub(super) raised: bool,
    /// The grant that has arrived.
    pub(super) vote: Grant,
    /// True if the attempt's key on this node has certainly ended, because a request of another attempt did not find
    /// it.
    pub(super) lapsed: bool,
    /// The counter with which the node refused to set the attempt's key again. Zero if it did not refuse.
    pub(super) refused: u32,
    /// True if the node has extended the attempt's lease since any node refused to set its key again.
    pub(super) extended: bool,
    /// True if the node has extended the attempt's lease since an attempt with a larger token won.
    pub(super) kept: bool,
}

/// A grant, as its reply reports it: the counter, the time at which the node's memory began, and the time from
/// which the node voted. The counter zero means that there is no grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Grant {
    pub(super) counter: u32,
    pub(super) since: u32,
    pub(super) votes_from: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Attempt {
    pub(super) phase: Phase,
    /// The time on the worker's clock. The worker proposes it as the start of a missing counter.
    pub(super) propose: u32,
    /// The token, or the value that will become the token once a majority has been raised to it.
    pub(super) token: u32,
    /// True if no more than a minority of the keys had ended when the attempt won, so that its lease was valid.
    pub(super) valid: bool,
    /// True once a node has extended the attempt's lease because the attempt vouched for later grants.
    pub(super) vouched: bool,
    /// The largest token that had been given when the attempt began. The attempt must get a larger token.
    pub(super) floor: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) enum Phase {
    #[default]
    Idle,
    Acquiring,
    Raising,
    Won,
}
