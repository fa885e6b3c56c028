//! The shell around [`Pages`]: asks all nodes at once, each for one page after the other.

use super::{
    LedgerError,
    pages::{Pages, Turn},
};
use crate::{
    driver::NodePool,
    env::BootTime,
    node::{Cause, Cursor, FencingToken, Refusal, Request},
    vote::{NodeOutcome, ReplyTo, Vote, VoteReceiver, vote_channel},
};

/// Asks every node page by page, each page within the node timeout. Returns the nodes that answered every page, by their
/// index in the node set, each with its answer.
/// Waits for every node, since the more answer the fewer records are unknown; but once a majority has told all, the
/// others have only as long again, and the node timeout.
pub(super) async fn gather(
    pool: &NodePool,
    request: impl Fn(Option<Cursor>) -> Request,
) -> Result<Vec<(usize, Pages)>, LedgerError> {
    let (sender, mut votes) = vote_channel();
    let ask =
        |node: usize, after| pool.ask(node, request(after), ReplyTo { sender: sender.clone(), ticket: 0 });
    let mut reading = Reading::new(pool.len());
    (0..pool.len()).for_each(|node| ask(node, None));
    let (began, mut until) = (pool.env().now(), None);
    while reading.under_way > 0 {
        let Some(vote) = before(pool, until, &mut votes).await else { break };
        let (node, epoch) = (vote.node, pool.epoch(vote.node));
        if let Some(next) = reading.take(vote, epoch) {
            ask(node, Some(next));
        } else if until.is_none() && reading.whole() >= pool.majority() {
            let now = pool.env().now();
            until = Some(now + began.until(now) + pool.config().node_timeout);
        }
    }
    reading.end(pool)
}

async fn before(pool: &NodePool, until: Option<BootTime>, votes: &mut VoteReceiver) -> Option<Vote> {
    match until {
        None => votes.recv().await,
        Some(until) => pool.env().before(until, votes.recv()).await.flatten(),
    }
}

/// How far each node is.
struct Reading {
    told: Vec<Pages>,
    outcomes: Vec<NodeOutcome>,
    under_way: usize,
    superseded: Option<FencingToken>,
}

impl Reading {
    fn new(nodes: usize) -> Self {
        let told = (0..nodes).map(|_| Pages::default()).collect();
        Self { told, outcomes: vec![NodeOutcome::Pending; nodes], under_way: nodes, superseded: None }
    }

    /// Takes a page in, from a node whose memory is the `epoch`-th. Gives where it goes on.
    fn take(&mut self, vote: Vote, epoch: u64) -> Option<Cursor> {
        let node = vote.node;
        self.outcomes[node] = match self.told[node].take(vote.memory, epoch, vote.answer) {
            Turn::Ask(next) => return Some(next),
            Turn::Whole => NodeOutcome::Granted,
            Turn::Superseded(by) => {
                self.superseded = self.superseded.max(Some(by));
                NodeOutcome::Refused(Refusal::Sealed { by })
            }
            Turn::Failed(outcome) => outcome,
        };
        self.under_way -= 1;
        None
    }

    fn whole(&self) -> usize {
        self.outcomes.iter().filter(|outcome| matches!(outcome, NodeOutcome::Granted)).count()
    }

    fn end(mut self, pool: &NodePool) -> Result<Vec<(usize, Pages)>, LedgerError> {
        if let Some(by) = self.superseded {
            return Err(LedgerError::Superseded { by });
        }
        let mut answered = Vec::new();
        for (node, pages) in self.told.into_iter().enumerate() {
            let outcome = &mut self.outcomes[node];
            if !matches!(outcome, NodeOutcome::Granted) {
                continue;
            }
            if pages.is_of(pool.epoch(node)) {
                answered.push((node, pages));
            } else {
                // It has forgotten since it told all.
                *outcome = NodeOutcome::Unreachable(Cause::Closed);
            }
        }
        if answered.len() < pool.majority() {
            return Err(LedgerError::NoMajority(pool.report(self.outcomes)));
        }
        Ok(answered)
    }
}
