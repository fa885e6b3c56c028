//! What is done to many claims at once.

use super::{AbandonError, Claim, CompleteError, Completed, claims::CHUNK, complete::complete};
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
    let claims: Vec<(Claim, R)> = claims.into_iter().collect();
    let mut all = Vec::with_capacity(claims.len());
    // Those of one quorum travel together.
    for run in claims.chunk_by(|(a, _), (b, _)| a.shares_a_quorum_with(b)) {
        for chunk in run.chunks(CHUNK) {
            let endings = chunk.iter().map(|(claim, result)| claim.ending(result.as_ref())).collect();
            let ids = chunk.iter().map(|(claim, _)| Arc::clone(claim.id()));
            all.extend(ids.zip(complete(endings).await));
        }
    }
    all
}

/// [`Claim::abandon`] for each: they travel together. A verdict for each id, in their order.
///
/// # Cancel safety
/// Every one of them is abandoned, whether or not this is waited for.
pub async fn abandon_many(
    claims: impl IntoIterator<Item = Claim>,
) -> Vec<(Arc<str>, Result<(), AbandonError>)> {
    let mut claims = claims.into_iter();
    let mut all = Vec::new();
    loop {
        let ended = |claim: Claim| async move { (Arc::clone(claim.id()), claim.abandon().await) };
        let chunk: Vec<_> = claims.by_ref().take(CHUNK).map(ended).collect();
        if chunk.is_empty() {
            return all;
        }
        all.extend(join_all(chunk).await);
    }
}
