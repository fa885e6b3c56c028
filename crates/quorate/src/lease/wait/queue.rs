use crate::{
    config::QuorumConfig,
    driver::WakeOrder,
    env::BootTime,
    lease::inner::QuorumInner,
    node::{Owner, Refusal, Reply, Request, Resource},
    sabotage::Sabotage,
    vote::{Answer, Vote, VoteReceiver},
};
use std::{sync::Arc, time::Duration};

/// The longest time between two renewals of an entry in the queue, if few waiters are ahead.
const AGAIN: Duration = Duration::from_millis(100);
/// The time between two renewals grows by [`AGAIN`] with so many waiters ahead. A waiter far behind needs its entry only
/// later, and each renewal costs every node the time of a whole queue.
const AHEAD_PER_PERIOD: u32 = 8;

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
    /// The place in the queue, as far as it is known.
    place: Option<Place>,
}

/// A place in the queue that the nodes reported.
#[derive(Clone, Copy, Debug)]
struct Place {
    ahead: u32,
    /// The number of turns that this process knew of when it asked for the place.
    turns: u64,
    /// True if the queues are full, and have no entry of this waiter.
    is_refused: bool,
}

/// A request to all queues, and the votes on it.
#[derive(Debug)]
struct Asked {
    at: BootTime,
    /// The number of turns that this process knew of.
    turns: u64,
    votes: VoteReceiver,
    /// The number of nodes that have confirmed the entry, or have more waiters ahead than they keep entries of.
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
            place: None,
        }
    }

    /// Returns the time after which a node removes an entry that is not renewed. The first waiters of the queue renew theirs
    /// three times within it. The entry of a waiter far behind may end between two renewals. The next one restores
    /// it at its place.
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
        let period = self.period();
        if self.asked.as_ref().is_some_and(|asked| env.now() < asked.at + period) {
            return Some(self.ticket.clone());
        }
        if let Some(asked) = &mut self.asked
            && !asked.stands(inner.pool().majority(), &mut self.place).await
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
        let (turns, votes) = (self.turns(), inner.pool().ask_all(request));
        self.asked = Some(Asked { at: env.now(), turns, votes, standing: 0, open: inner.pool().len() });
        Some(self.ticket.clone())
    }

    /// Returns the waiter's order among those of this process, which is that of the queues.
    pub(crate) fn order(&self) -> WakeOrder {
        WakeOrder::Queued(self.at, self.ticket.clone())
    }

    /// Returns the latest time at which the waiter must join the queues or renew its entries.
    pub(crate) fn due(&mut self) -> BootTime {
        let period = self.period();
        match &self.asked {
            Some(asked) => asked.at + period,
            None => self.from.max(self.inner.env().now() + AGAIN),
        }
    }

    /// Returns the number of waiters that come before this one, or 0 if it is not known.
    pub(crate) fn ahead(&mut self) -> u32 {
        self.ahead_after(self.turns())
    }

    /// Returns the number of waiters that came before this one when the release was reported that has just woken it, or 0 if
    /// it is not known. The release is the turn of one of them.
    pub(crate) fn ahead_in_this_turn(&mut self) -> u32 {
        self.ahead_after(self.turns().saturating_sub(1))
    }

    fn ahead_after(&mut self, turns: u64) -> u32 {
        if let Some(asked) = &mut self.asked {
            while let Some(vote) = asked.votes.try_recv() {
                asked.count(&vote, &mut self.place);
            }
        }
        self.place.map_or(0, |place| {
            let since = u32::try_from(turns.saturating_sub(place.turns)).unwrap_or(u32::MAX);
            place.ahead.saturating_sub(since)
        })
    }

    /// Returns the time between two renewals at the present place. A waiter without an entry, which a full queue has refused,
    /// has none to keep.
    fn period(&mut self) -> Duration {
        let periods = 1 + self.ahead() / AHEAD_PER_PERIOD;
        let ttl = Self::ttl(self.inner.config());
        (AGAIN * periods).min(if self.place.is_some_and(|place| place.is_refused) { ttl } else { ttl / 2 })
    }

    fn turns(&self) -> u64 {
        self.inner.pool().waiters().wake_queue().turns(&self.resource)
    }

    fn give_up(&mut self) {
        self.place = None;
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
    async fn stands(&mut self, majority: usize, place: &mut Option<Place>) -> bool {
        while self.standing < majority && self.standing + self.open >= majority {
            let Some(vote) = self.votes.recv().await else { return false };
            self.count(&vote, place);
        }
        self.standing >= majority
    }

    /// Counts a vote. Of the places that the nodes report, the first one counts: an attempt that is too early is
    /// refused, and one that is too late lets the lock wait. A node whose queue is full keeps the waiters that come
    /// first, so all of them are ahead.
    fn count(&mut self, vote: &Vote, place: &mut Option<Place>) {
        self.open -= 1;
        let (reported, is_refused) = match vote.answer {
            Answer::Reply(Reply::Queued { ahead }) => (ahead, false),
            Answer::Reply(Reply::Refused(Refusal::Crowded { most })) => (most, true),
            _ => return,
        };
        let reported = Place { ahead: reported, turns: self.turns, is_refused };
        *place = match *place {
            Some(known) if self.standing > 0 && known.ahead < reported.ahead => Some(known),
            _ => Some(reported),
        };
        self.standing += 1;
    }
}
