//! What is done to many claims at once.

use super::{AbandonError, Claim, CompleteError, Completed, claims::CHUNK};
use futures_util::future::join_all;
use std::sync::Arc;

/// [`Claim::complete`] for each, with its result: they travel together, a few script calls a node. A verdict for each id,
/// in their order.
///
/// # Cancel safety
/// As of [`Claim::complete`]: dropping it leaves some recorded; what was not yet begun is abandoned.
pub async fn complete_many<R: AsRef<str>>(
    claims: impl IntoIterator<Item = (Claim, R)>,
) -> Vec<(Arc<str>, Result<Completed, CompleteError>)> {
    in_chunks(claims, |(claim, result)| async move {
        let id = Arc::clone(claim.id());
        (id, claim.complete(result.as_ref()).await)
    })
    .await
}

/// [`Claim::abandon`] for each: they travel together. A verdict for each id, in their order.
///
/// # Cancel safety
/// Every one of them is abandoned, whether or not this is waited for.
pub async fn abandon_many(
    claims: impl IntoIterator<Item = Claim>,
) -> Vec<(Arc<str>, Result<(), AbandonError>)> {
    in_chunks(claims, |claim| async move {
        let id = Arc::clone(claim.id());
        (id, claim.abandon().await)
    })
    .await
}

async fn in_chunks<T, F: Future>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> F,
) -> Vec<F::Output> {
    let mut items = items.into_iter();
    let mut all = Vec::new();
    loop {
        let chunk: Vec<F> = items.by_ref().take(CHUNK).map(&work).collect();
        if chunk.is_empty() {
            return all;
        }
        all.extend(join_all(chunk).await);
    }
}
