//! The step between the acquisition of a claim and its handler. This step decides whether the attempt may
//! begin, counts the attempt on a majority, and withdraws that count if the handler never starts.

use super::Fingerprint;
use crate::{
    claim::attempts::{Payload, Turn, payload_of, turn},
    driver::NodePool,
    lease::{Lease, QuorumInner},
    node::{self, Refusal, Reply, Request, Resource},
    sabotage::Sabotage,
    vote::{Answer, NoMajority, NodeOutcome, ReplyTo, vote_channel},
};
use futures_util::future::{join, join_all};
use std::{mem, sync::Arc, time::Duration};

/// A message whose claim this worker has acquired.
pub(super) struct AcquiredMessage {
    /// The message's index in the batch.
    pub(super) at: usize,
    pub(super) lease: Lease,
    /// For each granting node, the number of attempts that it had counted before this one, and the payload that
    /// it stores.
    pub(super) counted_before: Vec<node::AttemptCount>,
    pub(super) payload: Option<Fingerprint>,
}

/// The decision on an acquired message.
pub(super) enum Beginning {
    /// The message's handler may start.
    Attempt(Start),
    /// The attempt limit is reached. This worker keeps the claim, in order to pass the message to the dead-letter
    /// hook.
    GivenUp(Start),
    /// An earlier attempt had another payload. The claim has been released.
    OtherPayload(Arc<str>),
    /// No majority counted the attempt. At least one node refused the count: on that node, this worker no
    /// longer holds the message, or the message is done, or the stored count is already at least as large as
    /// the count that this attempt sent.
    Overtaken,
    /// Too few nodes counted the attempt, or too few reported a payload. The claim is being released.
    Uncounted(NoMajority),
}

/// An attempt whose handler may start, or a message that is given up.
pub(super) struct Start {
    pub(super) lease: Lease,
    /// The number of this attempt. If the message is given up, the number of attempts that had begun.
    pub(super) attempt: u32,
    /// The payload's fingerprint that the caller gave. If the caller gave none, the fingerprint that the nodes
    /// store.
    pub(super) payload: Option<Arc<str>>,
    /// True if the attempt is counted on the nodes. If the handler never starts, the count is withdrawn.
    pub(super) counted: bool,
}

/// Withdraws the count of an attempt whose handler never started, on the nodes for which `at` returns true.
/// The caller releases the claim afterwards, and nothing waits for the answers. If a node misses the
/// withdrawal, or the worker has lost the claim, the attempt stays counted.
pub(super) fn withdraw_count(lease: &Lease, attempt: u32, keep: Duration, at: impl Fn(usize) -> bool) {
    let pool = lease.inner().pool();
    if pool.config().sabotaged(Sabotage::CountNotWithdrawn) {
        return;
    }
    let nodes = (0..pool.len()).filter(|node| at(*node));
    drop(pool.ask_some(
        nodes,
        Request::Count {
            resource: lease.resource().clone(),
            owner: lease.owner().clone(),
            attempts: attempt,
            payload: None,
            withdraw: true,
            keep,
        },
    ));
}

