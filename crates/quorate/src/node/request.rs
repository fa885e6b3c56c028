use super::{Cursor, DoneRecord, FencingToken, NodeTime, Owner, Record, Reply, Resource};
use std::{sync::Arc, time::Duration};

/// Requests that travel and run together, each atomic by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// In the order in which the node runs them.
    pub requests: Vec<Request>,
    /// The node refuses every request that could set a key once its own clock is past this. Releases and
    /// looks it always serves.
    pub not_after: NodeTime,
    /// The marker that the driver saw at the handshake. A node whose marker differs (after FLUSHALL: is
    /// missing) refuses to vote and says what stands there.
    pub stamp: Arc<str>,
}

/// One question to one node.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Sets the owner where the resource is free, or reserved for the worker that signed it, and counts one more
    /// grant. On a claim that is done, says so instead.
    Acquire {
        /// What to hold.
        resource: Resource,
        /// Signs the attempt.
        owner: Owner,
        /// For how long.
        ttl: Duration,
        /// Where a missing counter starts: the client's wall clock in microseconds.
        propose: FencingToken,
        /// How far `propose` may be from the node's wall clock where the counter is missing.
        tolerance: Duration,
        /// How long the counter lives after this.
        keep: Duration,
        /// The place in the resource's queue that this attempt stands on. While a queue stands, only its head
        /// is granted.
        ticket: Option<Owner>,
    },
    /// If the owner is still `owner` and the counter no larger than `to`, makes the counter `to`.
    Raise {
        /// What is held.
        resource: Resource,
        /// Who must still hold it.
        owner: Owner,
        /// The largest counter among the attempt's grants.
        to: FencingToken,
        /// How long the counter lives after this.
        keep: Duration,
    },
    /// Holds on for `ttl` from now, never shortening; sets the owner again where the resource is free and
    /// nobody waits in its queue (repair). The counter becomes at least `token`.
    Extend {
        /// What is held.
        resource: Resource,
        /// Who holds it.
        owner: Owner,
        /// For how long from now.
        ttl: Duration,
        /// The lease's fencing token.
        token: FencingToken,
        /// How long the counter lives after this.
        keep: Duration,
    },
    /// If the owner is still `owner`, the resource is `heir`'s from now on, for `ttl`: a reservation
    /// ([`Owner::reserve`]), which only an acquire that is signed by the worker whom it names takes as free. The
    /// counter stays: that acquire counts one more, as any does.
    Reserve {
        /// What is held; no claim.
        resource: Resource,
        /// Who must still hold it.
        owner: Owner,
        /// What is to stand in its place.
        heir: Owner,
        /// For how long.
        ttl: Duration,
    },
    /// Frees the resource if the owner is `owner`. Never refused for its time or the marker.
    Release {
        /// What is held.
        resource: Resource,
        /// Who holds it.
        owner: Owner,
    },
    /// Adds a reader where nobody but readers holds the resource, and no writer waits before it in the queue.
    Share {
        /// What to read under; no claim.
        resource: Resource,
        /// Signs the attempt.
        owner: Owner,
        /// For how long.
        ttl: Duration,
        /// The place in the resource's queue that this attempt stands on.
        ticket: Option<Owner>,
    },
    /// Has a reader hold on for `ttl` from now, never shortening; adds it again where nobody but readers holds
    /// the resource and no writer waits (repair).
    ExtendShare {
        /// What is read under; no claim.
        resource: Resource,
        /// The reader.
        owner: Owner,
        /// For how long from now.
        ttl: Duration,
    },
    /// Takes a reader away; the last one frees the resource. Never refused for its time or the marker.
    ReleaseShare {
        /// What is read under; no claim.
        resource: Resource,
        /// The reader.
        owner: Owner,
    },
    /// Where `owner` holds the resource alone, and nobody has been counted since, makes it the lease of one reader.
    /// (The owner alone does not tell that nobody wrote between: an extension that comes late sets it again.)
    Downgrade {
        /// What is held; no claim.
        resource: Resource,
        /// Who holds it.
        owner: Owner,
        /// The lease's fencing token.
        token: FencingToken,
        /// The reader to be.
        reader: Owner,
        /// For how long the reader holds.
        ttl: Duration,
    },
    /// Takes a place in the resource's queue, or holds on to it for `ttl` from now. Places are ordered by
    /// `at`, then by ticket, whenever they came.
    Queue {
        /// What is waited for; no claim.
        resource: Resource,
        /// Signs the place.
        ticket: Owner,
        /// The waiter's wall clock when it began to wait, in microseconds.
        at: u64,
        /// The waiter's wall clock, in microseconds.
        now: u64,
        /// How far `now` may be from the node's wall clock, and `at` ahead of it.
        tolerance: Duration,
        /// How long the place stands if it is not asked for again.
        ttl: Duration,
        /// Whether the waiter wants to hold the resource alone.
        alone: bool,
    },
    /// Gives a place in the queue up. Never refused for its time or the marker.
    LeaveQueue {
        /// What was waited for; no claim.
        resource: Resource,
        /// Signs the place.
        ticket: Owner,
    },
    /// Says who holds the resource. Changes nothing.
    Inspect {
        /// What to look at.
        resource: Resource,
    },
    /// Records that the claim is done, and frees it; its counter ends, for the record has the token. Allowed to the holder, and, where the claim has expired
    /// and its counter is no larger than the record's token, to the one who held it.
    Complete {
        /// A claim.
        resource: Resource,
        /// Who held it.
        owner: Owner,
        /// What is to stand: of two the higher token's does. The result has at most 1 KiB.
        record: DoneRecord,
        /// How long the done record lives.
        retention: Duration,
    },
    /// If the owner is still `owner` and fewer attempts have been counted on the claim, makes them `attempts`, and
    /// keeps the payload's fingerprint.
    Count {
        /// A claim.
        resource: Resource,
        /// Who must still hold it.
        owner: Owner,
        /// Which attempt this is.
        attempts: u32,
        /// The fingerprint of the payload, in hexadecimal digits. Without one, what stands there stays.
        payload: Option<Arc<str>>,
        /// Takes it back instead, where exactly `attempts` are counted: one fewer is, from now on.
        back: bool,
        /// How long the count lives after this.
        keep: Duration,
    },
    /// Where nobody holds the claim, and it is not done, forgets how many attempts were counted, the payload's
    /// fingerprint, and that it was given up.
    Forgive {
        /// A claim.
        resource: Resource,
        /// How long the counter lives after this: it goes on from the token of what was given up.
        keep: Duration,
    },
    /// From now on the ledger refuses writes of terms before `term`; says what stands there, a page at a time. What
    /// comes after the first page is asked for by sealing again.
    Seal {
        /// The group.
        ledger: Arc<str>,
        /// The sealing leader's term.
        term: FencingToken,
        /// Where the last page ended; `None` for the first.
        after: Option<Cursor>,
    },
    /// Writes a record where nothing stands but what the leader has seen (compare and set), or the record
    /// itself. Refused for a term before the ledger's, below its low-water mark, and over a final record.
    Write {
        /// The group.
        ledger: Arc<str>,
        /// The writing leader's term. A newer term than the ledger's seals it too.
        term: FencingToken,
        /// The name of the record.
        key: Arc<str>,
        /// What the leader saw there.
        seen: Option<Record>,
        /// What is to stand there.
        record: Record,
    },
    /// Raises the ledger's low-water mark to `below`, but never beyond the node's own time, and forgets the
    /// records before it, a page at a time. Refused for a term before the ledger's.
    Prune {
        /// The group.
        ledger: Arc<str>,
        /// The pruning leader's term.
        term: FencingToken,
        /// Records whose [`Record::at`] is before this go.
        below: u64,
        /// Where the last step ended; `None` for the first.
        after: Option<Cursor>,
    },
    /// Sets how long a ledger outlives its last seal, write, prune or keep, and lets it live for as long from now. A ledger
    /// that does not exist is not created.
    Keep {
        /// The group.
        ledger: Arc<str>,
        /// For how long.
        life: Duration,
    },
    /// Says what stands in the ledger, a page at a time. Changes nothing.
    Read {
        /// The group.
        ledger: Arc<str>,
        /// Where the last page ended; `None` for the first.
        after: Option<Cursor>,
    },
    /// Sets the node's marker where `expect` stands now.
    Mark {
        /// What the driver saw.
        expect: Option<Arc<str>>,
        /// What is to stand.
        marker: Arc<str>,
    },
}

