use crate::{config::SettingMismatch, trust::MarkerError};
use std::{fmt, sync::Arc, time::Duration};

/// The reason why a node must not vote. The text of each reason says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VoteRejection {
    /// The node is a replica of another server.
    #[error("it is a replica; name its master, or run it as a server of its own (REPLICAOF NO ONE)")]
    Replica,
    /// The node may evict a held lease under memory pressure.
    #[error(
        "its maxmemory-policy is {0}, which may evict a held lease; set maxmemory-policy to noeviction on the node"
    )]
    Evicts(Arc<str>),
    /// The node did not report its eviction policy.
    #[error("it did not report its maxmemory-policy; allow the user INFO on the node")]
    EvictionUnknown,
    /// The node's marker names another node set.
    #[error(
        "its marker names the node set [{theirs}], this worker's is [{ours}]; two lists could elect two leaders: \
         give every worker the same list (if the set is really to change: `quorate nodes replace`)"
    )]
    OtherNodeSet {
        /// The marker's node set.
        theirs: Arc<str>,
        /// This worker's node set.
        ours: Arc<str>,
    },
    /// The node's set is being replaced, or it has been replaced and the node is not in the new set. In both
    /// cases, the node must not vote.
    #[error("{}", replaced(.from, .to, .ours))]
    Replaced {
        /// The old node set.
        from: Arc<str>,
        /// The new node set.
        to: Arc<str>,
        /// This worker's node set.
        ours: Arc<str>,
    },
    /// The node's marker names another value of a [shared setting](crate::quorum::SharedSettings).
    #[error(
        "its marker says {} {}, this worker's is {}; the safety of every worker depends on it: give every worker the \
         same {} (to change it for all, stop every worker and delete each node's marker, on Redis the key quorate:node, \
         or PREFIX and then node)", .0.field, .0.theirs, .0.ours, .0.field
    )]
    OtherSetting(SettingMismatch),
    /// The node has no marker, and this worker has reached too few nodes to write a first marker.
    #[error(
        "it has no marker, and this worker has reached {met} of the {needed} nodes that it must reach before it writes \
         one (a marker with a wrong node list would keep other workers out); start the other nodes, or correct the list"
    )]
    TooFewMet {
        /// The number of nodes that this worker has reached.
        met: usize,
        /// The number of nodes that this worker must reach.
        needed: usize,
    },
    /// The node has no marker, and another node's marker names another node list or other shared settings.
    #[error("it has no marker, and this worker may not write one while {by} contradicts it: {why}")]
    Contradicted {
        /// The other node.
        by: Arc<str>,
        /// The difference to this worker.
        why: Arc<VoteRejection>,
    },
    /// The text that the node stores in place of its marker cannot be read.
    #[error(
        "its marker {0}; another program, or another version of Quorate, uses this prefix: stop it and delete the \
         marker on each node (on Redis the key quorate:node, or PREFIX and then node), or choose another prefix"
    )]
    MarkerUnreadable(MarkerError),
    /// The node has no marker, and this worker is read-only.
    #[error(
        "it has no marker: no worker has used it under this prefix yet, or it was flushed; the first worker waits \
         max_ttl for it (four times max_clock_offset at least), unless `quorate nodes trust` says that it is new"
    )]
    Unmarked,
    /// The node may have lost leases, no worker has written a marker since, and this worker is read-only.
    #[error(
        "it {0}, and no worker has connected to it since, so it waits max_ttl (four times max_clock_offset at least) before it votes"
    )]
    Unmet(QuarantineReason),
    /// The node restarted with its data, and this worker has reached too few nodes to see whether the data is the
    /// latest.
    #[error(
        "it restarted, and this worker has reached {met} of the {needed} nodes that it must ask whether the data is the \
         latest; start the other nodes, or correct the list"
    )]
    Uncompared {
        /// The number of nodes that this worker has reached.
        met: usize,
        /// The number of nodes that this worker must reach.
        needed: usize,
    },
    /// Another name in the list belongs to the same server.
    #[error("it and {0} are one server (one run id), so neither has a vote; name each server once")]
    Twin(Arc<str>),
    /// The node may have lost a lease that is still held.
    #[error(
        "it {reason}, so it votes in {remaining:.1?} at the earliest; wait for that; only for a brand-new cluster: \
         `quorate nodes trust` (in use, it could make two leaders)"
    )]
    Quarantined {
        /// The reason for the quarantine.
        reason: QuarantineReason,
        /// The time that was left of the quarantine when this value was created.
        remaining: Duration,
    },
    /// The node answers, but refuses what leases need. Contains the node's error and the fix.
    #[error("it refuses what a lease needs: {0}")]
    Unable(Arc<str>),
    /// The node's clock and this worker's clock differ so much that this worker cannot start a fencing counter
    /// on the node.
    #[error(
        "its clock and this worker's are {apart:.1?} apart; set both by NTP, or raise max_clock_offset on every worker"
    )]
    Clock {
        /// The difference between the two clocks.
        apart: Duration,
    },
}

impl VoteRejection {
    /// Returns whether only an operator can remove the reason.
    pub fn is_permanent(&self) -> bool {
        if let Self::Replaced { to, ours, .. } = self {
            return to != ours; // A worker with the new list waits for the end of the change.
        }
        // A node whose own marker differs needs an operator. A node without a marker may get one without an
        // operator, once more nodes are reached.
        !matches!(
            self,
            Self::Quarantined { .. }
                | Self::Clock { .. }
                | Self::Unable(_)
                | Self::Contradicted { .. }
                | Self::TooFewMet { .. }
                | Self::Unmarked
                | Self::Unmet(_)
                | Self::Uncompared { .. }
        )
    }
}

fn replaced(from: &str, to: &str, ours: &str) -> String {
    if to == ours {
        return format!(
            "the node set [{from}] is being replaced by this worker's, [{to}]; wait until that is done (if it was \
             interrupted, run `quorate nodes replace` again)"
        );
    }
    format!(
        "the node set [{from}] was replaced by [{to}], and this worker's is [{ours}]; give this worker the new list and \
         start it again"
    )
}

/// The reason for a quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuarantineReason {
    /// The node has no marker. It may be new, or it may have been flushed and have lost leases.
    Unmarked,
    /// The node's run id differs from the run id in its marker. So the node restarted, and may have lost its
    /// memory.
    Restarted,
    /// The node's data came from another server, or from a copy of its directory. So it may be older than what the node
    /// had before.
    Copied,
    /// The node's data is older than what another node or this worker has seen of it. For instance, it was restored from
    /// a backup.
    RolledBack,
    /// The node's marker contains the end of the quarantine, because this or another worker began the
    /// quarantine earlier.
    Marked,
    /// The node's clock stepped against this worker's clock, so leases on the node may have ended early.
    Jumped,
}

impl fmt::Display for QuarantineReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unmarked => "is new or was flushed",
            Self::Restarted => "restarted and may have lost leases",
            Self::Copied => {
                "has data that was copied from another server or directory, which may be older than its own was"
            }
            Self::RolledBack => {
                "has older data than another node or this worker has seen of it (was it restored from a backup?), so it lost leases"
            }
            Self::Marked => "was new, restarted, was flushed, was restored or had its clock set a short time ago",
            Self::Jumped => {
                "has a clock that stepped ahead of this worker's (or this worker's clock stood still)"
            }
        })
    }
}