/// Decides on each acquired message. If there is an attempt limit or a payload, an attempt begins only after a
/// majority has counted it.
///
/// # Cancel safety
///
/// Dropping the future releases all of the messages. Counts that a node has confirmed are withdrawn. Counts
/// without a confirmation stay.
pub(super) async fn begin(
    inner: &Arc<QuorumInner>,
    acquired: Vec<AcquiredMessage>,
    limit: Option<u32>,
    keep: Duration,
) -> Vec<(usize, Beginning)> {
    let mut settled = Vec::with_capacity(acquired.len());
    let (mut counting, mut refused) = (Vec::new(), Vec::new());
    let compares = !inner.config().sabotaged(Sabotage::PayloadIgnored);
    let doubtful = acquired.iter().filter(|message| compares && message.is_doubtful());
    let asked: Vec<_> =
        doubtful.filter_map(|message| Some((message.lease.resource().clone(), message.given()?))).collect();
    let mut looks = payloads(inner.pool(), &asked).await.into_iter();
    for message in acquired {
        let look = if compares && message.is_doubtful() { looks.next() } else { None };
        let (given, AcquiredMessage { at, lease, counted_before, .. }) = (message.given(), message);
        match look {
            Some((Payload::Other(other), _)) => {
                settled.push((at, Beginning::OtherPayload(other)));
                refused.push(lease);
                continue;
            }
            Some((Payload::Unknown, outcomes)) => {
                settled.push((at, Beginning::Uncounted(inner.pool().report(outcomes))));
                continue;
            }
            Some((Payload::Free, _)) | None => {}
        }
        let needs_no_count = limit.is_none() && given.is_none();
        let payload = given.or_else(|| counted_before.iter().find_map(|begun| begun.payload.clone()));
        let limit = limit.filter(|_| !inner.config().sabotaged(Sabotage::AttemptLimitIgnored));
        match turn(counted_before.iter().map(|begun| begun.attempts), limit) {
            Turn::GivenUp(attempt) => {
                settled.push((at, Beginning::GivenUp(Start { lease, attempt, payload, counted: false })));
            }
            Turn::Begins(attempt) => {
                let start = Start { lease, attempt, payload, counted: !needs_no_count };
                if needs_no_count {
                    settled.push((at, Beginning::Attempt(start)));
                } else {
                    counting.push(Counting::new(at, start, keep, inner.pool().len()));
                }
            }
        }
    }
    // A refused message is free before its caller learns of the refusal, so the caller can reset it at once. The other
    // messages wait for that, a node timeout at most. Until then each of them withdraws its count if it is dropped.
    let released = join_all(refused.iter().map(Lease::end));
    let (counted, _) = join(count(inner.pool(), counting), released).await;
    settled.extend(counted.into_iter().map(|attempt| attempt.settled(inner.pool())));
    settled
}

impl AcquiredMessage {
    fn given(&self) -> Option<Arc<str>> {
        self.payload.as_ref().map(Fingerprint::text)
    }

    /// Returns whether a granting node stores another payload than the given one. The nodes must then be asked,
    /// because the stored payload may belong to an attempt that never began.
    fn is_doubtful(&self) -> bool {
        let given = self.given();
        given.is_some()
            && self.counted_before.iter().any(|begun| begun.payload.is_some() && begun.payload != given)
    }
}

/// Asks all nodes, for each message in `asked`, whether an attempt with another payload began. Returns as
/// soon as the answers decide this for every message, or once all nodes have answered.
pub(super) async fn payloads(
    pool: &NodePool,
    asked: &[(Resource, Arc<str>)],
) -> Vec<(Payload, Vec<NodeOutcome>)> {
    let (sender, mut votes) = vote_channel();
    for node in 0..pool.len() {
        for (ticket, (resource, _)) in (0..).zip(asked) {
            let request = Request::Inspect { resource: resource.clone() };
            pool.ask(node, request, ReplyTo { sender: sender.clone(), ticket });
        }
    }
    drop(sender);
    let unanswered = || (Vec::new(), Payload::Unknown, vec![NodeOutcome::Pending; pool.len()]);
    let mut looks: Vec<_> = asked.iter().map(|_| unanswered()).collect();
    let mut open = asked.len();
    while open > 0
        && let Some(vote) = votes.recv().await
    {
        let at = vote.ticket as usize;
        let (Some((known, verdict, outcomes)), Some((_, given))) = (looks.get_mut(at), asked.get(at)) else {
            continue;
        };
        if *verdict != Payload::Unknown {
            continue;
        }
        outcomes[vote.node] = NodeOutcome::of(&vote.answer);
        if let Answer::Reply(Reply::State { begun, done, .. }) = vote.answer {
            // A node that has the end of an attempt has no count of it any more.
            let payload = begun.and_then(|begun| begun.payload);
            known.push(payload.or_else(|| done.and_then(|done| done.payload)));
            *verdict = payload_of(given, known, pool.len());
            open -= usize::from(*verdict != Payload::Unknown);
        }
    }
    looks.into_iter().map(|(_, verdict, outcomes)| (verdict, outcomes)).collect()
}