/// What a node says to a [`Request::is_unfit`].
pub const UNFIT: &str = "a claim has no readers, no queue and no heir; and nothing but a claim is done";

impl Request {
    /// Carries the times on the client's wall clock on, where the request leaves this much later than it was made.
    pub(crate) fn sent_later(&mut self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        match self {
            Self::Acquire { propose, .. } => {
                *propose = FencingToken::new(propose.get().saturating_add(micros)).min(FencingToken::MAX);
            }
            Self::Queue { now, .. } => *now = now.saturating_add(micros),
            _ => {}
        }
    }

    /// Whether this asks of a claim what only locks have (readers, a queue, an heir), or of something else what only claims
    /// have (a record). A node refuses it.
    pub fn is_unfit(&self) -> bool {
        match self {
            Self::Complete { resource, .. }
            | Self::Count { resource, .. }
            | Self::Forgive { resource, .. } => !resource.is_claim(),
            Self::Share { resource, .. }
            | Self::ExtendShare { resource, .. }
            | Self::Downgrade { resource, .. }
            | Self::Queue { resource, .. }
            | Self::Reserve { resource, .. } => resource.is_claim(),
            _ => false,
        }
    }

    /// Whether the node must refuse this once its clock is past [`Batch::not_after`].
    pub fn sets_a_key(&self) -> bool {
        !self.is_release() && !matches!(self, Self::Inspect { .. } | Self::Read { .. })
    }

