use crate::{
    lease::{
        AcquireError, Lease,
        acquire::{AttemptResult, attempt, attempt_each, is_contended},
        inner::QuorumInner,
        mode::Mode,
        options::{Options, options},
        params::LeaseParams,
        wait::{QueueTicket, RetryBackoff},
    },
    node::{NameError, Owner, Resource},
    vote::Tally,
};
use std::{sync::Arc, time::Duration};

/// A lock about to be acquired: made by [`Quorum::lock`](super::Quorum::lock).
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    inner: Arc<QuorumInner>,
    resource: Result<Resource, NameError>,
    options: Options,
    /// How long to wait before a place in the queue is taken.
    patience: Option<Duration>,
    mode: Mode,
}

/// What came of one attempt.
#[derive(Debug)]
pub enum TryAcquire<L = Lease> {
    /// The lease is ours.
    Acquired(L),
    /// Someone else holds it.
    Contended {
        /// When it may be free, by the nodes' word; `None` where they could not tell.
        retry_after: Option<Duration>,
        /// Who holds it, where a majority names the same one.
        holder: Option<Owner>,
    },
}

impl Lock {
    pub(crate) fn new(inner: Arc<QuorumInner>, resource: Result<Resource, NameError>) -> Self {
        let options = Options::new(inner.config());
        Self { inner, resource, options, patience: None, mode: Mode::Alone }
    }

    /// The same, to be held in this way.
    pub(super) fn held(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The lock on `resource`, held as `options` say.
    pub(crate) fn with(inner: Arc<QuorumInner>, resource: Resource, options: Options) -> Self {
        Self { inner, resource: Ok(resource), options, patience: None, mode: Mode::Alone }
    }

    options!();

    /// Whoever has waited in [`Lock::acquire`] for longer than `patience` takes a place in a queue, ordered by when
    /// they began to wait. While anyone waits there, nodes grant to the first alone; whoever has no place is told
    /// *contended*, by [`Owner::QUEUE`]. The queue is gone with the last who waits. Default without.
    ///
    /// The order is that of the waiters' wall clocks, so it is as good as these agree; a clock that is further than
    /// `max_clock_offset` from the nodes' gets no place. Who stops asking loses the place within three times (100 ms
    /// and two node timeouts): 0.9 s at the defaults. A node keeps 128 places a resource; who finds them taken
    /// waits without.
    pub fn fair(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// One attempt: one round trip where the resource has been used on these nodes before. Where attempts of
    /// several workers split the votes, so that all are lost, it is made again after a moment, a few times:
    /// *contended* means that somebody else has it, as far as can be told.
    ///
    /// # Errors
    /// [`AcquireError`] for a name or timings that cannot be used, and where too few nodes answered or may
    /// vote. That someone else holds it is no error.
    ///
    /// # Cancel safety
    /// Safe: a dropped attempt posts its releases behind its own requests.
    pub async fn try_acquire(&self) -> Result<TryAcquire, AcquireError> {
        let (resource, params) = self.parsed()?;
        let mut attempted = attempt_each(&self.inner, std::slice::from_ref(&resource), params).await;
        outcome(&self.inner, &self.options, resource, attempted.pop().unwrap_or(AttemptResult::Closed))
    }

    /// Attempts until the lease is ours or [`Lock::wait`] is over. Between attempts it sleeps until the nodes
    /// tell that the lease was released, or to the remaining TTL that the rejections carried. Beneath that it
    /// looks every 100 ms, and, where releases have been told before, every 400 ms after a while: what is
    /// told may be lost, and other clients, and nodes that are directories, tell nothing.
    ///
    /// Whoever waits longest in this process is woken first; among processes there is no order.
    ///
    /// # Errors
    /// [`AcquireError`] as for [`Lock::try_acquire`], and [`AcquireError::Contended`] where the wait is over.
    /// What only an operator can fix is an error at once: a majority of nodes refuses this worker for a wrong password,
    /// missing rights, another node list, other shared settings, a replica's role, an eviction policy and the like.
    /// [`AcquireError::is_permanent`] tells these errors from others.
    ///
    /// # Cancel safety
    /// Safe: a dropped attempt posts its releases behind its own requests, and the nodes are no longer
    /// listened to.
    pub async fn acquire(&self) -> Result<Lease, AcquireError> {
        let (resource, params) = self.parsed()?;
        let env = self.inner.env();
        let deadline = self.options.deadline(env.now());
        let alone = self.mode == Mode::Alone;
        let mut place =
            self.patience.map(|patience| QueueTicket::new(&self.inner, &resource, alone, patience));
        let mut told = false;
        let mut patience = RetryBackoff::new(&self.inner, &resource, self.mode);
        loop {
            let ticket = match &mut place {
                Some(place) => place.ticket().await,
                None => None,
            };
            patience.attempts();
            let began = env.now();
            let tally = match attempt(&self.inner, &resource, params, ticket).await {
                AttemptResult::Held(lease, _) => {
                    patience.won();
                    self.options.bind(&lease, env.now());
                    return Ok(lease);
                }
                AttemptResult::Closed => return Err(AcquireError::Closed),
                AttemptResult::Lost(_) if env.stopped().is_cancelled() => return Err(AcquireError::Closed),
                AttemptResult::Lost(tally) => tally,
            };
            let error = self.lost(resource.clone(), &tally);
            let over = deadline.is_some_and(|deadline| env.now() >= deadline);
            if over || error.is_permanent() {
                return Err(error);
            }
            if !told && !error.is_contended() {
                tracing::warn!("waiting for a quorum: {error}");
                told = true;
            }
            // A place in the queue is to be asked for again in time.
            let due = place.as_ref().map(QueueTicket::due);
            patience.rest(&tally, began, deadline.into_iter().chain(due).min()).await;
        }
    }

    fn parsed(&self) -> Result<(Resource, LeaseParams), AcquireError> {
        let resource = self.resource.clone()?;
        let params = self.options.params(self.inner.config())?;
        Ok((resource, LeaseParams { mode: self.mode, ..params }))
    }

    fn lost(&self, resource: Resource, tally: &Tally) -> AcquireError {
        AcquireError::lost(resource, is_contended(tally), self.inner.pool().report(tally.outcomes()))
    }
}

/// What one attempt is to whoever made it.
pub(crate) fn outcome(
    inner: &QuorumInner,
    options: &Options,
    resource: Resource,
    attempted: AttemptResult,
) -> Result<TryAcquire, AcquireError> {
    match attempted {
        AttemptResult::Held(lease, _) => {
            options.bind(&lease, inner.env().now());
            Ok(TryAcquire::Acquired(lease))
        }
        AttemptResult::Closed => Err(AcquireError::Closed),
        AttemptResult::Lost(_) if inner.env().stopped().is_cancelled() => Err(AcquireError::Closed),
        AttemptResult::Lost(tally) if is_contended(&tally) => {
            Ok(TryAcquire::Contended { retry_after: tally.retry_after(), holder: tally.holder().cloned() })
        }
        AttemptResult::Lost(tally) => {
            Err(AcquireError::lost(resource, false, inner.pool().report(tally.outcomes())))
        }
    }
}
