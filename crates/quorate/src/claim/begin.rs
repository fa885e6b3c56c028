//! Between a claim that was won and its handler: whether it may begin, and that it is counted.

use super::Fingerprint;
use crate::{
    lease::{Hub, Lease},
    node::{self, Owner, Refusal, Reply, Request},
    round::{
        Answer, Fleet, NodeOutcome, ReplyTo, Report,
        attempts::{Turn, turn},
        ballots,
    },
};
use std::{sync::Arc, time::Duration};

/// A message that was won.
pub(super) struct Won {
    /// Its place in the batch.
    pub(super) at: usize,
    pub(super) lease: Lease,
    /// What the granting nodes had counted before.
    pub(super) standing: Vec<node::Begun>,
    pub(super) payload: Option<Fingerprint>,
}

/// What may become of it.
pub(super) enum Begun {
    /// Its handler may begin: this is attempt so and so.
    Attempt(Lease, u32),
    /// As many as may begin have begun. It is held, to be handed over.
    GivenUp(Lease, u32),
    /// It was begun with another payload, and has been released.
    OtherPayload(Arc<str>),
    /// Somebody else holds it by now.
    Overtaken(Option<Owner>),
    /// Too few nodes counted it, and it has been released.
    Uncounted(Report),
}

/// Counts each attempt that may begin on a majority, where there is a limit or a payload to be kept.
///
/// # Cancel safety
/// Dropping it releases all of them; some may have been counted.
pub(super) async fn begin(
    hub: &Arc<Hub>,
    won: Vec<Won>,
    limit: Option<u32>,
    keep: Duration,
) -> Vec<(usize, Begun)> {
    let mut settled = Vec::with_capacity(won.len());
    let mut counting = Vec::new();
    for Won { at, lease, standing, payload } in won {
        let payload = payload.map(|payload| payload.text());
        let other = payload.as_ref().and_then(|given| {
            standing.iter().filter_map(|begun| begun.payload.as_ref()).find(|standing| *standing != given)
        });
        if let Some(other) = other {
            settled.push((at, Begun::OtherPayload(Arc::clone(other))));
            continue;
        }
        match turn(standing.iter().map(|begun| begun.attempts), limit) {
            Turn::GivenUp(attempts) => settled.push((at, Begun::GivenUp(lease, attempts))),
            Turn::Begins(attempt) if limit.is_none() && payload.is_none() => {
                settled.push((at, Begun::Attempt(lease, attempt)));
            }
            Turn::Begins(attempt) => {
                counting.push(Counting::new(at, lease, attempt, payload, hub.fleet().len()))
            }
        }
    }
    settled.extend(count(hub.fleet(), counting, keep).await);
    settled
}

/// One attempt whose count is on its way.
struct Counting {
    at: usize,
    lease: Lease,
    attempt: u32,
    payload: Option<Arc<str>>,
    outcomes: Vec<NodeOutcome>,
    counted: usize,
    /// Nodes where it is no longer ours, or where somebody counted as many.
    overtaken: usize,
    pending: usize,
}

impl Counting {
    fn new(at: usize, lease: Lease, attempt: u32, payload: Option<Arc<str>>, nodes: usize) -> Self {
        let outcomes = vec![NodeOutcome::Pending; nodes];
        Self { at, lease, attempt, payload, outcomes, counted: 0, overtaken: 0, pending: nodes }
    }

    fn request(&self, keep: Duration) -> Request {
        Request::Count {
            resource: self.lease.resource().clone(),
            owner: self.lease.owner().clone(),
            attempts: self.attempt,
            payload: self.payload.clone(),
            back: false,
            keep,
        }
    }

    fn count(&mut self, node: usize, answer: &Answer) {
        self.pending -= 1;
        self.outcomes[node] = NodeOutcome::of(answer);
        match answer {
            Answer::Reply(Reply::Counted) => self.counted += 1,
            Answer::Reply(Reply::Done(_) | Reply::Refused(Refusal::NotOwner | Refusal::Superseded)) => {
                self.overtaken += 1;
            }
            _ => {}
        }
    }

    fn is_open(&self, majority: usize) -> bool {
        self.counted < majority && self.counted + self.pending >= majority
    }

    fn settled(self, fleet: &Fleet) -> (usize, Begun) {
        let begun = if self.counted >= fleet.majority() {
            Begun::Attempt(self.lease, self.attempt)
        } else if self.overtaken > 0 {
            Begun::Overtaken(None)
        } else {
            Begun::Uncounted(fleet.report(self.outcomes))
        };
        (self.at, begun)
    }
}

async fn count(fleet: &Fleet, mut counting: Vec<Counting>, keep: Duration) -> Vec<(usize, Begun)> {
    let (ballots, mut votes) = ballots();
    for node in 0..fleet.len() {
        for (ticket, attempt) in (0..).zip(&counting) {
            fleet.ask(node, attempt.request(keep), ReplyTo { ballots: ballots.clone(), ticket });
        }
    }
    let mut open = counting.len();
    while open > 0
        && let Some(vote) = votes.recv().await
    {
        // Every post is answered, so every attempt is settled before this channel runs dry.
        let Some(attempt) = counting.get_mut(vote.ticket as usize) else { continue };
        if attempt.is_open(fleet.majority()) {
            attempt.count(vote.node, &vote.answer);
            open -= usize::from(!attempt.is_open(fleet.majority()));
        }
    }
    counting.into_iter().map(|attempt| attempt.settled(fleet)).collect()
}
