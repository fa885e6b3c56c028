use super::{Cursor, FencingToken, LedgerPage, NodeTime, Owner, Record};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The replies to a [`Batch`](super::Batch), in the order of its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchReply {
    /// The node's wall clock when the batch ran.
    pub node_time: NodeTime,
    /// One reply for each request.
    pub replies: Vec<Reply>,
}

/// A node's reply to one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// *Acquire*: the resource was free, and the owner now holds it.
    Granted {
        /// The counter after this grant.
        counter: FencingToken,
        /// The number of attempts that the node has counted on the claim, with the payload's fingerprint.
        /// `None` if the resource is not a claim, or if the node has counted no attempts.
        begun: Option<AttemptCount>,
    },
    /// *Share, downgrade*: the reader was added.
    Shared,
    /// *Queue*: the waiter is in the queue.
    Queued {
        /// The number of waiters that are ahead in the queue and must be served before this one.
        ahead: u32,
    },
    /// *Acquire, extend, complete, reset attempts, share, extend share, downgrade*: another owner holds the
    /// resource, or another waiter is first in the resource's queue.
    Held {
        /// The holder: an owner token, [`Owner::READERS`] if readers hold the resource, or [`Owner::QUEUE`]
        /// if the resource is free but another waiter is first in its queue.
        owner: Owner,
        /// The remaining time of the lease by the node's clock. `None` if the node did not report it, or if the key never
        /// expires; only a client other than Quorate can have set such a key.
        remaining: Option<Duration>,
    },
    /// *Acquire*: refused for this reason, but the node may store the owner until it is released. A node replies so if it
    /// examines a request only after the request has run.
    MayHold(Refusal),
    /// *Acquire, extend, complete, count, reset attempts* on a claim: the claim is already done or dead-lettered.
    Done(DoneRecord),
    /// *Raise*: the counter has the requested value.
    Raised,
    /// *Extend, extend share*: the lease lasts for the requested time from now.
    Extended,
    /// *Reserve*: the reservation replaced the lease.
    Reserved,
    /// *Release, release share, leave queue*: true if the owner, the reader or the waiter was stored and has
    /// been removed.
    Released(bool),
    /// *Complete*: the done record is stored.
    Completed,
    /// *Count*: the requested count is stored.
    Counted,
    /// *Reset attempts*: the counted attempts are removed.
    AttemptsReset,
    /// *Inspect*: the state of the resource.
    State {
        /// The holder and its remaining time.
        holder: Option<(Owner, Option<Duration>)>,
        /// The counter, if there is one.
        counter: Option<FencingToken>,
        /// The done record, if the resource is a claim that has ended.
        done: Option<DoneRecord>,
        /// The counted attempts, if the resource is a claim that has not ended.
        begun: Option<AttemptCount>,
    },
    /// *Seal copy, read*: a page of the ledger.
    Ledger(LedgerPage),
    /// *Write, lead, work*: the record is stored, or what was asked is so.
    Written,
    /// *Prune*: the low-water mark is stored, and the records of this page that lie before it are removed.
    Pruned {
        /// The cursor of the next page, or `None` after the last one.
        next: Option<Cursor>,
    },
    /// *Write*: refused. The node already stores the contained record, and that record is final or differs
    /// from the record that the client expected.
    Conflict(Record),
    /// *Mark*: the marker is stored.
    Marked,
    /// *Stamp*: the stamps that the node stores now, of the nodes of the request and in their order.
    Stamps(Vec<u64>),
    /// *Keep*: the retention is set, if the ledger exists.
    Kept,
    /// The node refused the request.
    Refused(Refusal),
}

impl Reply {
    /// Returns the marker that the node stores, if it refused the request because that is not the expected one.
    pub(crate) fn other_marker(&self) -> Option<&Option<Arc<str>>> {
        match self {
            Self::Refused(Refusal::Marker(marker)) | Self::MayHold(Refusal::Marker(marker)) => Some(marker),
            _ => None,
        }
    }
}

/// The reason why a node refused one request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The node's clock was past the batch's `not_after`.
    #[error("the request reached the node too late")]
    Stale,
    /// The node's marker is not the one that the driver saw. Contains the node's marker. `None` if it has none.
    #[error("the node's marker changed")]
    Marker(Option<Arc<str>>),
    /// The claim is free, but the node has data of an earlier attempt: a count of its grants or attempts. So plain commands
    /// have not acquired it. The same request is served if it is sent again.
    #[error("the node has data of an earlier attempt")]
    NotNew,
    /// The resource has no counter on this node, and the proposed value is too far from the node's clock.
    #[error("the clocks are {apart:?} apart")]
    Clock {
        /// The distance between the proposed value and the node's clock.
        apart: Duration,
    },
    /// The counter has reached its maximum, 2^53 - 1, so the node cannot grant the resource any more.
    #[error("the fencing counter is full")]
    CounterFull,
    /// The owner in the request does not hold the resource.
    #[error("the resource is no longer held by this attempt")]
    NotOwner,
    /// The counter is larger than the token in the request, or is missing. So another attempt may have acquired
    /// the resource since. For *count*: the stored number of attempts does not fit the request.
    #[error("a later attempt has been counted")]
    Superseded,
    /// *Extend*: the resource is free, and its counter is larger than the token in the request. So the node has
    /// counted later grants. Some of them may have been part of a lease of another owner.
    #[error("the lock is free there, and later grants have been counted (up to {counter})")]
    LaterGrants {
        /// The counter.
        counter: FencingToken,
    },
    /// Other waiters may come first in the queue of the resource.
    #[error("others come first in its queue")]
    Queued,
    /// The resource has the maximum number of readers on this node, or its queue has the maximum number of
    /// waiters.
    #[error("the node keeps no more than {most} of these for one resource")]
    Crowded {
        /// The limit.
        most: u32,
    },
    /// The copy of the ledger is sealed by the leader of a later term.
    #[error("the ledger is sealed by the later term {by}")]
    Sealed {
        /// The later term.
        by: FencingToken,
    },
    /// The copy of the ledger is not sealed by this leader in the node's present memory.
    #[error("the node's copy of the ledger is not sealed by this leader")]
    NotSealed,
    /// The copy of the ledger is incomplete: the node may have forgotten, and no leader has copied everything to it since.
    #[error("the node's copy of the ledger is incomplete")]
    Incomplete,
    /// The node takes no part in this assignment: the node stores another record, or the node's copy was made later.
    #[error("the node takes no part in this assignment")]
    NoPart,
    /// Of *start* and *void* of one assignment, the other one came first. Or a later write may have removed the record.
    #[error("a later request, or the opposite one, came first")]
    TooLate,
    /// The record's time lies before the ledger's low-water mark.
    #[error("the record is older than the ledger remembers")]
    Pruned,
    /// A key under a name of Quorate has another type, or content that Quorate did not write.
    #[error("a key holds something else than expected: {0}")]
    WrongType(Arc<str>),
    /// The node refuses every request that needs the same, whatever its resource is. For instance, it is out of memory, or
    /// the worker's user lacks a permission. Contains the node's error and the fix.
    #[error("the node cannot serve leases: {0}")]
    Unable(Arc<str>),
    /// The node could not execute the request. For instance, the request is invalid.
    #[error("the node failed: {0}")]
    Failed(Arc<str>),
}

