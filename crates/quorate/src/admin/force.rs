//! The forced release of a lock.

use crate::{
    node::{Owner, Reply, Request, Resource},
    quorum::Quorum,
    vote::{Answer, NoMajority, NodeOutcome, ReplyTo, vote_channel},
};

/// The result of [`Quorum::force_release`](crate::quorum::Quorum::force_release).
#[derive(Clone, Debug)]
pub struct ForcedRelease {
    /// The number of nodes on which the owner held the resource and has now been removed.
    pub freed: usize,
    /// The number of nodes that executed the request. On these nodes, the owner does not hold the resource.
    pub clear: usize,
    /// The outcome of each node. The outcome *agreed* means that the owner no longer holds the resource
    /// there.
    pub report: NoMajority,
}

impl ForcedRelease {
    /// Returns whether a majority of the nodes executed the request. The owner no longer holds the resource
    /// on these nodes, so another client may acquire it.
    pub fn is_clear(&self) -> bool {
        self.clear >= self.report.needed()
    }
}

impl Quorum {
    /// Force-releases `resource` on every node where `owner` holds it. `owner` is the owner token that an
    /// [inspection](Quorum::inspect) returned. A node that stores another owner token changes nothing, so no
    /// other holder is affected.
    ///
    /// **The holder is not notified.** It considers its lease valid until the validity of its last successful
    /// extension ends. That end may be almost a whole TTL away. Until then another worker may hold the
    /// resource too. If no other worker has acquired the resource on a majority, the holder's next extension
    /// may also set its keys again. Only a store that compares fencing tokens is safe in both cases.
    ///
    /// Use this call for a holder that is known to be dead or stuck, and for keys without a TTL that other
    /// clients left. If the holder is running, send it a request instead:
    /// [`Observer::ask_to_resign`](crate::election::Observer::ask_to_resign).
    ///
    /// All readers share the owner token [`Owner::READERS`]. Releasing that owner releases every reader,
    /// including readers that acquire after the inspection. Each node is asked once, within the node timeout.
    ///
    /// # Cancel safety
    /// If the future is dropped, the resource may have been released on all nodes, on some, or on none.
    #[doc(hidden)]
    pub async fn force_release(&self, resource: &Resource, owner: &Owner) -> ForcedRelease {
        let pool = self.pool();
        let (sender, mut votes) = vote_channel();
        // The release is sent only once. All readers share one owner token, so a late repetition would release
        // readers that acquired the lock since.
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
