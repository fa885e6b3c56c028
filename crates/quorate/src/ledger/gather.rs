//! Reads the [`Pages`] of a ledger from all nodes in parallel, one page after the other from each node.

use super::{
    LedgerError,
    pages::{PageResult, Pages},
};
use crate::{
    driver::NodePool,
    env::BootTime,
    node::{Cause, Cursor, Refusal, Request},
    vote::{NodeOutcome, ReplyTo, Vote, VoteReceiver, vote_channel},
};

/// Reads the ledger from every node page by page, each page within the node timeout. Returns the nodes that
/// answered every page: the index of each in the node set, and its pages.
///
/// More answers leave fewer records unknown, so the function waits for every node. Once a majority has
/// answered every page, the wait for the other nodes is limited: to the time that the call has already taken,
/// plus the node timeout.
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
    while reading.open > 0 {
        let Some(vote) = before(pool, until, &mut votes).await else { break };
        let (node, epoch) = (vote.node, pool.epoch(vote.node));
        if let Some(next) = reading.take(vote, epoch) {
            ask(node, Some(next));
        } else if until.is_none() && reading.complete() >= pool.majority() {
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

/// The pages that each node has returned so far, and the outcome of each node.
struct Reading {
    pages: Vec<Pages>,
    outcomes: Vec<NodeOutcome>,
    open: usize,
}

impl Reading {
    fn new(nodes: usize) -> Self {
        let pages = (0..nodes).map(|_| Pages::default()).collect();
        Self { pages, outcomes: vec![NodeOutcome::Pending; nodes], open: nodes }
    }

    /// Handles the page in `vote`. The present memory epoch of the node is `epoch`. Returns the cursor of the
    /// node's next page, if there is another page.
    fn take(&mut self, vote: Vote, epoch: u64) -> Option<Cursor> {
        let node = vote.node;
        self.outcomes[node] = match self.pages[node].take(vote.memory, epoch, vote.answer) {
            PageResult::More(next) => return Some(next),
            PageResult::Complete => NodeOutcome::Granted,
            // No correct node refuses a read or a prune for this reason.
            PageResult::Superseded(by) => NodeOutcome::Refused(Refusal::Sealed { by }),
            PageResult::Failed(outcome) => outcome,
        };
        self.open -= 1;
        None
    }

    fn complete(&self) -> usize {
        self.outcomes.iter().filter(|outcome| matches!(outcome, NodeOutcome::Granted)).count()
    }

    fn end(mut self, pool: &NodePool) -> Result<Vec<(usize, Pages)>, LedgerError> {
        let mut answered = Vec::new();
        for (node, pages) in self.pages.into_iter().enumerate() {
            let outcome = &mut self.outcomes[node];
            if !matches!(outcome, NodeOutcome::Granted) {
                continue;
            }
            if pages.is_of(pool.epoch(node)) {
                answered.push((node, pages));
            } else {
                // The node may have lost its memory since its last page, so its pages do not count.
                *outcome = NodeOutcome::Unreachable(Cause::Closed);
            }
        }
        if answered.len() < pool.majority() {
            return Err(LedgerError::NoMajority(pool.report(self.outcomes)));
        }
        Ok(answered)
    }
}
