use super::AbandonError;
use crate::{
    lease::{InspectTarget, Lease, inspect},
    node::{Owner, Reply},
    vote::{Answer, NodeOutcome, ReplyTo, vote_channel},
};
use std::{pin::pin, time::Duration};

/// How often it is looked whose a message is, until enough nodes answer.
const LOOKS_MAX: usize = 4;
/// Before it is looked again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Ends the lease and frees the message. Where it was not there any more to be freed, looks whose it is now.
pub(super) async fn abandon(lease: &Lease) -> Result<(), AbandonError> {
    let pool = lease.inner().pool();
    let (sender, mut votes) = vote_channel();
    let deadline = pool.env().now() + pool.config().node_timeout;
    // Of a lease that the keeper has ended by itself there is nothing to send: the channel ends at once.
    lease.post_release(Some(ReplyTo { sender, ticket: 0 }));
    let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
    let mut freed = 0;
    // One timer for all of them.
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
        // A worker that has just woken up may have to open its connections anew.
        let Ok(look) = inspect(lease.inner(), lease.resource()).await else { continue };
        match (look.done.clone(), look.whose(pool.len())) {
            (Some(done), _) => return Err(AbandonError::AlreadyDone(done)),
            (None, InspectTarget::Of(holder)) if holder != lease.owner() => {
                return Err(AbandonError::TakenOver { holder: holder.clone() });
            }
            // Still ours by a majority's word: the releases are on their way.
            (None, InspectTarget::Of(_)) => break,
            (None, InspectTarget::Nobody) => return Ok(()),
            (None, InspectTarget::Unknown) => {}
        }
    }
    Err(AbandonError::NoMajority(pool.report(outcomes)))
}

/// Who holds it now, for an error.
pub(super) fn named(holder: &Owner) -> String {
    crate::plain::plain(holder.worker(), 200)
}
