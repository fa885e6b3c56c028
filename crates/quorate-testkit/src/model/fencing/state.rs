use super::bounds::ATTEMPTS;
use crate::model::{NODES, Name, shelf::Shelf};

/// Where the nodes and the attempts stand.
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

/// One node, what is under way to and from it, and what each attempt has heard of it. Kept together so that
/// sorting the nodes makes one state of all that differ only in which node is which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Site {
    pub(super) shelf: Shelf,
    /// By how many steps its wall clock is ahead.
    pub(super) ahead: u8,
    /// When its memory began, by its own clock in microseconds.
    pub(super) since: u32,
    /// From when on it votes.
    pub(super) votes_from: u32,
    pub(super) saved: Option<Shelf>,
    pub(super) lines: [Line; ATTEMPTS],
    pub(super) name: Name,
}

/// Between one attempt and one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Line {
    /// An acquire that may yet run.
    pub(super) acquire: bool,
    /// A raise that may run, and run again.
    pub(super) raise: bool,
    /// Grants on their way back; empty ones are zero.
    pub(super) grants: [Grant; 2],
    /// A raise was done and its reply is on its way.
    pub(super) raised: bool,
    /// What has arrived.
    pub(super) vote: Grant,
}

/// A counter, and since when the memory lasts that it came from, and votes. Zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Grant {
    pub(super) counter: u32,
    pub(super) since: u32,
    pub(super) votes_from: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Attempt {
    pub(super) phase: Phase,
    /// What its worker's clock shows for a counter that is missing.
    pub(super) propose: u32,
    /// Its token, or what is to be.
    pub(super) token: u32,
    /// The largest token that had been given when it began.
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
