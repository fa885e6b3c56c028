//! The acquisition of any one of several locks, such as numbered slots.

use crate::{
    config::SettingError,
    lease::{
        AcquireError, Lease, LeaseOptions, Locks, TryAcquire,
        acquire::{AttemptResult, attempt_each, is_contended},
        contact::AskOrder,
        inner::QuorumInner,
        inspect::inspect_each,
        lock::{acquire_span, outcome_of, outcome_of_try},
    },
    node::Resource,
    sabotage::Sabotage,
};
use std::{sync::Arc, time::Duration};
use tracing::{Instrument, Span};

/// The maximum number of locks to choose from, and of numbered slots under one name.
const SLOTS_MAX: usize = 1024;
/// The longest pause of a waiter between two passes over the locks. A random part is added to it.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(100);
/// The shortest pause of a waiter between two passes over the locks.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(10);
/// The range of the random part of the pause, which keeps waiters from attempting all at once.
const JITTER: Duration = Duration::from_millis(20);

impl Locks {
    /// Returns the `k` slots of `resource`: the locks `RESOURCE/slot-0` to `RESOURCE/slot-(k - 1)`.
    pub(crate) fn slots(inner: Arc<QuorumInner>, resource: &str, k: usize) -> Self {
        // The name is checked without the suffix `/slot-N` first, so that an error shows the name as the caller
        // gave it.
        let base = Resource::lock(resource);
        let slot = |number: usize| Resource::lock(&format!("{resource}/slot-{number}"));
        let slots = base.and_then(|_| (0..k.min(SLOTS_MAX)).map(slot).collect::<Result<Vec<_>, _>>());
        let names = slots.map_err(AcquireError::from).and_then(|slots| {
            if slots.len() == k && k > 0 {
                return Ok(slots);
            }
            let (reason, fix) =
                (format!("not between 1 and {SLOTS_MAX}"), format!("give it 1 to {SLOTS_MAX}"));
            Err(SettingError::new("slots", k.to_string(), reason, fix).into())
        });
        Self { inner, names, options: LeaseOptions::new(), wait: None }
    }

    /// Acquires the first of the locks that is free, in an order that begins with a random lock. Waits until
    /// one of the locks is free, or until [`Locks::wait`] is over. Returns the lease, and the position of its
    /// lock in the list, counted from 0.
    ///
    /// # Errors
    /// [`AcquireError`], as for [`Lock::acquire`](super::Lock::acquire). [`AcquireError::Contended`] names
    /// the lock that was tried last.
    ///
    /// # Cancel safety
    /// Safe: dropped attempts send their releases after their own requests.
    pub async fn acquire_any(&self) -> Result<(usize, Lease), AcquireError> {
        let span = self.span();
        let acquired = self.wait_any().instrument(span.clone()).await;
        span.record("outcome", outcome_of(&acquired));
        acquired
    }

    async fn wait_any(&self) -> Result<(usize, Lease), AcquireError> {
        let env = self.inner.env();
        let deadline = self.wait.map(|wait| env.now() + wait);
        loop {
            let Refusal { error, retry_after, .. } = match self.pass().await? {
                Ok(acquired) => {
                    self.inner.majority_log().reached(env.now());
                    return Ok(acquired);
                }
                Err(refused) => refused,
            };
            if deadline.is_some_and(|deadline| env.now() >= deadline) || error.is_permanent() {
                return Err(error);
            }
            self.inner.log_wait(&error);
            let pause =
                retry_after.unwrap_or(LOOK_AT_LEAST_EVERY).clamp(LOOK_AT_MOST_EVERY, LOOK_AT_LEAST_EVERY);
            let next = env.now() + pause + env.random_below(JITTER);
            env.sleep_until(deadline.map_or(next, |deadline| next.min(deadline))).await;
        }
    }

