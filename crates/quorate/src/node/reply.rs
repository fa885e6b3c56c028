use super::{Cursor, FencingToken, LedgerPage, NodeTime, Owner, Record};
use std::{sync::Arc, time::Duration};

/// The replies to a [`Batch`](super::Batch), in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchReply {
    /// The node's wall clock when the batch ran.
    pub node_time: NodeTime,
    /// One for each request.
    pub replies: Vec<Reply>,
}

/// A node's answer to one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// *Acquire*: the resource was free and is now the owner's; the counter stands here.
    Granted {
        /// The counter after this grant.
        counter: FencingToken,
        /// What has been counted before on a claim.
        begun: Option<Begun>,
    },
    /// *Share, downgrade*: the reader stands.
    Shared,
    /// *Queue*: the place stands.
    Queued {
        /// How many stand before it that it has to wait for.
        ahead: u32,
    },
    /// *Acquire, extend, complete, share, downgrade*: someone else holds the resource, or comes first.
    Held {
        /// Who: [`Owner::READERS`] and [`Owner::QUEUE`] stand for many.
        owner: Owner,
        /// For how long yet, by the node's clock; `None` where the key never expires (another client's).
        remaining: Option<Duration>,
    },
    /// *Acquire, extend, complete, count, forgive* on a claim: done already, or given up.
    Done(DoneRecord),
    /// *Raise*: the counter is what was asked for.
    Raised,
    /// *Extend, extend share*: held for the whole time from now.
    Extended,
    /// *Reserve*: the heir's reservation stands.
    Reserved,
    /// *Release, release share, leave queue*: whether the owner was there to be freed.
    Released(bool),
    /// *Complete*: the done record stands.
    Completed,
    /// *Count*: what was asked for is counted.
    Counted,
    /// *Forgive*: nothing is counted any more.
    Forgiven,
    /// *Inspect*.
    State {
        /// Who holds it and for how long yet.
        holder: Option<(Owner, Option<Duration>)>,
        /// The counter, where there is one.
        counter: Option<FencingToken>,
        /// The done record, where the resource is a claim that is done.
        done: Option<DoneRecord>,
        /// What is counted, where it is a claim that is not.
        begun: Option<Begun>,
    },
    /// *Seal, read*: some of what stands in the ledger.
    Ledger(LedgerPage),
    /// *Write*: the record stands.
    Written,
    /// *Prune*: the mark stands, and what has been looked at and was before it is forgotten.
    Pruned {
        /// Where to go on; `None` once all has been looked at.
        next: Option<Cursor>,
    },
    /// *Write*: another record than the leader has seen stands here.
    Standing(Record),
    /// *Mark*: the marker stands.
    Marked,
    /// The ledger lives on, where there is one.
    Kept,
    /// The node would not.
    Refused(Refusal),
}

/// Why a node would not serve one request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The node's clock was past the batch's `not_after`.
    #[error("the request reached the node too late")]
    Stale,
    /// Another marker stands than the driver saw.
    #[error("the node's marker changed")]
    Marker(Option<Arc<str>>),
    /// The counter is missing and the proposal too far from the node's clock.
    #[error("the clocks are {apart:?} apart")]
    Clock {
        /// How far.
        apart: Duration,
    },
    /// The counter has reached 2^53 - 1.
    #[error("the fencing counter is full")]
    CounterFull,
    /// The owner is not, or no longer, the one that asked.
    #[error("the resource is no longer held by this attempt")]
    NotOwner,
    /// The counter is beyond the token asked for: someone acquired later.
    #[error("a later attempt has been counted")]
    Superseded,
    /// As many read under the resource, or wait for it, as a node keeps.
    #[error("the node keeps no more than {most} of these for one resource")]
    Crowded {
        /// How many that is.
        most: u32,
    },
    /// The ledger is sealed by a later term.
    #[error("the ledger is sealed by the later term {by}")]
    Sealed {
        /// The later term.
        by: FencingToken,
    },
    /// The record's time lies below the ledger's low-water mark.
    #[error("the record is older than the ledger remembers")]
    Pruned,
    /// A key in our place holds another type or something unreadable.
    #[error("a key holds something else than expected: {0}")]
    WrongType(Arc<str>),
    /// The node failed at this request alone (out of memory, say).
    #[error("the node failed: {0}")]
    Failed(Arc<str>),
}

/// That a claim is done, or given up.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct DoneRecord {
    /// The token under which it was completed.
    pub token: FencingToken,
    /// When, in microseconds of the wall clock of the worker that completed it.
    pub at: u64,
    /// What came of it.
    pub result: Arc<str>,
    /// The fingerprint of its payload, in hexadecimal digits, where it was given one.
    pub payload: Option<Arc<str>>,
    /// Where it was given up: after how many attempts.
    pub poisoned: Option<u32>,
}

/// What is counted on a claim that is not done.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Begun {
    /// How many attempts.
    pub attempts: u32,
    /// The fingerprint of its payload, in hexadecimal digits, where it was given one.
    pub payload: Option<Arc<str>>,
}

/// What a fresh session says of its server: facts, no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The node's wall clock at the handshake.
    pub node_time: NodeTime,
    /// What changes whenever the server may have lost its memory.
    pub run_id: Arc<str>,
    /// The marker, where there is one.
    pub marker: Option<Arc<str>>,
    /// How long the server says it has been up. Wall-clock time: it lies after a step.
    pub uptime: Duration,
    /// The server's version, for people.
    pub version: Arc<str>,
    /// Whether it copies another server.
    pub replica: bool,
    /// The eviction policy, where the server told it.
    pub eviction: Option<Arc<str>>,
    /// Whether it survives a restart with all it answered for, as far as it says: `None` where it did not.
    pub durable: Option<bool>,
    /// Where it is not known to be durable: the setting and its value, the reason, and the fix. `None` beside an unknown
    /// [`Hello::durable`] says that it will be known soon.
    pub volatile: Option<Arc<str>>,
}

/// Why one node gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// There is no connection.
    #[error("unreachable: {0}")]
    Unreachable(Arc<str>),
    /// The server refused us: a wrong password, a missing permission.
    #[error("refused us: {0}")]
    Denied(Arc<str>),
    /// The node cannot be used as it is configured here: a file that cannot be read, a certificate that is not
    /// trusted, a key in the marker's place.
    #[error("cannot be used: {0}")]
    Misconfigured(Arc<str>),
    /// No reply within the node timeout.
    #[error("no reply in time")]
    TimedOut,
    /// The connection broke with the request under way.
    #[error("the connection closed")]
    Closed,
    /// The server said something that cannot be a reply to what was asked.
    #[error("unexpected reply: {0}")]
    Protocol(Arc<str>),
    /// This quorum has been closed.
    #[error("the quorum is closed")]
    Stopped,
}

impl Cause {
    /// Whether only an operator can fix it: trying again will not help.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Denied(_) | Self::Misconfigured(_))
    }
}
