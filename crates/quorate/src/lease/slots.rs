//! Numbered slots, of which a caller acquires one.

use crate::{
    config::SettingError,
    lease::{
        AcquireError, Lease, LeaseOptions, TryAcquire,
        acquire::{AttemptResult, attempt_each, is_contended},
        inner::QuorumInner,
        inspect::inspect_each,
        options::lease_options,
    },
    node::{NameError, Resource},
};
use std::{sync::Arc, time::Duration};

/// The most slots of one resource.
const SLOTS_MAX: usize = 1024;
/// The longest pause of a waiter between two attempts, without the random part.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(100);
/// The shortest pause of a waiter between two attempts.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(10);
/// The range of the random part, which keeps waiters from attempting all at once.
const JITTER: Duration = Duration::from_millis(20);

/// `k` numbered slots, of which a caller acquires one, made by [`Quorum::slots`](crate::quorum::Quorum::slots).
///
/// At most `k` workers hold a slot at a time. Each slot is the lease on `NAME/slot-I`, with a fencing counter of its
/// own. A token orders the holders of *one* slot, so a sink that checks tokens must know the slot. All workers must
/// give the same `k`: a worker that gives a larger one takes slots that the others do not know of.
///
/// # Why no counting semaphore
///
/// A count that a quorum keeps is unsound. With five nodes and room for two holders, each of three workers may be
/// counted by three nodes while no node counts more than two of them: nine grants fit into ten places. Whatever a
/// node counts, two majorities may overlap in only one node, and a node with room grants. A lease has one place on
/// each node, so any two majorities conflict; `k` leases under `k` names are `k` such places.
#[derive(Clone, Debug)]
#[must_use = "slots do nothing until one is acquired"]
pub struct Slots {
    inner: Arc<QuorumInner>,
    slots: Result<Vec<Resource>, NameError>,
    options: LeaseOptions,
    wait: Option<Duration>,
}

/// A held slot: its lease and its number. Dropping it releases the slot.
#[derive(Debug)]
#[must_use = "dropping a slot releases it"]
pub struct Slot {
    number: usize,
    lease: Lease,
}

impl Slots {
    pub(crate) fn new(inner: Arc<QuorumInner>, resource: &str, k: usize) -> Self {
        // The name is checked by itself too, so that an error shows the name as given.
        let base = Resource::lock(resource);
        let slot = |number: usize| Resource::lock(&format!("{resource}/slot-{number}"));
        let slots = base.and_then(|_| (0..k.min(SLOTS_MAX + 1)).map(slot).collect());
        Self { inner, slots, options: LeaseOptions::new(), wait: None }
    }

    lease_options!();

    /// Sets how long [`Slots::acquire`] waits. Default without a limit.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Acquires the first free slot, starting with one at random. Waits until one is free, or
    /// [`Slots::wait`] is over.
    ///
    /// # Errors
    /// [`AcquireError`], as for [`Lock::acquire`](super::Lock::acquire); *contended* names the slot that was tried
    /// last.
    ///
    /// # Cancel safety
    /// Safe: dropped attempts post their releases behind their own requests.
    pub async fn acquire(&self) -> Result<Slot, AcquireError> {
        let env = self.inner.env();
        let deadline = self.wait.map(|wait| env.now() + wait);
        loop {
            let Refusal { error, retry_after, .. } = match self.pass().await? {
                Ok(slot) => {
                    self.inner.majority_log().reached(env.now());
                    return Ok(slot);
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

    /// Makes one attempt at each slot that may be free. *Contended* means that every slot is held; it names the slot that was
    /// tried last, and its holder.
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`](super::Lock::try_acquire).
    ///
    /// # Cancel safety
    /// As for [`Slots::acquire`].
    pub async fn try_acquire(&self) -> Result<TryAcquire<Slot>, AcquireError> {
        match self.pass().await? {
            Ok(slot) => Ok(TryAcquire::Acquired(slot)),
            Err(Refusal { error: AcquireError::Contended { resource, report }, retry_after }) => {
                Ok(TryAcquire::Contended { resource, retry_after, holder: report.holder().cloned() })
            }
            Err(Refusal { error, .. }) => Err(error),
        }
    }

    /// Makes one attempt at every slot that may be free.
    async fn pass(&self) -> Result<Result<Slot, Refusal>, AcquireError> {
        let slots = self.slots.clone()?;
        if slots.is_empty() || slots.len() > SLOTS_MAX {
            let (count, fix) = (slots.len().to_string(), format!("give it 1 to {SLOTS_MAX}"));
            let reason = format!("not between 1 and {SLOTS_MAX}");
            return Err(SettingError::new("slots", count, reason, fix).into());
        }
        let params = self.options.params(self.inner.config())?;
        let first = (self.inner.env().random() % slots.len() as u64) as usize;
        let mut next = Some(first);
        let mut untried: Option<Vec<usize>> = None;
        let mut soonest: Option<Duration> = None;
        loop {
            let number = next.unwrap_or(first);
            let resource = slots[number].clone();
            let attempted = attempt_each(&self.inner, std::slice::from_ref(&resource), params).await;
            let tally = match attempted.into_iter().next().unwrap_or(AttemptResult::Closed) {
                AttemptResult::Held(lease, _) => {
                    self.options.bind(&lease, self.inner.env().now());
                    return Ok(Ok(Slot { number, lease }));
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
                // One inspection of all slots shows which to try: if all are held, it costs two round trips, not k.
                let seen = inspect_each(&self.inner, &slots).await;
                for seen in seen.iter().flatten() {
                    soonest = earlier(soonest, seen.holder.as_ref().and_then(|holder| holder.remaining));
                }
                let held = |number: usize| seen[number].as_ref().is_some_and(|seen| seen.holder.is_some());
                let others = (1..slots.len()).map(|step| (first + step) % slots.len());
                untried = Some(others.rev().filter(|&number| !held(number)).collect());
            }
            next = untried.as_mut().and_then(Vec::pop);
            if next.is_none() {
                return Ok(Err(Refusal { error, retry_after: soonest }));
            }
        }
    }
}

/// The reason why no slot was acquired, and the time after which one may be free.
struct Refusal {
    error: AcquireError,
    retry_after: Option<Duration>,
}

fn earlier(one: Option<Duration>, two: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(two).min()
}

impl Slot {
    /// Returns the number of the slot, counted from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the lease of the slot.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the lease of the slot, from now on without the number.
    pub fn into_lease(self) -> Lease {
        self.lease
    }
}
