//! Between a claim that was won and its handler: whether it may begin, and that it is counted.

use super::Fingerprint;
use crate::{
    lease::{Hub, Lease},
    node::{self, Refusal, Reply, Request},
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
    /// Its handler may begin.
    Attempt(Start),
    /// As many as may begin have begun. It is held, to be handed over.
    GivenUp(Start),
    /// It was begun with another payload, and has been released.
    OtherPayload(Arc<str>),
    /// Somebody else holds it by now.
    Overtaken,
    /// Too few nodes counted it, and it has been released.
    Uncounted(Report),
}

/// What begins, or never will.
pub(super) struct Start {
    pub(super) lease: Lease,
    /// Which attempt this is, or how many there were.
    pub(super) attempt: u32,
    /// The fingerprint that was given, or stands from before.
    pub(super) payload: Option<Arc<str>>,
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
        let given = payload.map(|payload| payload.text());
        let mut stood = standing.iter().filter_map(|begun| begun.payload.clone());
        if let Some(other) = given.as_ref().and_then(|given| stood.find(|stood| stood != given)) {
            settled.push((at, Begun::OtherPayload(other)));
            continue;
        }
        let uncounted = limit.is_none() && given.is_none();
        let payload = given.or_else(|| standing.iter().find_map(|begun| begun.payload.clone()));
        match turn(standing.iter().map(|begun| begun.attempts), limit) {
            Turn::GivenUp(attempt) => {
                settled.push((at, Begun::GivenUp(Start { lease, attempt, payload })));
            }
            Turn::Begins(attempt) => {
                let start = Start { lease, attempt, payload };
                if uncounted {
                    settled.push((at, Begun::Attempt(start)));
                } else {
                    counting.push(Counting::new(at, start, hub.fleet().len()));
                }
            }
        }
    }
    settled.extend(count(hub.fleet(), counting, keep).await);
    settled
}

/// One attempt whose count is on its way.
struct Counting {
    at: usize,
    start: Start,
    outcomes: Vec<NodeOutcome>,
    counted: usize,
    /// Nodes where it is no longer ours, or where somebody counted as many.
    overtaken: usize,
    pending: usize,
}

impl Counting {
    fn new(at: usize, start: Start, nodes: usize) -> Self {
        let outcomes = vec![NodeOutcome::Pending; nodes];
        Self { at, start, outcomes, counted: 0, overtaken: 0, pending: nodes }
    }

    fn request(&self, keep: Duration) -> Request {
        let Start { lease, attempt, payload } = &self.start;
        Request::Count {
            resource: lease.resource().clone(),
            owner: lease.owner().clone(),
            attempts: *attempt,
            payload: payload.clone(),
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
            Begun::Attempt(self.start)
        } else if self.overtaken > 0 {
            Begun::Overtaken
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
