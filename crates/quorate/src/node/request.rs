use super::{
    Cursor, DoneRecord, FencingToken, Incarnation, NodeTime, Owner, Record, Reply, Resource,
    copy::{self, AssignmentId, LeadAct, Seal, WorkAct},
};
use std::{sync::Arc, time::Duration};

/// Requests that are sent and executed together. Each request is atomic, the batch as a whole is not.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The requests, in the order in which the node runs them.
    pub requests: Vec<Request>,
    /// The deadline on the node's own clock. After it the node refuses every request that could set a key,
    /// but still serves releases and reads.
    pub not_after: NodeTime,
    /// The marker that the driver saw at the handshake. A node whose marker differs, or is missing (as after
    /// FLUSHALL), refuses to vote and returns its own marker.
    pub stamp: Arc<str>,
}

/// One request to one node.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Sets the owner and increments the fencing counter, if the resource is free or is reserved for the
    /// worker in the owner token. For a claim that is done, the reply is its done record.
    Acquire {
        /// The resource to acquire.
        resource: Resource,
        /// The token of the attempt.
        owner: Owner,
        /// The duration of the lease.
        ttl: Duration,
        /// The initial value of a missing counter: the worker's wall clock in microseconds.
        propose: FencingToken,
        /// The largest accepted distance between `propose` and the node's wall clock if the counter is
        /// missing.
        tolerance: Duration,
        /// The time for which the node keeps the counter after this request.
        keep: Duration,
        /// The ticket of the attempt, if its worker has joined the resource's queue. If the queue is not
        /// empty, the node grants the resource only to the attempt whose ticket is first in the queue.
        ticket: Option<Owner>,
    },
    /// Sets the counter to `to` if the holder is still `owner` and the counter is no larger than `to`.
    Raise {
        /// The resource that is held.
        resource: Resource,
        /// The owner token of the expected holder.
        owner: Owner,
        /// The largest counter among the attempt's grants.
        to: FencingToken,
        /// The time for which the counter is kept after this request.
        keep: Duration,
    },
    /// Extends the lease to `ttl` from now, and never shortens it. If the resource is free, its queue is empty and
    /// its counter is at most `token`, sets the owner again, which repairs a node that lost the lease. The counter
    /// becomes at least `token`.
    Extend {
        /// The resource that is held.
        resource: Resource,
        /// The owner token of the holder.
        owner: Owner,
        /// The duration of the lease from now.
        ttl: Duration,
        /// The lease's fencing token, or a larger counter for which the holder vouches: none of the grants up to it
        /// became a lease of another owner.
        token: FencingToken,
        /// The time for which the counter is kept after this request.
        keep: Duration,
    },
    /// If the holder is still `owner`, replaces the lease by a reservation ([`Owner::reserve`]) for `ttl`.
    /// Only the worker for which the resource is reserved can then acquire it. The counter does not change
    /// until that acquire increments it.
    Reserve {
        /// The resource that is held. It must not be a claim.
        resource: Resource,
        /// The owner token of the expected holder.
        owner: Owner,
        /// The token of the reservation.
        successor: Owner,
        /// The duration of the reservation.
        ttl: Duration,
    },
    /// Frees the resource if `owner` holds it. A node serves this request even after `not_after` and under
    /// another marker.
    Release {
        /// The resource that is held.
        resource: Resource,
        /// The owner token of the holder.
        owner: Owner,
    },
    /// Adds a reader if the resource is free or held by readers, and no waiter that needs exclusive access is
    /// ahead of the reader in the queue.
    Share {
        /// The resource to read under. It must not be a claim.
        resource: Resource,
        /// The token of the attempt.
        owner: Owner,
        /// The duration of the lease.
        ttl: Duration,
        /// The ticket of the attempt, if its worker has joined the resource's queue. An attempt without a
        /// ticket comes after all waiters in the queue.
        ticket: Option<Owner>,
    },
    /// Extends the lease of a reader to `ttl` from now, and never shortens it. If the node has lost the
    /// reader, adds it again, unless a writer holds the resource or is in its queue.
    ExtendShare {
        /// The resource that is read under. It must not be a claim.
        resource: Resource,
        /// The owner token of the reader.
        owner: Owner,
        /// The duration of the lease from now.
        ttl: Duration,
    },
    /// Removes a reader. The removal of the last reader frees the resource. A node serves this request even
    /// after `not_after` and under another marker.
    ReleaseShare {
        /// The resource that is read under. It must not be a claim.
        resource: Resource,
        /// The owner token of the reader.
        owner: Owner,
    },
    /// Replaces the exclusive lease of `owner` by the lease of one reader, if the node has counted no later
    /// grant. It is not enough that the stored holder is `owner`: another holder may have held the resource
    /// in between, and then a delayed extension may have set `owner` again.
    Downgrade {
        /// The resource that is held. It must not be a claim.
        resource: Resource,
        /// The owner token of the holder.
        owner: Owner,
        /// The lease's fencing token.
        token: FencingToken,
        /// The owner token of the reader that replaces the holder.
        reader: Owner,
        /// The duration of the reader's lease.
        ttl: Duration,
    },
    /// Adds a waiter to the resource's queue. If the ticket is already in the queue, extends its entry to
    /// `ttl` from now. The entries are ordered by `at`, then by ticket. The order in which the requests
    /// arrive does not count.
    Queue {
        /// The resource that the waiter needs. It must not be a claim.
        resource: Resource,
        /// The ticket: the token that identifies the waiter's entry in the queue.
        ticket: Owner,
        /// The waiter's wall clock when it began to wait, in microseconds.
        at: u64,
        /// The waiter's wall clock when it sent this request, in microseconds.
        now: u64,
        /// The largest accepted distance between `now` and the node's wall clock. `at` must not be ahead of the
        /// node's clock by more than this either.
        tolerance: Duration,
        /// The time for which the node keeps the entry, unless a later request extends it.
        ttl: Duration,
        /// True if the waiter needs exclusive access. False for a reader.
        exclusive: bool,
    },
    /// Removes a waiter from the queue. A node serves this request even after `not_after` and under another
    /// marker.
    LeaveQueue {
        /// The resource that the waiter needed. It must not be a claim.
        resource: Resource,
        /// The ticket of the waiter.
        ticket: Owner,
    },
    /// Returns the state of the resource. Changes nothing.
    Inspect {
        /// The resource.
        resource: Resource,
    },
    /// Stores the done record of a claim and frees the claim. The node no longer keeps the claim's counter,
    /// because the done record contains the token. The holder may complete the claim. If the claim has
    /// expired and its counter is no larger than the record's token, the former holder may complete it too.
    Complete {
        /// The claim.
        resource: Resource,
        /// The owner token of the holder, or of the former holder.
        owner: Owner,
        /// The done record. Of two records, the one with the larger token is kept. The result has at most 1
        /// KiB.
        record: DoneRecord,
        /// The time for which the done record is kept.
        retention: Duration,
    },
    /// If the holder is still `owner` and fewer attempts have been counted on the claim, sets the count to
    /// `attempts` and stores the payload's fingerprint.
    Count {
        /// The claim.
        resource: Resource,
        /// The owner token of the expected holder.
        owner: Owner,
        /// The number of this attempt.
        attempts: u32,
        /// The fingerprint of the payload, in hexadecimal digits. Without one, the stored fingerprint is
        /// kept.
        payload: Option<Arc<str>>,
        /// If true, the count is withdrawn: if exactly `attempts` are counted, the count is set to one less.
        withdraw: bool,
        /// The time for which the count is kept after this request.
        keep: Duration,
    },
    /// If no worker holds the claim and it is not completed, removes the counted attempts, the payload's
    /// fingerprint and the dead-letter record.
    ResetAttempts {
        /// The claim.
        resource: Resource,
        /// The time for which the counter is kept after this request. The counter continues from the token of
        /// the dead-letter record.
        keep: Duration,
    },
    /// Writes a record by compare and set: the stored record must be the one that the client expects, or
    /// already the new one. The node refuses the write if the record is older than the low-water mark, or if the
    /// stored record is final.
    Write {
        /// The group to which the ledger belongs.
        ledger: Arc<str>,
        /// The key of the record.
        key: Arc<str>,
        /// The record that the client expects under the key.
        seen: Option<Record>,
        /// The record to store.
        record: Record,
    },
    /// Raises the ledger's low-water mark to `below`, but not beyond the node's own time. Removes the records
    /// before the mark, a page at a time.
    Prune {
        /// The group to which the ledger belongs.
        ledger: Arc<str>,
        /// The new low-water mark: records whose [`Record::at`] is smaller are removed.
        below: u64,
        /// The cursor that the previous step returned. `None` for the first step.
        after: Option<Cursor>,
    },
    /// Sets the retention of a ledger: the time for which it is kept after its last *write*, *prune*, *keep*,
    /// *seal copy*, *lead* or *work*. The time starts again now. Does not create a missing ledger.
    Keep {
        /// The group to which the ledger belongs.
        ledger: Arc<str>,
        /// The retention.
        life: Duration,
    },
    /// Returns the records of the ledger, a page at a time, or the record under one key. Changes nothing.
    Read {
        /// The group to which the ledger belongs.
        ledger: Arc<str>,
        /// The cursor that the previous page returned. `None` for the first page. Not used with a `key`.
        after: Option<Cursor>,
        /// The key of the only record to return. `None` for all records.
        key: Option<Arc<str>>,
    },
    /// Seals the node's copy of a led ledger for one leader, and returns one page of it. From then on the node refuses
    /// the leaders of earlier terms. See [`copy`](super::copy).
    SealCopy {
        /// The ledger.
        ledger: Arc<str>,
        /// The seal of the leader.
        seal: Seal,
        /// The cursor that the previous page returned. `None` for the first page.
        after: Option<Cursor>,
    },
    /// A request of the leader that has sealed the node's copy.
    Lead {
        /// The ledger.
        ledger: Arc<str>,
        /// The seal of the leader.
        seal: Seal,
        /// The memory in which the node stored the seal. In any other one, the node refuses the request.
        memory: Incarnation,
        /// The leader's request.
        act: LeadAct,
    },
    /// A request of the worker to which a run is assigned.
    Work {
        /// The ledger.
        ledger: Arc<str>,
        /// The key of the run.
        key: Arc<str>,
        /// The assignment.
        id: AssignmentId,
        /// The worker's request.
        act: WorkAct,
    },
    /// Sets the node's marker if the stored one is `expect`.
    Mark {
        /// The marker that the driver saw.
        expect: Option<Arc<str>>,
        /// The marker to store.
        marker: Arc<str>,
    },
    /// Stores what the worker knows of the nodes' stamps, and returns what the node knows then. A node's *stamp*
    /// is a number that only grows. The other nodes and the workers remember it, so that they notice when the
    /// node comes back with older data.
    Stamp {
        /// The name of the node itself.
        own: Arc<str>,
        /// The largest stamp that the worker has seen of each node of its list, `own` among them.
        known: Arc<[(Arc<str>, u64)]>,
        /// The change of the node's own stamp.
        step: StampStep,
    },
}

