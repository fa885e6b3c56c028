use super::CompleteError;
use crate::{
    env::WallTime,
    lease::Lease,
    node::{DoneRecord, Owner, Refusal, Reply, Request, engine::RESULT_MAX},
    round::{Answer, Fleet, NodeOutcome},
};
use std::{sync::Arc, time::Duration};

/// How long to wait before nodes that failed are asked again.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// That a message is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// When, as it is recorded.
    pub at: WallTime,
    /// How many nodes have recorded it: at least a majority.
    pub nodes: usize,
}

/// Ends the lease without releasing it, so that nobody gets in between, and records that it is done.
pub(super) async fn complete(
    lease: &Lease,
    mut record: DoneRecord,
    retention: Duration,
) -> Result<Completed, CompleteError> {
    if record.result.len() > RESULT_MAX {
        return Err(CompleteError::TooLong { length: record.result.len(), most: RESULT_MAX });
    }
    let fleet = Arc::clone(lease.hub().fleet());
    lease.forget();
    let deadline = fleet.env().now() + lease.ttl();
    (record.token, record.at) = (lease.token(), fleet.env().wall().as_micros());
    let mut votes = Votes {
        outcomes: vec![NodeOutcome::Pending; fleet.len()],
        at: WallTime::from_micros(record.at),
        completed: 0,
        superseded: 0,
        done: None,
    };
    let mut todo: Vec<usize> = (0..fleet.len()).collect();
    loop {
        let mut ballots = fleet.ask_some(todo, |_| Request::Complete {
            resource: lease.resource().clone(),
            owner: lease.owner().clone(),
            record: record.clone(),
            retention,
        });
        votes.superseded = 0;
        while let Some(vote) = ballots.recv().await {
            votes.count(vote.node, vote.answer);
        }
        if let Some(verdict) = votes.verdict(&fleet) {
            // Nobody is to wait there for the claim's TTL: it is settled, but the node would not take it (its
            // marker changed, say). Behind a *complete* that is under way yet it finds nothing to free.
            fleet.release(lease.resource(), lease.owner(), |node| !votes.stands_at(node), None);
            return verdict;
        }
        if fleet.env().now() >= deadline || fleet.env().stopped().is_cancelled() {
            return Err(CompleteError::NoMajority(fleet.report(votes.outcomes)));
        }
        fleet.env().sleep(RETRY_AFTER).await;
        todo = votes.unanswered();
    }
}

struct Votes {
    outcomes: Vec<NodeOutcome>,
    at: WallTime,
    completed: usize,
    /// Nodes where a later claim has been counted, and ended.
    superseded: usize,
    done: Option<DoneRecord>,
}

impl Votes {
    fn count(&mut self, node: usize, answer: Answer) {
        self.outcomes[node] = NodeOutcome::of(&answer);
        match answer {
            Answer::Reply(Reply::Completed) => self.completed += 1,
            Answer::Reply(Reply::Done(done)) => self.done = Some(done),
            Answer::Reply(Reply::Refused(Refusal::Superseded)) => self.superseded += 1,
            _ => {}
        }
    }

    /// Settled by a majority, or once every node has spoken.
    fn verdict(&self, fleet: &Fleet) -> Option<Result<Completed, CompleteError>> {
        if self.completed >= fleet.majority() {
            return Some(Ok(Completed { at: self.at, nodes: self.completed }));
        }
        if let Some(done) = &self.done {
            return Some(Err(CompleteError::AlreadyDone(done.clone())));
        }
        if self.outcomes.len() - self.superseded < fleet.majority() {
            return Some(Err(CompleteError::Superseded));
        }
        if let Some(holder) = self.holders().find(|owner| {
            let held = self.holders().filter(|other| other == owner).count();
            self.outcomes.len() - held < fleet.majority()
        }) {
            return Some(Err(CompleteError::TakenOver { holder: holder.clone() }));
        }
        None
    }

    fn stands_at(&self, node: usize) -> bool {
        matches!(self.outcomes[node], NodeOutcome::Granted)
    }

    fn holders(&self) -> impl Iterator<Item = &Owner> {
        self.outcomes.iter().filter_map(|outcome| match outcome {
            NodeOutcome::Contended { holder, .. } => Some(holder),
            _ => None,
        })
    }

    fn unanswered(&self) -> Vec<usize> {
        (0..self.outcomes.len()).filter(|&node| !self.stands_at(node)).collect()
    }
}