    /// Whether this only takes away what its sender set.
    pub fn is_release(&self) -> bool {
        matches!(self, Self::Release { .. } | Self::ReleaseShare { .. } | Self::LeaveQueue { .. })
    }

    /// Whether the node must refuse this where its marker is not [`Batch::stamp`].
    pub fn votes(&self) -> bool {
        self.sets_a_key() && !matches!(self, Self::Mark { .. })
    }

    /// Whether a node that keeps to the protocol can say this to it. What it cannot say is no vote.
    pub fn is_answered_by(&self, reply: &Reply) -> bool {
        let done = |resource: &Resource| matches!(reply, Reply::Done(_)) && resource.is_claim();
        match (self, reply) {
            (_, Reply::Refused(_)) => true,
            // A count beyond what every node can count would poison the others with the next raise.
            (Self::Acquire { resource, .. }, Reply::Granted { counter, begun }) => {
                (FencingToken::new(1)..=FencingToken::MAX).contains(counter)
                    && (begun.is_none() || resource.is_claim())
            }
            (
                Self::Acquire { .. } | Self::Extend { .. } | Self::Complete { .. } | Self::Forgive { .. },
                Reply::Held { .. },
            )
            | (Self::Raise { .. }, Reply::Raised)
            | (Self::Extend { .. }, Reply::Extended)
            | (Self::Reserve { .. }, Reply::Reserved)
            | (
                Self::Release { .. } | Self::ReleaseShare { .. } | Self::LeaveQueue { .. },
                Reply::Released(_),
            )
            | (Self::Share { .. } | Self::Downgrade { .. }, Reply::Shared | Reply::Held { .. })
            | (Self::ExtendShare { .. }, Reply::Extended | Reply::Held { .. })
            | (Self::Queue { .. }, Reply::Queued { .. })
            | (Self::Inspect { .. }, Reply::State { .. })
            | (Self::Complete { .. }, Reply::Completed)
            | (Self::Count { .. }, Reply::Counted)
            | (Self::Forgive { .. }, Reply::Forgiven)
            | (Self::Write { .. }, Reply::Written)
            | (Self::Write { .. }, Reply::Standing(_))
            | (Self::Keep { .. }, Reply::Kept)
            | (Self::Mark { .. }, Reply::Marked) => true,
            (Self::Seal { .. } | Self::Read { .. }, Reply::Ledger(page)) => page.is_bounded(),
            (Self::Prune { .. }, Reply::Pruned { next }) => next.as_ref().is_none_or(Cursor::is_bounded),
            (
                Self::Acquire { resource, .. }
                | Self::Extend { resource, .. }
                | Self::Complete { resource, .. }
                | Self::Count { resource, .. }
                | Self::Forgive { resource, .. },
                _,
            ) => done(resource),
            _ => false,
        }
    }
}
