//! A lease that is taken from its holder.

use crate::{
    node::{Owner, Reply, Request, Resource},
    quorum::Quorum,
    vote::{Answer, NodeOutcome, ReplyTo, Report, vote_channel},
};

/// What came of [`Quorum::force_release`].
#[derive(Clone, Debug)]
pub struct ForcedRelease {
    /// On how many nodes the owner stood, and does no more.
    pub freed: usize,
    /// How many nodes have answered: on these the owner does not stand any more.
    pub clear: usize,
    /// What each node said; *agreed* where the owner does not stand any more.
    pub report: Report,
}

impl ForcedRelease {
    /// Whether a majority is rid of the owner, so that another may acquire.
    pub fn is_clear(&self) -> bool {
        self.clear >= self.report.needed
    }
}

impl Quorum {
    /// Takes `resource` from the holder that `owner` signs, on every node where it still stands, and from nobody
    /// else: compare and delete, by the token that an [inspection](Quorum::inspect) named.
    ///
    /// **The holder does not know.** It believes in its lease until its next extension, a third of its TTL later at
    /// most, and until then another may hold it too; where a majority is not free, or the holder extends in between,
    /// it sets itself again. Only a sink that compares fencing tokens is safe from both. It is for a holder that is
    /// known to be gone or stuck for good, and for keys without an end that other clients left. Where the holder can
    /// hear, ask it: [`Observer::ask_to_resign`](crate::election::Observer::ask_to_resign).
    ///
    /// Readers stand under one name, [`Owner::READERS`]: to take the resource from that takes it from every reader, later
    /// ones as well. It is asked of each node once, within the node timeout.
    ///
    /// # Cancel safety
    /// Dropping it leaves each node freed or not.
    pub async fn force_release(&self, resource: &Resource, owner: &Owner) -> ForcedRelease {
        let pool = self.pool();
        let (sender, mut votes) = vote_channel();
        // Once, and now: readers are all called the same, so that a late release would free later ones.
        for node in 0..pool.len() {
            let request = Request::Release { resource: resource.clone(), owner: owner.clone() };
            pool.ask(node, request, ReplyTo { sender: sender.clone(), ticket: 0 });
        }
        drop(sender);
        let deadline = pool.env().now() + pool.config().node_timeout * 2;
        let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
        let mut freed = 0;
        while let Some(Some(vote)) = pool.env().before(deadline, votes.recv()).await {
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
            freed += usize::from(matches!(vote.answer, Answer::Reply(Reply::Released(true))));
        }
        let clear = outcomes.iter().filter(|outcome| matches!(outcome, NodeOutcome::Granted)).count();
        ForcedRelease { freed, clear, report: pool.report(outcomes) }
    }
}
