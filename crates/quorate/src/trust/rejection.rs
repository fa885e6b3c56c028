use crate::{config::SettingMismatch, trust::MarkerError};
use std::{fmt, sync::Arc, time::Duration};

/// Why a node has no vote. Each says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VoteRejection {
    /// It copies another server, so its memory is not its own.
    #[error("it is a replica; name its master, or run it as a server of its own (REPLICAOF NO ONE)")]
    Replica,
    /// It may evict a lease under memory pressure.
    #[error(
        "its maxmemory-policy is {0}, which may evict a held lease; set maxmemory-policy to noeviction on the node"
    )]
    Evicts(Arc<str>),
    /// It did not tell its eviction policy.
    #[error("it did not tell its maxmemory-policy; allow the user INFO on the node")]
    EvictionUnknown,
    /// Its marker names another node set.
    #[error(
        "its marker names the node set [{theirs}], this worker's is [{ours}]; two lists could elect two leaders: \
         give every worker the same list (if the set is really to change: `quorate nodes replace`)"
    )]
    OtherNodeSet {
        /// The marker's.
        theirs: Arc<str>,
        /// This worker's.
        ours: Arc<str>,
    },
    /// It is closed: its node set is being replaced, or has been and the node is not in the new one.
    #[error("{}", replaced(.from, .to, .ours))]
    Replaced {
        /// The old set.
        from: Arc<str>,
        /// The new set.
        to: Arc<str>,
        /// This worker's.
        ours: Arc<str>,
    },
    /// Its marker names another value of a [shared setting](super::SharedSettings).
    #[error(
        "its marker says {} {}, this worker's is {}; the safety of every worker depends on it: give every worker the \
         same {} (to change it for all, stop every worker and delete each node's marker, on Redis the key quorate:node, \
         or PREFIX and then node)", .0.field, .0.theirs, .0.ours, .0.field
    )]
    OtherSetting(SettingMismatch),
    /// It has no marker, and this worker has met too few of the other nodes to mark a new one.
    #[error(
        "it has no marker, and this worker has met {met} of the {needed} nodes that it must have met before it marks a \
         new one (a marker with a mistaken node list keeps other workers out); start the other nodes, or correct the list"
    )]
    TooFewMet {
        /// How many nodes of the list it has met.
        met: usize,
        /// How many it needs.
        needed: usize,
    },
    /// It has no marker, and another node's says that this worker is not set up as the others are.
    #[error("it has no marker, and this worker may not write one while {by} speaks against it: {why}")]
    Contradicted {
        /// The other node.
        by: Arc<str>,
        /// What its marker says.
        why: Arc<VoteRejection>,
    },
    /// Something that is no marker stands in its place.
    #[error(
        "its marker {0}; another program, or another version of Quorate, uses this prefix: stop it and delete the \
         marker on each node (on Redis the key quorate:node, or PREFIX and then node), or choose another prefix"
    )]
    MarkerUnreadable(MarkerError),
    /// It has no marker, and this worker only looks.
    #[error(
        "it has no marker: no worker has used it under this prefix yet, or it was flushed; the first worker waits \
         max_ttl for it (four times max_clock_offset at least), unless `quorate nodes trust` says that it is new"
    )]
    Unmarked,
    /// It restarted, nobody has marked it since, and this worker only looks.
    #[error(
        "it restarted and no worker has met it since, so it waits max_ttl (four times max_clock_offset at least) before it votes"
    )]
    Unmet,
    /// Another node of the list is the same server.
    #[error("it and {0} are one server (one run id), so neither has a vote; name each server once")]
    Twin(Arc<str>),
    /// It may have forgotten a lease that is still held.
    #[error(
        "it {reason}, so it votes in {remaining:.1?} at the earliest; wait, or `quorate nodes trust` if no worker ran before"
    )]
    Quarantined {
        /// Why.
        reason: QuarantineReason,
        /// For how long yet, when this was said.
        remaining: Duration,
    },
    /// Its clock is too far from the client's to seed a counter.
    #[error(
        "its clock and this worker's are {apart:.1?} apart; set both by NTP, or raise max_clock_offset on every worker"
    )]
    Clock {
        /// How far.
        apart: Duration,
    },
}

impl VoteRejection {
    /// Whether only an operator can fix it.
    pub fn is_permanent(&self) -> bool {
        if let Self::Replaced { to, ours, .. } = self {
            return to != ours; // A worker with the new list waits for the end of the change.
        }
        // What contradicts is permanent by itself; who is contradicted may only have been met before the others.
        !matches!(
            self,
            Self::Quarantined { .. }
                | Self::Clock { .. }
                | Self::Contradicted { .. }
                | Self::TooFewMet { .. }
                | Self::Unmarked
                | Self::Unmet
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

/// Why a node waits before it votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuarantineReason {
    /// It has no marker: a new node cannot be told from a flushed one.
    Unmarked,
    /// Its run id is not the marker's: it restarted and may have forgotten.
    Restarted,
    /// Another worker put it there.
    Marked,
    /// Its clock and ours have jumped against each other: leases on it may have ended early.
    Jumped,
}

impl fmt::Display for QuarantineReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unmarked => "is new or was flushed",
            Self::Restarted => "restarted and may have forgotten leases",
            Self::Marked => "is new, restarted, was flushed or had its clock set a short while ago",
            Self::Jumped => {
                "showed a clock that jumped ahead of this worker's (or this worker's stood still)"
            }
        })
    }
}
