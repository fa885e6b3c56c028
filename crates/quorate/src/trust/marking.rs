//! A marker that a driver writes to its node, and the decision on an operator's request to end a quarantine.

use crate::{
    env::BootTime,
    trust::{Marker, QuarantineReason, VoteRejection},
};

/// A marker that the driver must write, and what follows once the node has stored it.
#[derive(Clone, Debug)]
pub(crate) struct Marking {
    pub(crate) marker: Marker,
    pub(super) from: BootTime,
    pub(super) reason: QuarantineReason,
    /// True if an operator ends the node's quarantine by this marker. The reason for the quarantine does not
    /// matter.
    pub(super) ends_quarantine: bool,
}

impl Marking {
    /// Returns whether a new memory of the node begins with the marker.
    pub(crate) fn begins_memory(&self) -> bool {
        matches!(
            self.reason,
            QuarantineReason::Unmarked
                | QuarantineReason::Restarted
                | QuarantineReason::Copied
                | QuarantineReason::RolledBack
        )
    }
}

/// The decision on an operator's request to end a node's quarantine.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The node votes already.
    Trusted,
    /// The driver must write this marker, which ends the quarantine.
    Write(Marking),
    /// The node must not vote for another reason, which an operator must fix first.
    Refused(VoteRejection),
    /// The worker does not know yet whether the node may vote.
    Unknown,
}

/// Returns whether both markers describe the same memory of the node, so that its grants still count. That is
/// the case if no new memory began, and no worker has put the node in quarantine since.
pub(super) fn is_same_memory(known: &Marker, now: &Marker) -> bool {
    known.incarnation == now.incarnation && now.votes_from <= known.votes_from
}
