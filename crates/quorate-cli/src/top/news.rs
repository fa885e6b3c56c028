//! The data that the poller reads from the nodes.

use super::sidecar::LeaseLine;
use quorate::env::{BootTime, WallTime};
use quorate_operator::state::Round;

/// News for the view.
#[derive(Debug)]
pub(super) enum News {
    /// The state of the group, with the details of the job that is open.
    Round(Box<Round>),
    /// The leases of a sidecar's clients, or the reason why they could not be read.
    Leases(Result<Vec<LeaseLine>, String>),
    /// The answer to an action.
    Answer(Result<String, String>),
}

/// A point in time, by both clocks of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) boot: BootTime,
    pub(super) wall: WallTime,
}

/// A value with the time at which it was read.
#[derive(Clone, Debug)]
pub(super) struct Dated<T> {
    pub(super) value: T,
    pub(super) read: Moment,
}