/// The record of a claim that is done or dead-lettered.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct DoneRecord {
    /// The token under which it was completed.
    pub token: FencingToken,
    /// The time of completion, in microseconds of the wall clock of the worker that completed it.
    pub at: u64,
    /// The result, as the handler or the dead-letter hook returned it.
    pub result: Arc<str>,
    /// The fingerprint of the payload, in hexadecimal digits, if there is one.
    pub payload: Option<Arc<str>>,
    /// The number of attempts after which the message was dead-lettered. `None` if it was completed.
    pub dead_lettered: Option<u32>,
}

/// The attempts counted on a claim that is not done.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct AttemptCount {
    /// The number of attempts.
    pub attempts: u32,
    /// The fingerprint of the payload, in hexadecimal digits, if there is one.
    pub payload: Option<Arc<str>>,
}

/// The facts about the server that a new session reports. From these facts, the quorum decides whether the
/// node may vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The node's wall clock at the handshake.
    pub node_time: NodeTime,
    /// An id of the server process. The id changes whenever the server may have lost its memory.
    pub run_id: Arc<str>,
    /// The marker, if there is one.
    pub marker: Option<Arc<str>>,
    /// The id of the server's data, if the server reports one.
    pub data: Option<DataId>,
    /// The stamps that the node stores: its own, and those that it knows of other nodes.
    pub stamps: BTreeMap<Arc<str>, u64>,
    /// The uptime that the server reports. The uptime follows the wall clock, so it is wrong after a step of
    /// that clock.
    pub uptime: Duration,
    /// The server's version, for display.
    pub version: Arc<str>,
    /// True if the server is a replica of another one.
    pub replica: bool,
    /// The eviction policy, if the server reported it.
    pub eviction: Option<Arc<str>>,
    /// True if the server reports that everything it has acknowledged survives a restart. `None` if it is not
    /// known.
    pub durable: Option<bool>,
    /// The reason why the server is not known to be durable, with the setting, its value and the fix. If both
    /// this field and [`Hello::durable`] are `None`, the server is expected to report its durability soon.
    pub volatile: Option<Arc<str>>,
    /// The error with which the server refused a write that changes nothing, with the fix. `None` if it accepted the
    /// write, or if the session does not try one.
    pub unable: Option<Arc<str>>,
}

/// The id of a server's data, and whether the data came from elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataId {
    /// The id. On Redis it is the replication id, which a server replaces when it stops being a replica, but also at
    /// other times.
    pub id: Arc<str>,
    /// True if the data was copied: from another server by replication, or to another directory.
    pub is_copied: bool,
}

/// The reason why a node gave no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// There is no connection, or the session could not be opened.
    #[error("unreachable: {0}")]
    Unreachable(Arc<str>),
    /// The node refused the session. For instance, the password is wrong, a permission is missing, or other
    /// users can access the directory of a file node.
    #[error("refused us: {0}")]
    Denied(Arc<str>),
    /// The node cannot be used with its present configuration. For instance, a file cannot be read, a certificate is
    /// not trusted, or another key is stored in place of the marker.
    #[error("cannot be used: {0}")]
    Misconfigured(Arc<str>),
    /// No reply arrived within the node timeout.
    #[error("no reply in time (within node_timeout, which must be longer than a round trip)")]
    TimedOut,
    /// The connection broke before the reply arrived, or the node may have lost its memory since its reply.
    #[error("the connection closed")]
    Closed,
    /// The facts about the server on which the handshake decided have changed, so the session has ended. The next
    /// handshake decides.
    #[error("the server changed: {0}")]
    Changed(Arc<str>),
    /// The server sent something that is not a valid reply to the request.
    #[error("unexpected reply: {0}")]
    Protocol(Arc<str>),
    /// This quorum has been closed.
    #[error("the quorum is closed")]
    Stopped,
}

impl Cause {
    /// Returns whether only an operator can remove the cause, so that a retry does not help.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Denied(_) | Self::Misconfigured(_))
    }
}
