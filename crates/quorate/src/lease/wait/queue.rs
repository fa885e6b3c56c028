use crate::{
    config::QuorumConfig,
    env::BootTime,
    lease::inner::QuorumInner,
    node::{Owner, Reply, Request, Resource},
    sabotage::Sabotage,
    vote::{Answer, Vote, VoteReceiver},
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
    /// The last request to join the queues or to renew the entries.
    asked: Option<Asked>,
    /// The number of waiters ahead, as far as it is known. A reported release reduces it.
    ahead: Option<u32>,
}

/// A request to all queues, and the votes on it.
#[derive(Debug)]
struct Asked {
    at: BootTime,
    votes: VoteReceiver,
    /// The number of nodes that have confirmed the entry.
    standing: usize,
    /// The number of nodes that have not answered.
    open: usize,
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
            ahead: None,
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
    /// Between two renewals, the entries outlast several attempts, so an attempt alone renews nothing.
    pub(crate) async fn ticket(&mut self) -> Option<Owner> {
        let inner = Arc::clone(&self.inner);
        let env = inner.env();
        if self.asked.as_ref().is_some_and(|asked| env.now() < asked.at + AGAIN) {
            return Some(self.ticket.clone());
        }
        if let Some(asked) = &mut self.asked
            && !asked.stands(inner.pool().majority(), &mut self.ahead).await
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
        let votes = inner.pool().ask_all(request);
        self.asked = Some(Asked { at: env.now(), votes, standing: 0, open: inner.pool().len() });
        Some(self.ticket.clone())
    }

    /// Returns the latest time at which the waiter must join the queues or renew its entries.
    pub(crate) fn due(&self) -> BootTime {
        match &self.asked {
            Some(asked) => asked.at + AGAIN,
            None => self.from.max(self.inner.env().now() + AGAIN),
        }
    }

    /// Returns the number of waiters that come before this one, or 0 if it is not known.
    pub(crate) fn ahead(&mut self) -> u32 {
        if let Some(asked) = &mut self.asked {
            while let Some(vote) = asked.votes.try_recv() {
                asked.count(&vote, &mut self.ahead);
            }
        }
        self.ahead.unwrap_or(0)
    }

    /// Notes a reported release of the resource, which is the turn of one waiter. Returns the number of waiters that
    /// come before this one, or 0 if it is not known.
    pub(crate) fn released(&mut self) -> u32 {
        let ahead = self.ahead();
        self.ahead = Some(ahead.saturating_sub(1));
        ahead
    }

    fn give_up(&mut self) {
        self.ahead = None;
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

impl Asked {
    /// Waits for the votes. Returns whether a majority has confirmed the request. A node that does not answer counts
    /// as failed after the node timeout.
    async fn stands(&mut self, majority: usize, ahead: &mut Option<u32>) -> bool {
        while self.standing < majority && self.standing + self.open >= majority {
            let Some(vote) = self.votes.recv().await else { return false };
            self.count(&vote, ahead);
        }
        self.standing >= majority
    }

    /// Counts a vote. Of the places that the nodes report, the first one counts: an attempt that is too early is
    /// refused, and one that is too late lets the lock wait.
    fn count(&mut self, vote: &Vote, ahead: &mut Option<u32>) {
        self.open -= 1;
        if let Answer::Reply(Reply::Queued { ahead: reported }) = vote.answer {
            *ahead = Some(if self.standing == 0 {
                reported
            } else {
                ahead.map_or(reported, |known| known.min(reported))
            });
            self.standing += 1;
        }
    }
}
