use super::bounds::ATTEMPTS;
use crate::model::{NODES, Name};

/// Where nodes and attempts stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) sites: [Site; NODES],
    pub(super) phases: [Phase; ATTEMPTS],
    pub(super) extensions: u8,
    pub(super) doubles: u8,
    pub(super) forgets: u8,
}

/// One node, what is under way to and from it, and what each attempt has of it. Ages are in steps since
/// the request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Site {
    /// Who has the key, and for how many steps yet.
    pub(super) key: Option<(u8, u8)>,
    /// How many steps yet it does not vote.
    pub(super) quarantine: u8,
    pub(super) forgot: bool,
    pub(super) lines: [Line; ATTEMPTS],
    pub(super) name: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Line {
    pub(super) acquire: Option<u8>,
    pub(super) extend: Option<u8>,
    pub(super) release: bool,
    /// A grant, or an extension done, on its way.
    pub(super) reply: Option<u8>,
    /// What has arrived: the latest request that the node granted.
    pub(super) vote: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) enum Phase {
    #[default]
    Idle,
    Acquiring,
    /// Believed for so many steps yet.
    Held(u8),
    /// Was held, and is over.
    Ended,
    /// Was never held.
    Lost,
}
