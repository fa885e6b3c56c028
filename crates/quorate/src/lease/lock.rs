use crate::{
    config::SettingError,
    env::BootTime,
    lease::{
        AcquireError, Lease, LeaseOptions,
        acquire::{AttemptResult, attempt, attempt_each, is_contended},
        contact::AskOrder,
        inner::QuorumInner,
        mode::Mode,
        options::lease_options,
        params::LeaseParams,
        wait::{QueueTicket, RetryBackoff},
    },
    measure::AcquireResultKind,
    node::{Owner, Resource},
    vote::Tally,
};
use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};
use tracing::{Instrument, Span, field::Empty};

/// A named lock, made by [`Quorum::lock`](crate::Quorum::lock). [`Lock::acquire`] and [`Lock::try_acquire`]
/// acquire it. [`Quorum::read_lock`](crate::Quorum::read_lock) makes a lock for reading: it has the same
/// settings, and its lease is a [`ReadLease`](crate::lease::ReadLease).
///
/// ```
/// use quorate::{Quorum, lease::TryAcquire, node::MemoryNode};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// let lock = quorum.lock("invoice-42").ttl(Duration::from_secs(5)).wait(Duration::from_secs(30));
/// let lease = lock.acquire().await?; // waits for up to 30 s
/// match quorum.lock("invoice-42").try_acquire().await? {
///     TryAcquire::Acquired(_) => unreachable!("it is held"),
///     TryAcquire::Contended { holder, .. } => assert_eq!(holder.as_ref(), Some(lease.owner())),
/// }
/// lease.release().await?;
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock<L = Lease> {
    inner: Arc<QuorumInner>,
    resource: Result<Resource, SettingError>,
    options: LeaseOptions,
    wait: Option<Duration>,
    /// The time after which a waiting caller joins the queue. `None` if it never joins.
    patience: Option<Duration>,
    mode: Mode,
    contact: AskOrder,
    on_holder: Option<OnHolder>,
    lease: PhantomData<fn() -> L>,
}

/// A callback that is called after a lost attempt, if a majority of the nodes names the same holder. Its
/// arguments are this holder and the remaining time of the holder's lease.
pub(crate) type OnHolder = Arc<dyn Fn(&Owner, Option<Duration>) + Send + Sync>;

/// The outcome of an attempt without waiting, at one lock or several, for writing or for reading.
///
/// ```
/// use quorate::{Quorum, TryAcquire, node::MemoryNode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// match quorum.slots("import", 3).try_acquire_any().await? {
///     TryAcquire::Acquired((number, _lease)) => println!("slot {number}"),
///     TryAcquire::Contended { resource, .. } => println!("{resource} and the others are taken"),
/// }
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum TryAcquire<L = Lease> {
    /// This caller holds the lock.
    Acquired(L),
    /// Another client holds the lock, or competed for it.
    Contended {
        /// The lock that is held. [`Locks::try_acquire_all`](super::Locks::try_acquire_all) reports the first
        /// held lock in the order of the names, and [`Locks::try_acquire_any`](super::Locks::try_acquire_any)
        /// the lock that it tried last.
        resource: Resource,
        /// The time after which the lock may be free, by the remaining TTLs that the nodes reported. `None` if
        /// that is not known.
        retry_after: Option<Duration>,
        /// The holder, if a majority of nodes names the same one.
        holder: Option<Owner>,
    },
}

impl<L> TryAcquire<L> {
    /// Returns the lease, or `None` if the lock was not acquired.
    pub fn acquired(self) -> Option<L> {
        match self {
            Self::Acquired(lease) => Some(lease),
            Self::Contended { .. } => None,
        }
    }

    /// Returns whether another client holds the lock, or competed for it.
    pub fn is_contended(&self) -> bool {
        matches!(self, Self::Contended { .. })
    }

    pub(super) fn map<M>(self, to: impl FnOnce(L) -> M) -> TryAcquire<M> {
        match self {
            Self::Acquired(lease) => TryAcquire::Acquired(to(lease)),
            Self::Contended { resource, retry_after, holder } => {
                TryAcquire::Contended { resource, retry_after, holder }
            }
        }
    }
}

impl<L> Lock<L> {
    pub(crate) fn new(inner: Arc<QuorumInner>, resource: Result<Resource, SettingError>) -> Self {
        Self {
            inner,
            resource,
            options: LeaseOptions::new(),
            wait: None,
            patience: None,
            mode: Mode::Exclusive,
            contact: AskOrder::MajorityFirst,
            on_holder: None,
            lease: PhantomData,
        }
    }