/// An attempt that the nodes are asked to count. Dropping this value withdraws the count, unless the handler
/// may start.
struct Counting {
    at: usize,
    /// `None` once the handler may start.
    start: Option<Start>,
    keep: Duration,
    outcomes: Vec<NodeOutcome>,
    /// The nodes that have counted the attempt.
    counted: Vec<usize>,
    /// The number of nodes that refused the count. On such a node, this worker no longer holds the claim, the
    /// message is done, or at least as many attempts have been counted.
    overtaken: usize,
    pending: usize,
}

impl Drop for Counting {
    fn drop(&mut self) {
        if let Some(Start { lease, attempt, .. }) = &self.start {
            // Without a majority, the count is withdrawn only on nodes that have confirmed it. On another node, the
            // same count may belong to another worker.
            let everywhere = self.counted.len() >= counts_needed(lease.inner().pool());
            withdraw_count(lease, *attempt, self.keep, |node| everywhere || self.counted.contains(&node));
        }
    }
}

impl Counting {
    fn new(at: usize, start: Start, keep: Duration, nodes: usize) -> Self {
        let (outcomes, counted) = (vec![NodeOutcome::Pending; nodes], Vec::new());
        Self { at, start: Some(start), keep, outcomes, counted, overtaken: 0, pending: nodes }
    }

    fn request(&self) -> Option<Request> {
        let Start { lease, attempt, payload, .. } = self.start.as_ref()?;
        Some(Request::Count {
            resource: lease.resource().clone(),
            owner: lease.owner().clone(),
            attempts: *attempt,
            payload: payload.clone(),
            withdraw: false,
            keep: self.keep,
        })
    }

    fn count(&mut self, node: usize, answer: &Answer) {
        self.pending -= 1;
        self.outcomes[node] = NodeOutcome::of(answer);
        match answer {
            Answer::Reply(Reply::Counted) => self.counted.push(node),
            Answer::Reply(Reply::Done(_) | Reply::Refused(Refusal::NotOwner | Refusal::Superseded)) => {
                self.overtaken += 1;
            }
            _ => {}
        }
    }

    /// Returns whether more answers must be awaited. As long as no majority has counted the attempt, every
    /// answer is awaited, because only confirmed counts can be withdrawn.
    fn is_open(&self, needed: usize) -> bool {
        self.counted.len() < needed && self.pending > 0
    }

    fn settled(mut self, pool: &NodePool) -> (usize, Beginning) {
        let begins = self.counted.len() >= counts_needed(pool);
        let beginning = match self.start.take_if(|_| begins) {
            Some(start) => Beginning::Attempt(start),
            None if self.overtaken > 0 => Beginning::Overtaken,
            None => Beginning::Uncounted(pool.report(mem::take(&mut self.outcomes))),
        };
        (self.at, beginning)
    }
}

/// Returns the number of nodes that must count an attempt before its handler may start.
fn counts_needed(pool: &NodePool) -> usize {
    if pool.config().sabotaged(Sabotage::AttemptCountedByOne) { 1 } else { pool.majority() }
}

/// Asks all nodes to count the attempts. Returns them once each is decided.
async fn count(pool: &NodePool, mut counting: Vec<Counting>) -> Vec<Counting> {
    let needed = counts_needed(pool);
    let (sender, mut votes) = vote_channel();
    for node in 0..pool.len() {
        for (ticket, attempt) in (0..).zip(&counting) {
            let Some(request) = attempt.request() else { continue };
            pool.ask(node, request, ReplyTo { sender: sender.clone(), ticket });
        }
    }
    let mut open = counting.len();
    while open > 0
        && let Some(vote) = votes.recv().await
    {
        // The drivers answer every request. So every attempt is decided before this channel closes.
        let Some(attempt) = counting.get_mut(vote.ticket as usize) else { continue };
        if attempt.is_open(needed) {
            attempt.count(vote.node, &vote.answer);
            open -= usize::from(!attempt.is_open(needed));
        }
    }
    counting
}