/// The largest stamp that a worker remembers. Larger ones are ignored: one node's wrong number must not reach the other
/// nodes, which could not count on from it.
pub const STAMP_MAX: u64 = 1 << 52;

/// The change of a node's own stamp by a [`Request::Stamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampStep {
    /// The stamp stays the same.
    Tell,
    /// The stamp grows by one, whatever the worker knows of it. So the reply shows whether the node has lost data.
    Advance,
    /// The stamp becomes larger than the stored one, and larger than the one that the worker knows.
    Raise,
}

/// The error with which a node refuses a request for which [`Request::is_invalid`] returns true.
pub const INVALID_REQUEST: &str = "readers, queues and reservations do not apply to a claim; attempts and done records apply only to a claim; the key of a record of a led ledger begins with a letter";

impl Request {
    /// Adds `by` to the request's times on the worker's wall clock. `by` is the delay between the creation of
    /// the request and its sending.
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

    /// Returns whether the request does not apply to the kind of its resource. A claim has no readers, queue
    /// or reservation, and only a claim has attempts and a done record. The key of a record of a led ledger begins with a
    /// letter. A node refuses an invalid request.
    pub fn is_invalid(&self) -> bool {
        match self {
            Self::Complete { resource, .. }
            | Self::Count { resource, .. }
            | Self::ResetAttempts { resource, .. } => !resource.is_claim(),
            Self::Share { resource, .. }
            | Self::ExtendShare { resource, .. }
            | Self::Downgrade { resource, .. }
            | Self::Queue { resource, .. }
            | Self::Reserve { resource, .. } => resource.is_claim(),
            Self::Lead { act: LeadAct::Put { writes }, .. } => {
                !writes.iter().all(|put| copy::is_key(&put.key))
            }
            Self::Lead { act: LeadAct::Void { key, .. }, .. } | Self::Work { key, .. } => !copy::is_key(key),
            _ => false,
        }
    }

