use super::ClaimError;
use crate::{
    lease::{InspectTarget, Lease, inspect},
    node::Reply,
    vote::{Answer, NodeOutcome, ReplyTo, vote_channel},
};
use std::{pin::pin, time::Duration};

/// The maximum number of times that the nodes are asked which worker owns a message. Once enough nodes have
/// answered, they are not asked again.
const LOOKS_MAX: usize = 4;
/// The pause before the nodes are asked again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Ends the lease and frees the message. If fewer than a majority confirm the release, asks the nodes which
/// worker owns the message now, to report the true state.
pub(super) async fn abandon(lease: &Lease) -> Result<(), ClaimError> {
    let pool = lease.inner().pool();
    let (sender, mut votes) = vote_channel();
    let deadline = pool.env().now() + pool.config().node_timeout;
    // If the renewer has already ended the lease, it sends no release. Then the channel closes at once, and the
    // loop below ends.
    lease.post_release(Some(ReplyTo { sender, ticket: 0 }));
    let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
    let mut freed = 0;
    // One timer serves for all answers. A timer for each answer would cost more.
    let mut over = pin!(pool.env().sleep_until(deadline));
    while freed < pool.majority() {
        let vote = tokio::select! { biased;
            vote = votes.recv() => vote,
            () = &mut over => None,
        };
        let Some(vote) = vote else { break };
        outcomes[vote.node] = NodeOutcome::of(&vote.answer);
        freed += usize::from(matches!(vote.answer, Answer::Reply(Reply::Released(true))));
    }
    if freed >= pool.majority() {
        return Ok(());
    }
    for looks in 0..LOOKS_MAX {
        if looks > 0 {
            pool.env().sleep(LOOK_AGAIN).await;
        }
        // The nodes are asked again after an error. If this process was suspended, its connections may first
        // have to be opened again.
        let Ok(look) = inspect(lease.inner(), lease.resource()).await else { continue };
        match (look.done.clone(), look.whose(pool.len())) {
            (Some(done), _) => return Err(ClaimError::ended(&done)),
            (None, InspectTarget::Of(holder)) if holder != lease.owner() => {
                return Err(ClaimError::TakenOver { holder: holder.clone() });
            }
            // A majority still names this worker, because the releases have not arrived there yet. The message
            // becomes free later.
            (None, InspectTarget::Of(_)) => break,
            (None, InspectTarget::Nobody) => return Ok(()),
            (None, InspectTarget::Unknown) => {}
        }
    }
    Err(pool.report(outcomes).of("too few nodes confirmed that the message is free").into())
}