    /// Returns the same lock, to be acquired in this mode.
    pub(super) fn held(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets which nodes a round for this lock asks at first.
    pub(super) fn contact(mut self, contact: AskOrder) -> Self {
        self.contact = contact;
        self
    }

    /// Sets a callback, which is called after each lost attempt for which a majority of the nodes names a
    /// holder.
    pub(crate) fn on_holder(mut self, on_holder: OnHolder) -> Self {
        self.on_holder = Some(on_holder);
        self
    }

    lease_options!();

    /// Sets how long [`Lock::acquire`] waits. By default it waits without a limit.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Orders waiters by the start of their wait: a caller that has waited in [`Lock::acquire`] for longer
    /// than `patience` joins a queue on the nodes. If a node's queue is not empty, the node grants the lock
    /// only to the first waiter in the queue. Every other attempt finds the lock contended, with
    /// [`Owner::QUEUE`] as the holder. By default there is no queue.
    ///
    /// The waiters' wall clocks determine the order, so the order is only as exact as the agreement of these
    /// clocks. A worker whose clock is further than `max_clock_offset` from a node's clock cannot join the
    /// queue of that node.
    ///
    /// A waiter in the queue renews its entry. If it stops, the nodes remove the entry after three times the
    /// sum of 100 ms and two node timeouts: 0.9 s with the default settings. The queue of a lock has at most
    /// 128 waiters on a node; a waiter that finds the queue full waits outside of it. Waiting readers acquire
    /// the lock together, up to the first writer in the queue.
    pub fn fair(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    pub(super) async fn attempt(&self) -> Result<TryAcquire, AcquireError> {
        let (resource, params) = self.parsed()?;
        let span = acquire_span(&resource, 1);
        let tried = self.attempt_parsed(resource, params).instrument(span.clone()).await;
        span.record("outcome", outcome_of_try(&tried));
        tried
    }

    async fn attempt_parsed(
        &self,
        resource: Resource,
        params: LeaseParams,
    ) -> Result<TryAcquire, AcquireError> {
        let one = std::slice::from_ref(&resource);
        let began = self.inner.env().now();
        let mut attempted = attempt_each(&self.inner, one, params, self.contact).await;
        let attempted = attempted.pop().unwrap_or(AttemptResult::Closed);
        self.measure(began, &attempted);
        outcome(&self.inner, &self.options, resource, attempted)
    }

    /// Returns the end of a wait that begins now.
    pub(super) fn deadline(&self) -> Option<BootTime> {
        self.wait.map(|wait| self.inner.env().now() + wait)
    }

    /// Acquires the lock like [`Lock::acquire`], but waits only until `deadline`.
    pub(super) async fn acquire_by(&self, deadline: Option<BootTime>) -> Result<Lease, AcquireError> {
        let (resource, params) = self.parsed()?;
        let span = acquire_span(&resource, 1);
        let acquired = self.wait_parsed(resource, params, deadline).instrument(span.clone()).await;
        span.record("outcome", outcome_of(&acquired));
        acquired
    }

    async fn wait_parsed(
        &self,
        resource: Resource,
        params: LeaseParams,
        deadline: Option<BootTime>,
    ) -> Result<Lease, AcquireError> {
        let env = self.inner.env();
        let exclusive = self.mode == Mode::Exclusive;
        let mut queue_ticket =
            self.patience.map(|patience| QueueTicket::new(&self.inner, &resource, exclusive, patience));
        let mut backoff = RetryBackoff::new(&self.inner, &resource, self.mode, self.contact);
        let mut contact = backoff.first_contact();
        loop {
            let ticket = match &mut queue_ticket {
                Some(ticket) => ticket.ticket().await,
                None => None,
            };
            backoff.attempts();
            let began = env.now();
            let attempted = attempt(&self.inner, &resource, params, ticket, contact).await;
            self.measure(began, &attempted);
            let tally = match attempted {
                AttemptResult::Held(lease, _) => {
                    backoff.won();
                    self.inner.majority_log().reached(env.now());
                    self.options.bind(&lease, env.now());
                    return Ok(lease);
                }
                AttemptResult::Closed => return Err(AcquireError::Closed),
                AttemptResult::Lost(_) if env.stopped().is_cancelled() => return Err(AcquireError::Closed),
                AttemptResult::Lost(tally) => tally,
            };
            if let (Some(on_holder), Some(holder)) = (&self.on_holder, tally.holder()) {
                on_holder(holder, tally.retry_after());
            }
            // One node proves nothing. So at the end of the wait, a majority is asked once more.
            let is_doubtful = contact != self.contact && tally.holder().is_none();
            let error = self.lost(resource.clone(), &tally);
            let over = deadline.is_some_and(|deadline| env.now() >= deadline);
            if over && is_doubtful {
                contact = backoff.last_contact();
                continue;
            }
            if over || error.is_permanent() {
                return Err(error);
            }
            if !is_doubtful {
                self.inner.log_wait(&error);
            }
            // The pause must end before the waiter's entry in the queue has to be renewed.
            let due = queue_ticket.as_mut().map(QueueTicket::due);
            let until = deadline.into_iter().chain(due).min();
            contact = backoff.rest(&tally, began, until, queue_ticket.as_mut()).await;
        }
    }

    fn measure(&self, began: BootTime, attempted: &AttemptResult) {
        let kind = match attempted {
            AttemptResult::Held(..) => AcquireResultKind::Acquired,
            AttemptResult::Lost(tally) if is_contended(tally) => AcquireResultKind::Contended,
            AttemptResult::Lost(_) | AttemptResult::Closed => AcquireResultKind::Failed,
        };
        self.inner.measures().attempted(kind, began.until(self.inner.env().now()));
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

impl Lock {
    /// Makes one attempt, which takes one round trip if the lock has been used on these nodes before.
    /// Concurrent attempts may split the votes, so that all of them are lost. The call then tries again a few
    /// times, after short pauses. *Contended* therefore means that another client holds the lock, as far as
    /// the nodes can tell.
    ///
    /// # Errors
    /// [`AcquireError`] if the name or a setting cannot be used, or if too few nodes answered or may vote.
    /// Contention is not an error.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the worker releases on each node what this call may have acquired.
    /// Each node receives the release after all other requests of this call, so no request can acquire the
    /// lock after its release.
    pub async fn try_acquire(&self) -> Result<TryAcquire, AcquireError> {
        self.attempt().await
    }

    /// Waits until this caller holds the lock, or [`Lock::wait`] is over. Between attempts the call sleeps
    /// until the nodes report a release, or until the holder's TTL, as the nodes reported it, is over.
    ///
    /// The call also tries every 100 ms, because a report may be lost. Other Redlock clients, and nodes that
    /// are directories, do not report releases at all. Once a majority of the nodes has reported a release to
    /// this worker, the interval grows to 400 ms. In a long wait it grows to a sixteenth of the time without a
    /// reported release, and to 3 s at most, while a majority of the nodes names the holder.
    ///
    /// Within this process, a release wakes the caller that has waited longest. Between processes there is no
    /// order without [`Lock::fair`].
    ///
    /// # Errors
    /// [`AcquireError`] as for [`Lock::try_acquire`], and [`AcquireError::Contended`] if [`Lock::wait`] has
    /// passed.
    ///
    /// Some nodes may refuse this worker for a reason that only an operator can fix: a wrong password,
    /// missing permissions, another node list, other shared settings, a replica's role or an eviction policy.
    /// If the remaining nodes are not a majority, the error is returned at once.
    /// [`AcquireError::is_permanent`] is true for such an error.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the worker releases on each node what this call may have acquired.
    /// Each node receives the release after all other requests of this call, so no request can acquire the
    /// lock after its release. The subscription to releases ends too.
    pub async fn acquire(&self) -> Result<Lease, AcquireError> {
        self.acquire_by(self.deadline()).await
    }
}

impl<L> Clone for Lock<L> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            resource: self.resource.clone(),
            options: self.options.clone(),
            wait: self.wait,
            patience: self.patience,
            mode: self.mode,
            contact: self.contact,
            on_holder: self.on_holder.clone(),
            lease: PhantomData,
        }
    }
}

impl<L> fmt::Debug for Lock<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Lock");
        match &self.resource {
            Ok(resource) => shown.field("resource", resource),
            Err(error) => shown.field("resource", error),
        };
        shown.field("options", &self.options).field("wait", &self.wait).field("fair", &self.patience).finish()
    }
}

