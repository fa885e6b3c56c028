//! Operations on many claims at once.

use super::{
    Claim, ClaimError,
    claims::{CHUNK, CHUNKS_AT_ONCE},
    complete::complete,
};
use futures_util::{StreamExt, future::join_all, stream};
use std::sync::Arc;

impl Claim {
    /// Completes each claim with its result, as [`Claim::complete`] does. The claims are sent together, in a
    /// few script calls on each node. Returns a result for each id, in the order of the claims.
    ///
    /// # Cancel safety
    /// If the future is dropped, some messages may be recorded as done. Claims whose completion has not begun
    /// are abandoned.
    pub async fn complete_many<R: AsRef<str>>(
        claims: impl IntoIterator<Item = (Claim, R)>,
    ) -> Vec<(Arc<str>, Result<usize, ClaimError>)> {
        let claims: Vec<(Claim, R)> = claims.into_iter().collect();
        // Claims are sent together only if they belong to one quorum. So consecutive claims of the same quorum
        // form a group.
        let runs = claims.chunk_by(|(a, _), (b, _)| a.shares_a_quorum_with(b));
        let chunks: Vec<_> = runs
            .flat_map(|run| run.chunks(CHUNK))
            .map(|chunk| {
                complete(chunk.iter().map(|(claim, result)| claim.ending(result.as_ref())).collect())
            })
            .collect();
        let ended = stream::iter(chunks).buffered(CHUNKS_AT_ONCE).collect::<Vec<_>>().await;
        let ids = claims.iter().map(|(claim, _)| Arc::clone(claim.id()));
        let nodes = ended.into_iter().flatten().map(|ended| ended.map(|(_, nodes)| nodes));
        ids.zip(nodes).collect()
    }

    /// Abandons each claim, as [`Claim::abandon`] does. The claims are sent together. Returns a result for
    /// each id, in the order of the claims.
    ///
    /// # Cancel safety
    /// Even if the future is dropped, every claim is abandoned.
    pub async fn abandon_many(
        claims: impl IntoIterator<Item = Claim>,
    ) -> Vec<(Arc<str>, Result<(), ClaimError>)> {
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
}
