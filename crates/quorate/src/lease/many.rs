//! The acquisition of several leases in one call: all of them or none, or each independently of the others.

use crate::{
    config::SettingError,
    env::BootTime,
    lease::{
        AcquireError, Lease, LeaseLost, LeaseOptions, Lock, TryAcquire,
        acquire::{AttemptResult, attempt_each},
        contact::AskOrder,
        inner::QuorumInner,
        lock::{acquire_span, outcome, outcome_of},
        options::lease_options,
        params::LeaseParams,
    },
    node::{FencingToken, Resource},
    vote::NoMajority,
};
use futures_util::future::{join_all, select_all};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// The maximum number of locks in one call.
const MANY_MAX: usize = 10_000;

/// Several locks, which [`Quorum::locks`](crate::quorum::Quorum::locks) and, for numbered slots,
/// [`Quorum::slots`](crate::quorum::Quorum::slots) make. A caller acquires all of them together, each
/// independently, or any one of them. A name that is given twice counts once.
#[derive(Clone, Debug)]
#[must_use = "locks do nothing until they are acquired"]
pub struct Locks {
    pub(super) inner: Arc<QuorumInner>,
    pub(super) names: Result<Vec<Resource>, AcquireError>,
    pub(super) options: LeaseOptions,
    pub(super) wait: Option<Duration>,
}

/// Leases that were acquired together, in the order in which their names were given. Dropping them releases all.
#[derive(Debug)]
#[must_use = "dropping the leases releases them"]
pub struct Leases(Vec<Lease>);

impl Locks {
    pub(crate) fn new(inner: Arc<QuorumInner>, names: Result<Vec<Resource>, SettingError>) -> Self {
        let mut seen = BTreeSet::new();
        let once =
            |names: Vec<Resource>| names.into_iter().filter(|name| seen.insert(name.clone())).collect();
        Self {
            inner,
            names: names.map(once).map_err(AcquireError::from),
            options: LeaseOptions::new(),
            wait: None,
        }
    }

    lease_options!();

    /// Sets how long [`Locks::acquire_all`] and [`Locks::acquire_any`] wait. By default they wait without a
    /// limit.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Acquires all of the locks or none. Waits, like [`Lock::acquire`], until the caller holds every lock. For
    /// each lease, `max_hold` counts from its own acquisition.
    ///
    /// All locks are tried at once. Suppose that another client holds one of them. Then the leases before it
    /// *in the order of the names* are kept during the wait, and those after it are released. A caller
    /// therefore waits only for a name that comes after all names that it holds. So two callers never wait for
    /// each other.
    ///
    /// This guarantee holds only for the locks of one call. Locks that a caller acquires one by one, in another
    /// order, can still cause a deadlock.
    ///
    /// # Errors
    /// [`AcquireError`], as for [`Lock::acquire`], for the first lock that could not be acquired. Leases that
    /// had been acquired are released.
    ///
    /// # Cancel safety
    /// Safe: leases that had been acquired are released, and dropped attempts send their releases after their
    /// own requests.
    pub async fn acquire_all(&self) -> Result<Leases, AcquireError> {
        let (named, params) = self.parsed()?;
        let mut sorted = named.clone();
        sorted.sort_unstable();
        let deadline = self.wait.map(|wait| self.inner.env().now() + wait);
        let span = acquire_span(&sorted[0], sorted.len());
        let gathered = self.gather(&sorted, params, deadline).instrument(span.clone()).await;
        span.record("outcome", outcome_of(&gathered));
        let mut held = gathered?;
        // The leases were acquired in the order of their names. They are returned in the order in which the
        // caller gave the names, for callers that read the tokens.
        let place = |lease: &Lease| named.iter().position(|name| name == lease.resource());
        held.sort_by_cached_key(place);
        Ok(Leases(held))
    }

    /// Acquires all of the locks or none, without waiting if another client holds one of them.
    ///
    /// # Errors
    ///
    /// The same as for [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    ///
    /// The same as for [`Locks::acquire_all`].
    pub async fn try_acquire_all(&self) -> Result<TryAcquire<Leases>, AcquireError> {
        match self.clone().wait(Duration::ZERO).acquire_all().await {
            Ok(leases) => Ok(TryAcquire::Acquired(leases)),
            Err(AcquireError::Contended { resource, report }) => {
                let (holder, retry_after) = (report.holder().cloned(), report.retry_after());
                Ok(TryAcquire::Contended { resource, retry_after, holder })
            }
            Err(error) => Err(error),
        }
    }

