//! The dead-letter hook, and the step that hands messages that are given up to the hook.

use super::{Claim, ClaimHandle, ClaimOutcome, ClaimResult, Claims, DeadLettered};
use crate::{
    node::engine::{RESULT_MAX, cut},
    sabotage::Sabotage,
};
use futures_util::{FutureExt, future::BoxFuture};
use std::{fmt, sync::Arc};

/// A message that is given up, for the dead-letter hook.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// The name of the set of claims.
    pub set: Arc<str>,
    /// The message's id.
    pub id: Arc<str>,
    /// The number of attempts that had begun.
    pub attempts: u32,
    /// The claim under which the hook runs. The claim has the fencing token, and shows whether this worker
    /// still holds the message.
    pub claim: ClaimHandle,
}

/// The dead-letter hook, as a shared function that returns the note to record.
#[derive(Clone)]
pub(super) struct Hook(Arc<Take>);

type Take = dyn Fn(DeadLetter) -> BoxFuture<'static, Result<Arc<str>, String>> + Send + Sync;

impl Hook {
    pub(super) fn new<H, F, T, E>(hook: H) -> Self
    where
        H: Fn(DeadLetter) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: ClaimResult,
        E: fmt::Display,
    {
        Self(Arc::new(move |letter| {
            let taken = hook(letter);
            async move {
                match taken.await {
                    Ok(note) => Ok(cut(note.text(), RESULT_MAX).into()),
                    Err(error) => Err(error.to_string()),
                }
            }
            .boxed()
        }))
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl Claims {
    /// Hands a message to the dead-letter hook, under the claim that found the attempt limit reached. Then
    /// records that the hook has handled the message. Without a hook nothing is recorded, so that the next
    /// claim by a worker with a hook hands the message over.
    pub(super) async fn hand_over(&self, claim: Claim) -> ClaimOutcome {
        let (id, attempts, handle) = (Arc::clone(claim.id()), claim.attempt(), claim.handle());
        let mut dead = DeadLettered { attempts, at: None, note: "".into() };
        let Some(Hook(hook)) = &self.dead_letter else {
            if let Err(late) = claim.abandon().await {
                tracing::warn!(
                    set = &*self.set,
                    id = &*id,
                    "the message is given up, but its claim was not released: {late}"
                );
            }
            return ClaimOutcome::DeadLettered(dead);
        };
        let letter =
            DeadLetter { set: Arc::clone(&self.set), id: Arc::clone(&id), attempts, claim: handle.clone() };
        let taken = tokio::select! { biased;
            () = handle.lost_token().cancelled() => Err("the claim was lost meanwhile".to_owned()),
            taken = hook(letter) => taken,
        };
        match taken {
            Ok(note) => dead.note = note,
            Err(_) if self.quorum.config().sabotaged(Sabotage::FailedHookRecorded) => {}
            Err(error) => {
                // Returning drops the claim, which frees the message. The next claim of the message calls the
                // hook again.
                tracing::warn!(set = &*self.set, id = &*id, "the dead-letter hook failed: {error}");
                return ClaimOutcome::DeadLettered(dead);
            }
        }
        let note = Arc::clone(&dead.note);
        match claim.record(&note).await {
            Ok((done, _)) => dead.at = Some(done.at),
            Err(error) => tracing::warn!(set = &*self.set, id = &*id, "given up, but not recorded: {error}"),
        }
        ClaimOutcome::DeadLettered(dead)
    }
}
