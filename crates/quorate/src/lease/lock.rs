use super::{
    AcquireError, Lease,
    attempt::{Attempted, Terms, attempt, attempt_each, is_contended},
    hub::Hub,
    mode::Mode,
    place::Place,
};
use crate::{
    node::{NameError, Owner, Resource},
    round::{Setup, Tally},
};
use std::{sync::Arc, time::Duration};

/// A waiter looks at least this often, whatever the holder's remaining TTL.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(100);
/// What keeps waiters from coming all at once, and again all at once.
const JITTER: Duration = Duration::from_millis(20);

/// A lock about to be acquired: made by [`Quorum::lock`](super::Quorum::lock).
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    hub: Arc<Hub>,
    resource: Result<Resource, NameError>,
    ttl: Duration,
    grace: Option<Duration>,
    min_validity: Option<Duration>,
    wait: Option<Duration>,
    patience: Option<Duration>,
    extended: bool,
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
    pub(crate) fn new(hub: Arc<Hub>, resource: Result<Resource, NameError>) -> Self {
        let ttl = hub.setup().default_ttl();
        Self {
            hub,
            resource,
            ttl,
            grace: None,
            min_validity: None,
            wait: None,
            patience: None,
            extended: true,
            mode: Mode::Alone,
        }
    }

    /// The same, to be held in this way.
    pub(super) fn held(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// For how long each extension holds, and so how long a crashed holder blocks the others. Default 10 s,
    /// at most `max_ttl`.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long before the end of validity the work is told to stop. Default a fifth of the TTL.
    pub fn step_down_grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Less validity than this at the end of an attempt is a loss. Default the step-down grace.
    pub fn min_validity(mut self, least: Duration) -> Self {
        self.min_validity = Some(least);
        self
    }

    /// How long [`Lock::acquire`] waits. Default for ever.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

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

    /// Whether the keeper extends the lease. Default true; without, it ends after one TTL unless
    /// [`Lease::extend`] is called.
    pub fn auto_extend(mut self, extended: bool) -> Self {
        self.extended = extended;
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
        let (resource, terms) = self.parsed()?;
        let mut attempted = attempt_each(&self.hub, std::slice::from_ref(&resource), terms).await;
        match attempted.pop().unwrap_or(Attempted::Closed) {
            Attempted::Held(lease) => Ok(TryAcquire::Acquired(lease)),
            Attempted::Closed => Err(AcquireError::Closed),
            Attempted::Lost(_) if self.hub.env().stopped().is_cancelled() => Err(AcquireError::Closed),
            Attempted::Lost(tally) if is_contended(&tally) => Ok(TryAcquire::Contended {
                retry_after: tally.retry_after(),
                holder: tally.holder().cloned(),
            }),
            Attempted::Lost(tally) => Err(self.lost(resource, &tally)),
        }
    }

    /// Attempts until the lease is ours or [`Lock::wait`] is over. Between attempts it sleeps to the
    /// remaining TTL that the rejections carried, and looks at least every 100 ms.
    ///
    /// # Errors
    /// [`AcquireError`] as for [`Lock::try_acquire`], and [`AcquireError::Contended`] where the wait is over.
    /// What only an operator can mend is an error at once.
    ///
    /// # Cancel safety
    /// Safe: a dropped attempt posts its releases behind its own requests.
    pub async fn acquire(&self) -> Result<Lease, AcquireError> {
        let (resource, terms) = self.parsed()?;
        let env = self.hub.env();
        let deadline = self.wait.map(|wait| env.now() + wait);
        let alone = self.mode == Mode::Alone;
        let mut place = self.patience.map(|patience| Place::new(&self.hub, &resource, alone, patience));
        let mut told = false;
        loop {
            let ticket = match &mut place {
                Some(place) => place.ticket().await,
                None => None,
            };
            let tally = match attempt(&self.hub, &resource, terms, ticket).await {
                Attempted::Held(lease) => return Ok(lease),
                Attempted::Closed => return Err(AcquireError::Closed),
                Attempted::Lost(_) if env.stopped().is_cancelled() => return Err(AcquireError::Closed),
                Attempted::Lost(tally) => tally,
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
            let next = env.now() + pause(&tally, env.random_below(JITTER));
            let next = place.as_ref().map_or(next, |place| next.min(place.due()));
            env.sleep_until(deadline.map_or(next, |deadline| next.min(deadline))).await;
        }
    }

    fn parsed(&self) -> Result<(Resource, Terms), AcquireError> {
        let resource = self.resource.clone()?;
        let terms = terms(&self.hub, self.ttl, self.grace, self.min_validity, self.extended)?;
        Ok((resource, Terms { mode: self.mode, ..terms }))
    }

    fn lost(&self, resource: Resource, tally: &Tally) -> AcquireError {
        AcquireError::lost(resource, is_contended(tally), self.hub.fleet().report(tally.outcomes()))
    }
}

/// How long to wait before the next attempt.
fn pause(tally: &Tally, jitter: Duration) -> Duration {
    match (is_contended(tally), tally.holder(), tally.retry_after()) {
        // Attempts that split the votes between them have released by now: the first to come again wins.
        // (Or a holder lacks a majority's word because a node is away: so not quite at once.)
        (true, None, _) => JITTER + jitter * 2,
        (_, _, Some(left)) => (left + jitter / 4).min(LOOK_AT_LEAST_EVERY - jitter),
        (_, _, None) => LOOK_AT_LEAST_EVERY - jitter,
    }
}

/// Checked terms of a lease that is counted for `fence_retention`.
pub(crate) fn terms(
    hub: &Hub,
    ttl: Duration,
    grace: Option<Duration>,
    min_validity: Option<Duration>,
    extended: bool,
) -> Result<Terms, AcquireError> {
    let grace = grace.unwrap_or(Setup::default_grace(ttl));
    hub.setup().check_lease(ttl, grace, extended)?;
    let min_validity = min_validity.unwrap_or(grace);
    Ok(Terms { ttl, grace, min_validity, keep: hub.setup().fence_retention, extended, mode: Mode::Alone })
}