    /// Makes one attempt at each lock that may be free, without waiting. [`TryAcquire::Contended`] means that
    /// no lock could be acquired. This outcome names the lock that was tried last, and the holder of that
    /// lock.
    ///
    /// # Errors
    /// The same as for [`Lock::try_acquire`](super::Lock::try_acquire).
    ///
    /// # Cancel safety
    /// The same as for [`Locks::acquire_any`].
    pub async fn try_acquire_any(&self) -> Result<TryAcquire<(usize, Lease)>, AcquireError> {
        let span = self.span();
        let passed = self.pass().instrument(span.clone()).await;
        let tried = match passed {
            Ok(Ok(acquired)) => Ok(TryAcquire::Acquired(acquired)),
            Ok(Err(Refusal { error: AcquireError::Contended { resource, report }, retry_after })) => {
                Ok(TryAcquire::Contended { resource, retry_after, holder: report.holder().cloned() })
            }
            Ok(Err(Refusal { error, .. })) | Err(error) => Err(error),
        };
        span.record("outcome", outcome_of_try(&tried));
        tried
    }

    fn span(&self) -> Span {
        match self.names.as_deref() {
            Ok(names @ [first, ..]) => acquire_span(first, names.len()),
            _ => Span::none(),
        }
    }

    /// Makes one attempt at each lock that may be free, until one is acquired. If none is acquired, returns the
    /// reason as a [`Refusal`].
    async fn pass(&self) -> Result<Result<(usize, Lease), Refusal>, AcquireError> {
        let names = self.names.clone()?;
        if names.is_empty() || names.len() > SLOTS_MAX {
            let (count, fix) = (names.len().to_string(), format!("give it 1 to {SLOTS_MAX}"));
            let reason = format!("not between 1 and {SLOTS_MAX}");
            return Err(SettingError::new("the number of locks to choose from", count, reason, fix).into());
        }
        let params = self.options.params(self.inner.config())?;
        let first = (self.inner.env().random() % names.len() as u64) as usize;
        let mut next = Some(first);
        let mut untried: Option<Vec<usize>> = None;
        let mut soonest: Option<Duration> = None;
        loop {
            let number = next.unwrap_or(first);
            let resource = names[number].clone();
            let one = std::slice::from_ref(&resource);
            let attempted = attempt_each(&self.inner, one, params, AskOrder::All).await;
            let tally = match attempted.into_iter().next().unwrap_or(AttemptResult::Closed) {
                AttemptResult::Held(lease, _) => {
                    self.options.bind(&lease, self.inner.env().now());
                    return Ok(Ok((number, lease)));
                }
                AttemptResult::Closed => return Err(AcquireError::Closed),
                AttemptResult::Lost(_) if self.inner.env().stopped().is_cancelled() => {
                    return Err(AcquireError::Closed);
                }
                AttemptResult::Lost(tally) => tally,
            };
            soonest = earlier(soonest, tally.retry_after());
            let report = self.inner.pool().report(tally.outcomes());
            let error = AcquireError::lost(resource, is_contended(&tally), report);
            if !error.is_contended() {
                return Ok(Err(Refusal { error, retry_after: None }));
            }
            if untried.is_none() {
                // One inspection of all locks shows which of them may be free. So if all of them are held, a
                // pass costs two round trips, and not one for each lock.
                let seen = inspect_each(&self.inner, &names).await;
                for seen in seen.iter().flatten() {
                    soonest = earlier(soonest, seen.remaining);
                }
                let held = |number: usize| seen[number].as_ref().is_some_and(|seen| seen.holder.is_some());
                let others = (1..names.len()).map(|step| (first + step) % names.len());
                let tries_all = !self.inner.config().sabotaged(Sabotage::OneSlotTried);
                untried = Some(others.rev().filter(|&number| tries_all && !held(number)).collect());
            }
            next = untried.as_mut().and_then(Vec::pop);
            if next.is_none() {
                return Ok(Err(Refusal { error, retry_after: soonest }));
            }
        }
    }
}

/// The reason why a pass acquired no lock, and the time after which one of the locks may be free.
struct Refusal {
    error: AcquireError,
    retry_after: Option<Duration>,
}

fn earlier(one: Option<Duration>, two: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(two).min()
}
