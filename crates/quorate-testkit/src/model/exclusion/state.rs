//! The state of the model of exclusion. An *attempt* is one try of a worker to acquire the lease.

use super::bounds::ATTEMPTS;
use crate::model::{NODES, Name};

/// The state of nodes and attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) sites: [Site; NODES],
    pub(super) phases: [Phase; ATTEMPTS],
    pub(super) extensions: u8,
    pub(super) doubles: u8,
    pub(super) forgets: u8,
}

/// One node, the messages to and from it, and each attempt's votes from it. Ages are in steps since the
/// request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Site {
    /// The number of the key's holder, and the remaining steps of its lease.
    pub(super) key: Option<(u8, u8)>,
    /// The number of steps until the node votes again.
    pub(super) quarantine: u8,
    pub(super) forgot: bool,
    pub(super) lines: [Line; ATTEMPTS],
    pub(super) name: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Line {
    /// True if the attempt has not sent any message to the node.
    pub(super) spared: bool,
    pub(super) acquire: Option<u8>,
    pub(super) extend: Option<u8>,
    pub(super) release: bool,
    /// The age of the acquire or the extension whose reply is in flight.
    pub(super) reply: Option<u8>,
    /// The age of the attempt's newest request that this node has granted, if the grant has arrived.
    pub(super) vote: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) enum Phase {
    #[default]
    Idle,
    Acquiring,
    /// The attempt believes in its lease for the given number of further steps.
    Held(u8),
    /// The attempt held the lease, and the lease is over.
    Ended,
    /// The attempt ended without the lease.
    Lost,
}
