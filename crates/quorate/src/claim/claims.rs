use super::{Claim, ClaimHandle, ProcessError};
use crate::{
    lease::{AcquireError, Attempted, Quorum, Terms, attempt_each, is_contended, lease_terms},
    node::{
        NameError, Owner, Resource,
        engine::{RESULT_MAX, cut},
    },
};
use std::{sync::Arc, time::Duration};

/// Claims on the messages of one set (a queue, a topic).
#[derive(Clone, Debug)]
pub struct Claims {
    quorum: Quorum,
    set: Arc<str>,
    ttl: Duration,
    grace: Option<Duration>,
    retention: Duration,
}

/// What came of a claim.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClaimOutcome {
    /// The message is ours to handle.
    Claimed(Claim),
    /// Someone else is handling it.
    InProgress {
        /// When it may be free, by the nodes' word.
        retry_after: Option<Duration>,
        /// Who, where a majority names the same one.
        holder: Option<Owner>,
    },
    /// It has been handled.
    Done {
        /// What came of it.
        result: Arc<str>,
    },
}

/// What came of [`Claims::process`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Processed {
    /// Handled here, and recorded.
    Handled,
    /// Someone else is handling it.
    InProgress {
        /// When it may be free, by the nodes' word.
        retry_after: Option<Duration>,
    },
    /// It had been handled.
    AlreadyDone {
        /// What came of it.
        result: Arc<str>,
    },
}

/// What a handler may return: nothing, or a small text to be kept with the done record.
pub trait ClaimResult {
    /// The text.
    fn text(&self) -> &str;
}

impl ClaimResult for () {
    fn text(&self) -> &str {
        ""
    }
}

impl ClaimResult for String {
    fn text(&self) -> &str {
        self
    }
}

impl ClaimResult for &str {
    fn text(&self) -> &str {
        self
    }
}

impl Claims {
    /// Claims on the messages of `set`.
    pub fn new(quorum: &Quorum, set: &str) -> Self {
        let ttl = quorum.setup().default_ttl();
        let retention = Duration::from_secs(24 * 3600);
        Self { quorum: quorum.clone(), set: set.into(), ttl, grace: None, retention }
    }

    /// How long a crashed handler blocks a message, at most. Default 10 s, at most `max_ttl`.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long before the loss of a claim its handler is told. Default a fifth of the TTL.
    pub fn step_down_grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// How long a message is known to be done. Default 24 hours; longer than any redelivery.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Claims one message.
    ///
    /// # Errors
    /// [`AcquireError`] for an id or timings that cannot be used, and where too few nodes answered or may
    /// vote. That someone else has it, or had it, is no error.
    ///
    /// # Cancel safety
    /// Safe: a dropped attempt posts its releases behind its own requests.
    pub async fn claim(&self, id: &str) -> Result<ClaimOutcome, AcquireError> {
        let all = self.claim_many([id]).await?;
        all.into_iter().next().map_or(Err(AcquireError::Closed), |(_, outcome)| outcome)
    }

    /// Claims many messages in one batch a node: a verdict for each id, in their order.
    ///
    /// # Errors
    /// [`AcquireError`] for an id or timings that cannot be used; nothing has been claimed then. An id for
    /// which too few nodes answered carries its own.
    ///
    /// # Cancel safety
    /// Safe: dropped attempts post their releases behind their own requests.
    pub async fn claim_many<'a>(
        &self,
        ids: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<(Arc<str>, Result<ClaimOutcome, AcquireError>)>, AcquireError> {
        let ids: Vec<Arc<str>> = ids.into_iter().map(Arc::from).collect();
        let resources: Result<Vec<_>, _> = ids.iter().map(|id| Resource::claim(&self.set, id)).collect();
        let resources = resources?;
        let attempted = attempt_each(self.quorum.hub(), &resources, self.terms()?).await;
        let outcomes = attempted.into_iter().zip(resources).zip(ids).map(|((attempted, resource), id)| {
            let outcome = self.outcome(attempted, resource, &id);
            (id, outcome)
        });
        Ok(outcomes.collect())
    }

    /// Claims `id`, handles it, and records that it is done. The claim is extended while the handler runs;
    /// if it is lost, the handler is dropped. If the handler fails, the message is abandoned, so that it may
    /// be claimed again. Of a result over 1 KiB only the beginning is kept.
    ///
    /// # Errors
    /// [`ProcessError`]. That someone else has it, or had it, is no error.
    ///
    /// # Cancel safety
    /// Dropping it drops the handler and abandons the message.
    pub async fn process<H, F, T, E>(&self, id: &str, handler: H) -> Result<Processed, ProcessError<E>>
    where
        H: FnOnce(ClaimHandle) -> F,
        F: Future<Output = Result<T, E>>,
        T: ClaimResult,
    {
        let claim = match self.claim(id).await? {
            ClaimOutcome::Claimed(claim) => claim,
            ClaimOutcome::InProgress { retry_after, .. } => return Ok(Processed::InProgress { retry_after }),
            ClaimOutcome::Done { result } => return Ok(Processed::AlreadyDone { result }),
        };
        let handle = claim.handle();
        let handled = tokio::select! { biased;
            () = handle.lost().cancelled() => return Err(crate::lease::LeaseLost.into()),
            handled = handler(handle.clone()) => handled,
        };
        match handled {
            Ok(result) => {
                // Handled is handled: a result too long to keep is cut, rather than the work done again.
                claim.complete(cut(result.text(), RESULT_MAX)).await?;
                Ok(Processed::Handled)
            }
            Err(error) => {
                if let Err(late) = claim.abandon().await {
                    tracing::warn!(set = &*self.set, id, "abandoned: {late}");
                }
                Err(ProcessError::Handler(error))
            }
        }
    }

    pub(super) fn quorum(&self) -> &Quorum {
        &self.quorum
    }

    pub(super) fn set(&self) -> &str {
        &self.set
    }

    /// What a claim on `id` is held on.
    pub(super) fn resource(&self, id: &str) -> Result<Resource, NameError> {
        Resource::claim(&self.set, id)
    }

    fn terms(&self) -> Result<Terms, AcquireError> {
        // A claim's counter dies with its record, but not before it can be seeded anew.
        let keep = self.retention.max(self.ttl * 2).max(self.quorum.setup().reseed_after());
        Ok(Terms { keep, ..lease_terms(self.quorum.hub(), self.ttl, self.grace, None, true)? })
    }

    fn outcome(
        &self,
        attempted: Attempted,
        resource: Resource,
        id: &Arc<str>,
    ) -> Result<ClaimOutcome, AcquireError> {
        match attempted {
            Attempted::Held(lease) => {
                Ok(ClaimOutcome::Claimed(Claim::new(Arc::clone(id), lease, self.retention)))
            }
            Attempted::Closed => Err(AcquireError::Closed),
            Attempted::Lost(tally)
                if tally.done().is_none() && self.quorum.env().stopped().is_cancelled() =>
            {
                Err(AcquireError::Closed)
            }
            Attempted::Lost(tally) => match tally.done() {
                Some(done) => Ok(ClaimOutcome::Done { result: Arc::clone(&done.result) }),
                None if is_contended(&tally) => Ok(ClaimOutcome::InProgress {
                    retry_after: tally.retry_after(),
                    holder: tally.holder().cloned(),
                }),
                None => {
                    Err(AcquireError::lost(resource, false, self.quorum.fleet().report(tally.outcomes())))
                }
            },
        }
    }
}
