use crate::{
    config::QuorumConfig,
    env::BootTime,
    lease::inner::QuorumInner,
    node::{Owner, Reply, Request, Resource},
    sabotage::Sabotage,
    vote::{Answer, VoteReceiver},
};
use std::{sync::Arc, time::Duration};

/// The longest time between two renewals of a waiter's entry in the queue.
const AGAIN: Duration = Duration::from_millis(100);

/// A waiter's ticket in the nodes' queues for one resource. Each node's queue has an entry for the ticket.
/// The waiter joins the queues once its patience is over. Dropping this value removes the entry from every
/// node.
///
/// The waiter renews its entries only while a majority of the nodes has one. Otherwise two waiters that each
/// reach only some of the nodes could both stay at the head of the queue on their nodes. Neither would then
/// acquire the lock.
#[derive(Debug)]
pub(crate) struct QueueTicket {
    inner: Arc<QuorumInner>,
    resource: Resource,
    ticket: Owner,
    /// The time at which the wait began, in microseconds of the waiter's wall clock. The nodes order their
    /// queues by this time.
    at: u64,
    exclusive: bool,
    /// The time from which the waiter joins the queues.
    from: BootTime,
    /// The votes on the last request to join the queues or to renew the entries.
    asked: Option<VoteReceiver>,
}

impl QueueTicket {
    pub(crate) fn new(
        inner: &Arc<QuorumInner>,
        resource: &Resource,
        exclusive: bool,
        patience: Duration,
    ) -> Self {
        let (pool, env) = (inner.pool(), inner.env());
        Self {
            inner: Arc::clone(inner),
            resource: resource.clone(),
            ticket: pool.sign(),
            at: env.wall().as_micros(),
            exclusive,
            from: env.now() + patience,
            asked: None,
        }
    }

    /// Returns the time after which a node removes an entry that is not renewed: three times the longest time
    /// between two renewals.
    pub(crate) fn ttl(config: &QuorumConfig) -> Duration {
        (AGAIN + config.node_timeout * 2) * 3
    }

    /// Joins the queues or renews the entries, and returns the ticket for the next attempt. Returns `None`
    /// while the waiter's patience lasts. If fewer than a majority of the nodes confirmed the last request,
    /// the waiter leaves all queues. The waiter then gets `None` for a random time, between one and two
    /// lifetimes of an entry ([`QueueTicket::ttl`]).
    ///
    /// The requests of the next attempt are sent after the renewal, so each node handles the renewal first.
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
        if self.asked.is_none() && inner.config().sabotaged(Sabotage::QueuedByArrival) {
            self.at = env.wall().as_micros();
        }
        let request = Request::Queue {
            resource: self.resource.clone(),
            ticket: self.ticket.clone(),
            at: self.at,
            now: env.wall().as_micros(),
            tolerance: inner.config().max_clock_offset,
            ttl: Self::ttl(inner.config()),
            exclusive: self.exclusive,
        };
        self.asked = Some(inner.pool().ask_all(|_| request.clone()));
        Some(self.ticket.clone())
    }

    /// Returns the latest time at which the waiter must join the queues or renew its entries.
    pub(crate) fn due(&self) -> BootTime {
        let soon = self.inner.env().now() + AGAIN;
        if self.asked.is_some() { soon } else { self.from.max(soon) }
    }

    fn give_up(&mut self) {
        if self.asked.take().is_some() {
            let (resource, ticket) = (self.resource.clone(), self.ticket.clone());
            self.inner.pool().free(Request::LeaveQueue { resource, ticket }, |_| true, None);
        }
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Waits for the votes on the last request. Returns whether a majority has confirmed it. A node that does not
/// answer counts as failed after the node timeout.
async fn stands(votes: &mut VoteReceiver, nodes: usize, majority: usize) -> bool {
    let (mut standing, mut open) = (0, nodes);
    while standing < majority && standing + open >= majority {
        let Some(vote) = votes.recv().await else { return false };
        open -= 1;
        standing += usize::from(matches!(vote.answer, Answer::Reply(Reply::Queued { .. })));
    }
    standing >= majority
}
