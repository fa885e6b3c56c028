use crate::{
    config::QuorumConfig,
    env::BootTime,
    lease::inner::QuorumInner,
    node::{Owner, Reply, Request, Resource},
    vote::{Answer, VoteReceiver},
};
use std::{sync::Arc, time::Duration};

/// A place is asked for again at least this often.
const AGAIN: Duration = Duration::from_millis(100);

/// A place in the nodes' queues for one resource, from when its waiter's patience is over. Dropping it gives it up
/// everywhere.
///
/// It is asked for again only while a majority has it. Otherwise two waiters that each reach a part of the nodes
/// could stand at the head of a part for ever, and neither would come in.
#[derive(Debug)]
pub(crate) struct QueueTicket {
    inner: Arc<QuorumInner>,
    resource: Resource,
    ticket: Owner,
    /// When the waiter began, by its wall clock: what the nodes order by.
    at: u64,
    alone: bool,
    /// Not before this.
    from: BootTime,
    /// What the nodes say to the last time it was asked for.
    asked: Option<VoteReceiver>,
}

impl QueueTicket {
    pub(crate) fn new(
        inner: &Arc<QuorumInner>,
        resource: &Resource,
        alone: bool,
        patience: Duration,
    ) -> Self {
        let (pool, env) = (inner.pool(), inner.env());
        Self {
            inner: Arc::clone(inner),
            resource: resource.clone(),
            ticket: pool.sign(),
            at: env.wall().as_micros(),
            alone,
            from: env.now() + patience,
            asked: None,
        }
    }

    /// How long a place stands on a node if it is not asked for again: three times as long as that may take.
    pub(crate) fn ttl(config: &QuorumConfig) -> Duration {
        (AGAIN + config.node_timeout * 2) * 3
    }

    /// Asks for the place again, and gives the ticket under which to attempt: `None` while the waiter is patient,
    /// and for a while after fewer than a majority had it.
    ///
    /// The attempt's requests go behind these, and so run on each node after them.
    pub(crate) async fn ticket(&mut self) -> Option<Owner> {
        let inner = Arc::clone(&self.inner);
        let env = inner.env();
        if let Some(votes) = &mut self.asked
            && !stands(votes, inner.pool().len(), inner.pool().majority()).await
        {
            self.give_up();
            let ttl = Self::ttl(inner.config());
            self.from = env.now() + ttl + env.random_below(ttl);
        }
        if env.now() < self.from {
            return None;
        }
        let request = Request::Queue {
            resource: self.resource.clone(),
            ticket: self.ticket.clone(),
            at: self.at,
            now: env.wall().as_micros(),
            tolerance: inner.config().max_clock_offset,
            ttl: Self::ttl(inner.config()),
            alone: self.alone,
        };
        self.asked = Some(inner.pool().ask_all(|_| request.clone()));
        Some(self.ticket.clone())
    }

    /// When it is to be asked for again at the latest.
    pub(crate) fn due(&self) -> BootTime {
        let soon = self.inner.env().now() + AGAIN;
        if self.asked.is_some() { soon } else { self.from.max(soon) }
    }

    fn give_up(&mut self) {
        if self.asked.take().is_some() {
            let (resource, ticket) = (self.resource.clone(), self.ticket.clone());
            self.inner.pool().free(&Request::LeaveQueue { resource, ticket }, |_| true, None);
        }
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Whether a majority says that the place stands. Every node has said so or not within the node timeout.
async fn stands(votes: &mut VoteReceiver, nodes: usize, majority: usize) -> bool {
    let (mut standing, mut open) = (0, nodes);
    while standing < majority && standing + open >= majority {
        let Some(vote) = votes.recv().await else { return false };
        open -= 1;
        standing += usize::from(matches!(vote.answer, Answer::Reply(Reply::Queued { .. })));
    }
    standing >= majority
}
