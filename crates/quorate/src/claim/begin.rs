//! Between a claim that was won and its handler: whether it may begin, and that it is counted; and that it is counted no
//! more where its handler never began after all.

use super::Fingerprint;
use crate::{
    claim::attempts::{Payload, Turn, payload_of, turn},
    driver::NodePool,
    lease::{Lease, QuorumInner},
    node::{self, Refusal, Reply, Request, Resource},
    vote::{Answer, NodeOutcome, ReplyTo, Report, vote_channel},
};
use std::{mem, sync::Arc, time::Duration};

/// A message that was won.
pub(super) struct AcquiredMessage {
    /// Its place in the batch.
    pub(super) at: usize,
    pub(super) lease: Lease,
    /// What the granting nodes had counted before.
    pub(super) standing: Vec<node::AttemptCount>,
    pub(super) payload: Option<Fingerprint>,
}

/// What may become of it.
pub(super) enum Begun {
    /// Its handler may begin.
    Attempt(Start),
    /// As many as may begin have begun. It is held, to be handed over.
    GivenUp(Start),
    /// It was begun with another payload, and has been released.
    OtherPayload(Arc<str>),
    /// Somebody else holds it by now.
    Overtaken,
    /// Too few nodes counted it, or told what payload they know, and it has been released.
    Uncounted(Report),
}

/// What begins, or never will.
pub(super) struct Start {
    pub(super) lease: Lease,
    /// Which attempt this is, or how many there were.
    pub(super) attempt: u32,
    /// The fingerprint that was given, or stands from before.
    pub(super) payload: Option<Arc<str>>,
    /// A majority counts it: to be taken back where the handler never begins.
    pub(super) counted: bool,
}

/// Has the nodes count an attempt no more whose handler never began. Goes ahead of the claim's release, and nobody waits:
/// where it is missed, or the claim is lost before, one attempt more is counted.
pub(super) fn take_back(lease: &Lease, attempt: u32, keep: Duration, at: impl Fn(usize) -> bool) {
    let pool = lease.inner().pool();
    let nodes = (0..pool.len()).filter(|node| at(*node));
    drop(pool.ask_some(nodes, |_| Request::Count {
        resource: lease.resource().clone(),
        owner: lease.owner().clone(),
        attempts: attempt,
        payload: None,
        back: true,
        keep,
    }));
}

/// Counts each attempt that may begin on a majority, where there is a limit or a payload to be kept.
///
/// # Cancel safety
/// Dropping it releases all of them; what it has heard to be counted is taken back, and the rest counts.
pub(super) async fn begin(
    inner: &Arc<QuorumInner>,
    won: Vec<AcquiredMessage>,
    limit: Option<u32>,
    keep: Duration,
) -> Vec<(usize, Begun)> {
    let mut settled = Vec::with_capacity(won.len());
    let mut counting = Vec::new();
    let doubtful = won.iter().filter(|won| won.is_doubtful());
    let looks: Vec<_> =
        doubtful.filter_map(|won| Some((won.lease.resource().clone(), won.given()?))).collect();
    let mut looks = payloads(inner.pool(), &looks).await.into_iter();
    for won in won {
        let look = if won.is_doubtful() { looks.next() } else { None };
        let (given, AcquiredMessage { at, lease, standing, .. }) = (won.given(), won);
        match look {
            Some((Payload::Other(other), _)) => {
                settled.push((at, Begun::OtherPayload(other)));
                continue;
            }
            Some((Payload::Unknown, outcomes)) => {
                settled.push((at, Begun::Uncounted(inner.pool().report(outcomes))));
                continue;
            }
            Some((Payload::Free, _)) | None => {}
        }
        let uncounted = limit.is_none() && given.is_none();
        let payload = given.or_else(|| standing.iter().find_map(|begun| begun.payload.clone()));
        match turn(standing.iter().map(|begun| begun.attempts), limit) {
            Turn::GivenUp(attempt) => {
                settled.push((at, Begun::GivenUp(Start { lease, attempt, payload, counted: false })));
            }
            Turn::Begins(attempt) => {
                let start = Start { lease, attempt, payload, counted: !uncounted };
                if uncounted {
                    settled.push((at, Begun::Attempt(start)));
                } else {
                    counting.push(Counting::new(at, start, keep, inner.pool().len()));
                }
            }
        }
    }
    settled.extend(count(inner.pool(), counting).await);
    settled
}

impl AcquiredMessage {
    fn given(&self) -> Option<Arc<str>> {
        self.payload.as_ref().map(Fingerprint::text)
    }

    /// Whether a granting node knows another payload: perhaps of an attempt that never began.
    fn is_doubtful(&self) -> bool {
        let given = self.given();
        given.is_some() && self.standing.iter().any(|begun| begun.payload.is_some() && begun.payload != given)
    }
}

/// Whether another payload than the one that is given stands, of each: what all nodes know, as far as it takes.
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
    let unheard = || (Vec::new(), Payload::Unknown, vec![NodeOutcome::Pending; pool.len()]);
    let mut looks: Vec<_> = asked.iter().map(|_| unheard()).collect();
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
        if let Answer::Reply(Reply::State { begun, .. }) = vote.answer {
            known.push(begun.and_then(|begun| begun.payload));
            *verdict = payload_of(given, known, pool.len());
            open -= usize::from(*verdict != Payload::Unknown);
        }
    }
    looks.into_iter().map(|(_, verdict, outcomes)| (verdict, outcomes)).collect()
}

/// One attempt whose count is on its way. Dropped, it is taken back, unless it has begun.
struct Counting {
    at: usize,
    /// None once it has begun.
    start: Option<Start>,
    keep: Duration,
    outcomes: Vec<NodeOutcome>,
    /// Nodes that have said so.
    counted: Vec<usize>,
    /// Nodes where it is no longer ours, or where somebody counted as many.
    overtaken: usize,
    pending: usize,
}

impl Drop for Counting {
    fn drop(&mut self) {
        if let Some(Start { lease, attempt, .. }) = &self.start {
            // As many may stand elsewhere, and be another's.
            take_back(lease, *attempt, self.keep, |node| self.counted.contains(&node));
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
            back: false,
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

    /// Every node is heard where it does not begin: what is not known to be counted is not taken back.
    fn is_open(&self, majority: usize) -> bool {
        self.counted.len() < majority && self.pending > 0
    }

    fn settled(mut self, pool: &NodePool) -> (usize, Begun) {
        let begins = self.counted.len() >= pool.majority();
        let begun = match self.start.take_if(|_| begins) {
            Some(start) => Begun::Attempt(start),
            None if self.overtaken > 0 => Begun::Overtaken,
            None => Begun::Uncounted(pool.report(mem::take(&mut self.outcomes))),
        };
        (self.at, begun)
    }
}

async fn count(pool: &NodePool, mut counting: Vec<Counting>) -> Vec<(usize, Begun)> {
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
        // Every post is answered, so every attempt is settled before this channel runs dry.
        let Some(attempt) = counting.get_mut(vote.ticket as usize) else { continue };
        if attempt.is_open(pool.majority()) {
            attempt.count(vote.node, &vote.answer);
            open -= usize::from(!attempt.is_open(pool.majority()));
        }
    }
    counting.into_iter().map(|attempt| attempt.settled(pool)).collect()
}
