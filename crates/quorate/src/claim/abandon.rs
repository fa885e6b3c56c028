use super::AbandonError;
use crate::{
    lease::{Inspection, Lease, inspect},
    node::{Owner, Reply},
    round::{Answer, NodeOutcome, ReplyTo, ballots, majority},
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
    let (nodes, done) = (fleet.len(), look.done.clone());
    match (done, may_hold(&look, nodes)) {
        (Some(done), _) => Err(AbandonError::AlreadyDone(done)),
        // Still ours by a majority's word: the releases are on their way.
        (None, Some(holder)) if holder == lease.owner() => {
            Err(AbandonError::NoMajority(fleet.report(outcomes)))
        }
        (None, Some(holder)) => Err(AbandonError::TakenOver { holder: holder.clone() }),
        (None, None) => Ok(()),
    }
}

/// Who has it at a majority of so many nodes, or may have, if those that have not answered say so too.
fn may_hold(look: &Inspection, nodes: usize) -> Option<&Owner> {
    let (owner, times) = look.named.first()?;
    (times + (nodes - look.answered) >= majority(nodes)).then_some(owner)
}

/// Who holds it now, for an error.
pub(super) fn named(holder: &Owner) -> String {
    crate::plain::plain(holder.worker(), 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three of five that answered first, one of them without the holder's lease, once were taken for nobody.
    #[test]
    fn who_may_have_it_at_a_majority_has_it() {
        let look = |named: &[(&str, usize)], answered| Inspection {
            holder: None,
            contended: false,
            token: None,
            done: None,
            begun: None,
            named: named.iter().map(|(who, times)| (Owner::from_node(who), *times)).collect(),
            answered,
        };
        for (named, answered, holds) in [
            (&[][..], 5, None),
            (&[("a", 3)], 5, Some("a")),
            (&[("a", 2)], 5, None),
            (&[("a", 2), ("b", 1)], 4, Some("a")),
            (&[("a", 1), ("b", 1)], 4, None),
        ] {
            let look = look(named, answered);
            assert_eq!(may_hold(&look, 5).map(Owner::as_str), holds, "{named:?} of {answered}");
        }
    }
}
