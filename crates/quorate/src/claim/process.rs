use super::{
    Claim, ClaimError, ClaimHandle, ClaimOutcome, ClaimResult, Claims, Done, MessageId, ProcessError,
    Processed, votes::ClaimTally,
};
use crate::{
    lease::{AskOrder, Mode, RetryBackoff},
    node::{
        Resource,
        engine::{RESULT_MAX, cut},
    },
};
use std::{sync::Arc, time::Duration};

impl Claims {
    /// Claims a message, handles it, and records that it is done. The claim is extended while the handler runs.
    /// If the claim is lost, the handler is dropped. If the handler fails, the message is abandoned, so that it
    /// may be claimed again. If the result is longer than 1 KiB, only its beginning is kept.
    ///
    /// Acknowledge the message to its source only where [`Processed::may_ack`] is true.
    ///
    /// # Errors
    /// [`ProcessError`]. A message that another worker holds, or has handled, is not an error.
    ///
    /// # Cancel safety
    /// Dropping the future drops the handler and abandons the message.
    pub async fn process<'a, H, F, T, E>(
        &self,
        message: impl Into<MessageId<'a>>,
        handler: H,
    ) -> Result<Processed, ProcessError<E>>
    where
        H: FnOnce(ClaimHandle) -> F,
        F: Future<Output = Result<T, E>>,
        T: ClaimResult,
    {
        match self.claim(message).await? {
            ClaimOutcome::Claimed(claim) => {
                self.handle(claim, handler).await?;
                Ok(Processed::Handled)
            }
            ClaimOutcome::InProgress { retry_after, .. } => Ok(Processed::InProgress { retry_after }),
            ClaimOutcome::Done(done) => Ok(Processed::AlreadyDone(done)),
            ClaimOutcome::DeadLettered(dead) => Ok(Processed::DeadLettered(dead)),
        }
    }

    /// Processes a message as [`Claims::process`] does, for an idempotency key: every caller gets the result
    /// of the first caller whose handler succeeds. A caller that arrives while that handler runs waits until
    /// the handler ends, for `wait` at most. If the handler fails, the next waiting caller runs its own
    /// handler. `wait` does not limit the time of a handler.
    ///
    /// If the result is longer than 1 KiB, only its beginning is kept. Every caller gets that beginning, the first
    /// caller too.
    ///
    /// # Errors
    /// [`ProcessError`]. It is [`ProcessError::StillInProgress`] if the caller has waited for `wait`, and
    /// [`ProcessError::DeadLettered`] if the message is given up.
    ///
    /// # Cancel safety
    /// Dropping the future drops the handler and abandons the message.
    pub async fn process_or_wait<'a, H, F, T, E>(
        &self,
        message: impl Into<MessageId<'a>>,
        wait: Duration,
        handler: H,
    ) -> Result<Done, ProcessError<E>>
    where
        H: FnOnce(ClaimHandle) -> F,
        F: Future<Output = Result<T, E>>,
        T: ClaimResult,
    {
        let message = message.into();
        let resource = Resource::claim(&self.set, message.id()).map_err(|e| ClaimError::Acquire(e.into()))?;
        let env = self.quorum.env();
        let deadline = env.now() + wait;
        let mut backoff = RetryBackoff::new(self.quorum.inner(), &resource, Mode::Exclusive, AskOrder::All);
        loop {
            backoff.attempts();
            let began = env.now();
            let verdict = self.claim_one(message.clone()).await?;
            let over = env.now() >= deadline;
            let holder = match verdict.outcome {
                Ok(ClaimOutcome::Claimed(claim)) => {
                    backoff.won();
                    return self.handle(claim, handler).await;
                }
                Ok(ClaimOutcome::Done(done)) => return Ok(done),
                Ok(ClaimOutcome::DeadLettered(dead)) => {
                    return Err(ProcessError::DeadLettered {
                        id: message.id().into(),
                        attempts: dead.attempts,
                    });
                }
                Ok(ClaimOutcome::InProgress { holder, .. }) => holder,
                Err(error) if over || error.is_permanent() => return Err(error.into()),
                Err(_) => None,
            };
            if over {
                return Err(ProcessError::StillInProgress { id: message.id().into(), waited: wait, holder });
            }
            let tally = verdict.tally.unwrap_or_else(|| ClaimTally::of_claim(self.quorum.pool().len()));
            backoff.rest(&tally, began, Some(deadline), None).await;
        }
    }

    async fn handle<H, F, T, E>(&self, claim: Claim, handler: H) -> Result<Done, ProcessError<E>>
    where
        H: FnOnce(ClaimHandle) -> F,
        F: Future<Output = Result<T, E>>,
        T: ClaimResult,
    {
        let handle = claim.handle();
        let handled = tokio::select! { biased;
            () = handle.lost_token().cancelled() => return Err(crate::lease::LeaseLost.into()),
            handled = handler(handle.clone()) => handled,
        };
        match handled {
            Ok(result) => {
                // A result that is too long is cut. An error would cause the work to be repeated, although it
                // has succeeded.
                let result = cut(result.text(), RESULT_MAX);
                let recorded = claim.record(result).await.map_err(ProcessError::NotRecorded)?;
                Ok(recorded.0)
            }
            Err(error) => {
                let id = Arc::clone(claim.id());
                if let Err(late) = claim.abandon().await {
                    tracing::warn!(
                        set = &*self.set,
                        id = &*id,
                        "the handler failed, and the message was not abandoned: {late}"
                    );
                }
                Err(ProcessError::Handler(error))
            }
        }
    }
}
