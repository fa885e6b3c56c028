use super::AbandonError;
use crate::{
    lease::{Lease, Whose, inspect},
    node::{Owner, Reply},
    round::{Answer, NodeOutcome, ReplyTo, ballots},
};
use std::pin::pin;

/// Ends the lease and frees the message. Where it was not there any more to be freed, looks whose it is now.
pub(super) async fn abandon(lease: &Lease) -> Result<(), AbandonError> {
    let fleet = lease.hub().fleet();
    let (ballots, mut votes) = ballots();
    let deadline = fleet.env().now() + fleet.setup().node_timeout;
    // Of a lease that the keeper has ended by itself there is nothing to send: the channel ends at once.
    lease.let_go(Some(ReplyTo { ballots, ticket: 0 }));
    let mut outcomes = vec![NodeOutcome::Pending; fleet.len()];
    let mut freed = 0;
    // One timer for all of them.
    let mut over = pin!(fleet.env().sleep_until(deadline));
    while freed < fleet.majority() {
        let vote = tokio::select! { biased;
            vote = votes.recv() => vote,
            () = &mut over => None,
        };
        let Some(vote) = vote else { break };
        outcomes[vote.node] = NodeOutcome::of(&vote.answer);
        freed += usize::from(matches!(vote.answer, Answer::Reply(Reply::Released(true))));
    }
    if freed >= fleet.majority() {
        return Ok(());
    }
    let Ok(look) = inspect(lease.hub(), lease.resource()).await else {
        return Err(AbandonError::NoMajority(fleet.report(outcomes)));
    };
    match (look.done.clone(), look.whose(fleet.len())) {
        (Some(done), _) => Err(AbandonError::AlreadyDone(done)),
        (None, Whose::Of(holder)) if holder != lease.owner() => {
            Err(AbandonError::TakenOver { holder: holder.clone() })
        }
        // Still ours by a majority's word, and the releases are on their way; or too few have answered.
        (None, Whose::Of(_) | Whose::Unknown) => Err(AbandonError::NoMajority(fleet.report(outcomes))),
        (None, Whose::Nobody) => Ok(()),
    }
}

/// Who holds it now, for an error.
pub(super) fn named(holder: &Owner) -> String {
    crate::plain::plain(holder.worker(), 200)
}