    /// Returns whether the node must refuse the request once its clock is past [`Batch::not_after`].
    pub fn sets_a_key(&self) -> bool {
        !self.is_release() && !matches!(self, Self::Inspect { .. } | Self::Read { .. })
    }

    /// Returns whether the request only removes data that its sender has set. Such a request may be executed
    /// late.
    pub fn is_release(&self) -> bool {
        matches!(self, Self::Release { .. } | Self::ReleaseShare { .. } | Self::LeaveQueue { .. })
    }

    /// Returns whether the request begins a lease, in contrast to one that extends a lease.
    pub(crate) fn begins_a_lease(&self) -> bool {
        matches!(self, Self::Acquire { .. } | Self::Share { .. })
    }

    /// Returns whether the reply to the request counts as a vote. The node must refuse such a request if the
    /// node's marker is not [`Batch::stamp`].
    pub fn votes(&self) -> bool {
        self.sets_a_key() && !matches!(self, Self::Mark { .. })
    }

    /// Returns whether the reply is one that a correct node can give to this request. Any other reply is not
    /// counted as a vote.
    pub fn is_answered_by(&self, reply: &Reply) -> bool {
        let done = |resource: &Resource| matches!(reply, Reply::Done(_)) && resource.is_claim();
        match (self, reply) {
            (_, Reply::Refused(_)) | (Self::Acquire { .. }, Reply::MayHold(_)) => true,
            // A counter outside of these bounds is not accepted. The next *raise* would copy it to the other
            // nodes, which cannot store it.
            (Self::Acquire { resource, .. }, Reply::Granted { counter, begun }) => {
                (FencingToken::new(1)..=FencingToken::MAX).contains(counter)
                    && (begun.is_none() || resource.is_claim())
            }
            (
                Self::Acquire { .. }
                | Self::Extend { .. }
                | Self::Complete { .. }
                | Self::ResetAttempts { .. },
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
            | (Self::ResetAttempts { .. }, Reply::AttemptsReset)
            | (Self::Write { .. } | Self::Lead { .. } | Self::Work { .. }, Reply::Written)
            | (Self::Write { .. }, Reply::Conflict(_))
            | (Self::Keep { .. }, Reply::Kept)
            | (Self::Mark { .. }, Reply::Marked) => true,
            (Self::Stamp { known, .. }, Reply::Stamps(counts)) => counts.len() == known.len(),
            (Self::Read { .. } | Self::SealCopy { .. }, Reply::Ledger(page)) => page.is_bounded(),
            (Self::Prune { .. }, Reply::Pruned { next }) => next.as_ref().is_none_or(Cursor::is_bounded),
            (
                Self::Acquire { resource, .. }
                | Self::Extend { resource, .. }
                | Self::Complete { resource, .. }
                | Self::Count { resource, .. }
                | Self::ResetAttempts { resource, .. },
                _,
            ) => done(resource),
            _ => false,
        }
    }
}
