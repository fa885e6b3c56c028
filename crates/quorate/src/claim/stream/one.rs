//! The work on one message: its handler, its done record, its ack, and its hand-over to the dead-letter
//! hook.

use super::{Received, Message, Outcome};
use crate::{
    claim::{Claim, ClaimError, ClaimHandle, ClaimOutcome, ClaimResult, Claims},
    node::engine::{RESULT_MAX, cut},
    plain::plain,
};
use futures_util::{FutureExt, future::BoxFuture};
use std::{any::Any, fmt::Display, panic::AssertUnwindSafe, sync::Arc};

/// The result of acknowledging (*acking*) a message to its source: see [`Ended::acked`](super::Ended::acked).
pub(super) type Acked = Result<bool, Arc<str>>;
use tokio_util::sync::CancellationToken;

/// The longest error text of a handler, a hook or an ack that is kept, in bytes.
const WHY_MAX: usize = 1024;

/// The error for a message that cannot be handled while no dead-letter hook is set.
const NO_HOOK: &str = "there is no dead-letter hook; give one with on_dead";

/// The dead-letter hook of a consumer.
pub(super) type Dead<M> =
    dyn Fn(Arc<M>, Outcome, Option<ClaimHandle>) -> BoxFuture<'static, Result<(), Arc<str>>> + Send + Sync;

/// Handles a claimed message, records it as done, and only then acks it.
pub(super) async fn handle<M, H, F, T, E>(
    claim: Claim,
    message: Arc<M>,
    handler: Arc<H>,
    stop: CancellationToken,
) -> (Outcome, Acked)
where
    M: Message,
    H: Fn(Received<M>) -> F,
    F: Future<Output = Result<T, E>>,
    T: ClaimResult,
    E: Display,
{
    // The handler starts now. If this future is dropped before this line, for instance at a shutdown, the
    // attempt never began, and its count is withdrawn.
    let claim = claim.started();
    let look = claim.handle();
    let delivery = Received::new(Arc::clone(&message), look.clone(), stop.clone());
    // The handler is called inside this future, so that a panic before its first await is caught too. Its error
    // is converted to text at once, so that the error's type need not be `Send`.
    let work = async { handler(delivery).await.map_err(|error| error.to_string()) };
    let work = AssertUnwindSafe(work).catch_unwind();
    let relay = async {
        look.step_down_token().cancelled().await;
        stop.cancel();
        std::future::pending::<()>().await;
    };
    let handled = tokio::select! { biased;
        () = look.lost_token().cancelled() => None,
        handled = work => Some(handled),
        () = relay => None,
    };
    let outcome = match handled {
        None => Outcome::Lost,
        Some(Ok(Ok(result))) => record(claim, result.text()).await,
        Some(Ok(Err(error))) => abandoned(claim, &error).await,
        Some(Err(panic)) => abandoned(claim, &format!("it panicked: {}", words(&*panic))).await,
    };
    let acked = match outcome {
        Outcome::Handled | Outcome::Duplicate { .. } => ack(&*message).await,
        _ => {
            message.leave().await;
            Ok(false)
        }
    };
    (outcome, acked)
}

/// Hands a message whose attempt limit is reached to the dead-letter hook, under the claim that found the
/// limit reached.
pub(super) async fn give_up<M: Message>(
    claims: Claims,
    claim: Claim,
    message: Arc<M>,
    dead: Option<Arc<Dead<M>>>,
) -> (Outcome, Acked) {
    let letter = Arc::clone(&message);
    let claims = match dead {
        None => claims,
        Some(dead) => claims.dead_letter(move |given_up| {
            let reason = Outcome::DeadLettered { attempts: given_up.attempts };
            call_hook(Arc::clone(&dead), Arc::clone(&letter), reason, Some(given_up.claim))
        }),
    };
    let has_hook = claims.dead_letter.is_some();
    match claims.hand_over(claim).await {
        ClaimOutcome::DeadLettered(dead) => {
            let (attempts, handed) = (dead.attempts, dead.at.is_some());
            (Outcome::DeadLettered { attempts }, given_up(&*message, handed, has_hook).await)
        }
        // `hand_over` returns no other outcome.
        _ => (Outcome::Stopped, Ok(false)),
    }
}

/// Acks a message that is given up, if a dead-letter hook has handled it. Otherwise leaves it to the source.
pub(super) async fn given_up<M: Message>(message: &M, handed: bool, has_hook: bool) -> Acked {
    let why = match (handed, has_hook) {
        // A hook has handled the message, on this worker or another. This is certain, because the dead-letter
        // record is written only after the hook has succeeded.
        (true, _) => return ack(message).await,
        (false, false) => NO_HOOK,
        (false, true) => "the dead-letter hook failed",
    };
    message.leave().await;
    Err(why.into())
}

/// Hands a message that cannot be claimed to the dead-letter hook, and acks the message if the hook accepts
/// it.
pub(super) async fn dead_letter<M: Message>(
    message: Arc<M>,
    why: Arc<str>,
    dead: Option<Arc<Dead<M>>>,
) -> (Outcome, Acked) {
    let outcome = Outcome::Unusable { why };
    let called = match dead {
        None => Err(NO_HOOK.into()),
        Some(dead) => call_hook(dead, Arc::clone(&message), outcome.clone(), None).await,
    };
    let acked = match called {
        Ok(()) => ack(&*message).await,
        Err(error) => {
            message.leave().await;
            Err(format!("dead letter: {}", plain(&error, WHY_MAX)).into())
        }
    };
    (outcome, acked)
}

/// Calls the dead-letter hook. A panic of the hook counts as an error.
async fn call_hook<M>(
    dead: Arc<Dead<M>>,
    message: Arc<M>,
    reason: Outcome,
    claim: Option<ClaimHandle>,
) -> Result<(), Arc<str>> {
    let hook = AssertUnwindSafe(async { dead(message, reason, claim).await }).catch_unwind();
    hook.await.unwrap_or_else(|panic| Err(format!("it panicked: {}", words(&*panic)).into()))
}

/// Acknowledges the message to its source. A panic while acking counts as an error.
pub(super) async fn ack<M: Message>(message: &M) -> Acked {
    match AssertUnwindSafe(message.ack()).catch_unwind().await {
        Ok(Ok(())) => Ok(true),
        Ok(Err(error)) => Err(plain(&error.to_string(), WHY_MAX).into()),
        Err(panic) => Err(format!("it panicked: {}", words(&*panic)).into()),
    }
}

async fn record(claim: Claim, result: &str) -> Outcome {
    // The handler has succeeded. A result that is too long is cut, because an error would cause the work to be
    // repeated.
    match claim.complete(cut(result, RESULT_MAX)).await {
        Ok(_) => Outcome::Handled,
        // A later claim of another worker completed the message first. The message is done, so its outcome
        // here is *duplicate*.
        Err(ClaimError::AlreadyDone(done)) => Outcome::Duplicate { result: done.result },
        Err(ClaimError::DeadLettered(dead)) => Outcome::Duplicate { result: dead.note },
        Err(why) => Outcome::Unrecorded { why },
    }
}

async fn abandoned(claim: Claim, why: &str) -> Outcome {
    let id = Arc::clone(claim.id());
    if let Err(late) = claim.abandon().await {
        tracing::warn!(id = &*id, "abandoned: {late}");
    }
    Outcome::Failed { why: plain(why, WHY_MAX).into() }
}

fn words(panic: &(dyn Any + Send)) -> String {
    plain(crate::panic::message(panic), WHY_MAX)
}