    /// Makes one attempt at each lock, in one batch per node, without waiting. Returns an outcome for each, in the
    /// order of the names as given.
    ///
    /// # Errors
    /// [`AcquireError`] for a name or timings that cannot be used. In this case no request has been sent.
    ///
    /// # Cancel safety
    /// The same as for [`Locks::acquire_all`].
    pub async fn try_acquire_each(
        &self,
    ) -> Result<Vec<(Resource, Result<TryAcquire, AcquireError>)>, AcquireError> {
        let (named, params) = self.parsed()?;
        // Each lock has an outcome of its own, so the span has none.
        let span = acquire_span(&named[0], named.len());
        let attempted = attempt_each(&self.inner, &named, params, AskOrder::All).instrument(span).await;
        let each = named.into_iter().zip(attempted);
        Ok(each.map(|(name, one)| (name.clone(), outcome(&self.inner, &self.options, name, one))).collect())
    }

    /// Acquires all of `sorted`, and returns the leases in that order.
    async fn gather(
        &self,
        sorted: &[Resource],
        params: LeaseParams,
        deadline: Option<BootTime>,
    ) -> Result<Vec<Lease>, AcquireError> {
        let env = self.inner.env();
        // The leases that are held so far. These are always the leases of the first names in `sorted`.
        let mut held: Vec<Lease> = Vec::with_capacity(sorted.len());
        loop {
            let rest = &sorted[held.len()..];
            let mut lost = None;
            let attempted = attempt_each(&self.inner, rest, params, AskOrder::All).await;
            for (resource, attempted) in rest.iter().zip(attempted) {
                match attempted {
                    AttemptResult::Held(lease, _) if lost.is_none() => {
                        self.options.bind(&lease, env.now());
                        held.push(lease);
                    }
                    AttemptResult::Held(out_of_order, _) => drop(out_of_order),
                    AttemptResult::Closed => return Err(AcquireError::Closed),
                    AttemptResult::Lost(_) => lost = lost.or(Some(resource)),
                }
            }
            if let Some(resource) = lost {
                let lock = Lock::<Lease>::new(Arc::clone(&self.inner), Ok(resource.clone()));
                let lock = lock.options(self.options.clone()).contact(AskOrder::All);
                tokio::select! { biased;
                    acquired = lock.acquire_by(deadline) => held.push(acquired?),
                    // One of the held leases was lost, so its lock must be acquired again. The loop begins
                    // again instead of waiting for the other locks.
                    () = first(&held, Lease::lost_token), if !held.is_empty() => {}
                }
            }
            let stands = |lease: &Lease| {
                !lease.step_down_token().is_cancelled() && lease.remaining() > params.min_validity
            };
            if !held.iter().all(stands) {
                held.clear(); // An earlier lease ended, or nearly ended, while this call waited.
            } else if held.len() == sorted.len() {
                return Ok(held);
            }
        }
    }

    fn parsed(&self) -> Result<(Vec<Resource>, LeaseParams), AcquireError> {
        let names = self.names.clone()?;
        if names.is_empty() || names.len() > MANY_MAX {
            let count = format!("a list of {} locks", names.len());
            let reason = format!("not of 1 to {MANY_MAX}");
            let fix = format!("name 1 to {MANY_MAX} in one call");
            return Err(SettingError::new("resources", count, reason, fix).into());
        }
        Ok((names, self.options.params(self.inner.config())?))
    }
}

impl Leases {
    /// Returns each lease, in the order of the names as given.
    pub fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.0.iter()
    }

    /// Returns the fencing tokens, in the order of the names as given, if every lease is valid at this moment.
    ///
    /// # Errors
    /// [`LeaseLost`] once one of them has ended.
    pub fn fencing_tokens(&self) -> Result<Vec<FencingToken>, LeaseLost> {
        self.0.iter().map(Lease::fencing_token).collect()
    }

    /// Returns how long all of the leases are valid from now on if no extension succeeds.
    pub fn remaining(&self) -> Duration {
        self.0.iter().map(Lease::remaining).min().unwrap_or_default()
    }

    /// Waits until one of the leases must step down.
    ///
    /// # Cancel safety
    /// Safe: the call only waits.
    pub async fn any_step_down(&self) {
        first(&self.0, Lease::step_down_token).await;
    }

    /// Waits until one of the leases has ended.
    ///
    /// # Cancel safety
    /// Safe: the call only waits.
    pub async fn any_lost(&self) {
        first(&self.0, Lease::lost_token).await;
    }

    /// Returns the leases as independent handles.
    pub fn into_leases(self) -> Vec<Lease> {
        self.0
    }

    /// Ends all of the leases, and waits until a majority has confirmed the release of each, for the node
    /// timeout at most.
    ///
    /// # Errors
    /// The first [`NoMajority`]. All of the leases have ended even then.
    ///
    /// # Cancel safety
    /// The same as for [`Lease::release`].
    pub async fn release(self) -> Result<(), NoMajority> {
        join_all(self.0.iter().map(Lease::end)).await.into_iter().collect()
    }
}

/// Waits until the signal of one of `leases` fires.
async fn first(leases: &[Lease], signal: impl Fn(&Lease) -> &CancellationToken) {
    select_all(leases.iter().map(|lease| Box::pin(signal(lease).cancelled()))).await;
}