/// Returns the span of one call that acquires one or more locks. It covers the whole wait of the call. `lock`
/// is the first of the `locks` locks.
pub(super) fn acquire_span(lock: &Resource, locks: usize) -> Span {
    let many = (locks > 1).then_some(locks);
    tracing::debug_span!("acquire", %lock, locks = many, outcome = Empty)
}

/// Returns the outcome of a call for its span.
pub(super) fn outcome_of<T>(acquired: &Result<T, AcquireError>) -> &'static str {
    match acquired {
        Ok(_) => "acquired",
        Err(error) if error.is_contended() => "contended",
        Err(_) => "failed",
    }
}

/// Returns the outcome of a call that does not wait, for its span.
pub(super) fn outcome_of_try<L>(tried: &Result<TryAcquire<L>, AcquireError>) -> &'static str {
    match tried {
        Ok(TryAcquire::Contended { .. }) => "contended",
        other => outcome_of(other),
    }
}

/// Converts the result of an attempt into the outcome for its caller.
pub(crate) fn outcome(
    inner: &QuorumInner,
    options: &LeaseOptions,
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
        AttemptResult::Lost(tally) if is_contended(&tally) => Ok(TryAcquire::Contended {
            resource,
            retry_after: tally.retry_after(),
            holder: tally.holder().cloned(),
        }),
        AttemptResult::Lost(tally) => {
            Err(AcquireError::lost(resource, false, inner.pool().report(tally.outcomes())))
        }
    }
}
