//! The forced release of a lock.

use crate::{
    node::{FencingToken, Owner, Reply, Request, Resource},
    quorum::Quorum,
    vote::{Answer, NoMajority, NodeOutcome, ReplyTo, vote_channel},
};

/// The tickets of the two requests to each node.
const RELEASED: u64 = 0;
const RAISED: u64 = 1;

/// The result of [`Quorum::force_release`](crate::quorum::Quorum::force_release).
#[derive(Clone, Debug)]
pub struct ForcedRelease {
    /// The number of nodes on which the owner held the resource and has now been removed.
    pub freed: usize,
    /// The number of nodes that executed the request. On these nodes, the owner does not hold the resource.
    pub clear: usize,
    /// The number of nodes on which the fencing counter has been raised above the holder's token. The holder cannot
    /// set its lease again on these nodes. Zero if the token is not known, because fewer than a majority of the nodes
    /// named the owner before.
    pub counted: usize,
    /// True if another Redlock client wrote the owner token. Such a client has no fencing counter.
    pub foreign: bool,
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

    /// Returns whether the holder cannot take the resource back: its next extension fails, even if no other client
    /// has acquired the resource. If this is false, the holder may set its lease again until another client has
    /// acquired the resource.
    ///
    /// - A holder that uses Quorate cannot, if a majority of the nodes has raised the fencing counter.
    /// - A holder that uses [another Redlock client](ForcedRelease::foreign) cannot, if a majority of the nodes no
    ///   longer stores it: Redlock only extends a key that has the holder's value. A client that also sets a missing
    ///   key when it extends, such as redsync with `WithSetNXOnExtend`, is not covered.
    pub fn is_final(&self) -> bool {
        let barred = if self.foreign { self.clear } else { self.counted };
        barred >= self.report.needed()
    }
}

/// The state of a resource before its forced release.
#[derive(Debug, Default)]
struct Before {
    /// The number of nodes that name the owner.
    named: usize,
    /// The largest fencing counter of a node. If a majority names the owner, the owner's token is not larger: of
    /// these nodes, at least one has counted the owner's grant.
    counter: Option<FencingToken>,
}

impl Quorum {
    /// Force-releases `resource` on every node where `owner` holds it. `owner` is the owner token that an
    /// [inspection](Quorum::inspect) returned. A node that stores another owner token changes nothing, so no
    /// other holder is affected.
    ///
    /// **The holder is not notified.** It considers its lease valid until its next extension, which finds that the
    /// lease is gone, and at most until the validity of its last extension ends. That end may be almost a whole TTL
    /// away. Until then another worker may hold the resource too. Only a store that compares fencing tokens is safe
    /// in this time.
    ///
    /// Before it releases the resource on a node, the call raises the node's fencing counter above the holder's
    /// token. So the holder cannot set its lease again on this node ([`ForcedRelease::is_final`]). Readers have no
    /// token: a released reader that is still running may become a reader again with its next extension. Other
    /// Redlock clients have no token either, but they do not set a deleted key again.
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
        let foreign = owner.is_foreign();
        let before = self.before_release(resource, owner).await;
        let is_held = before.named >= pool.majority();
        let counter = before.counter.filter(|counter| *counter < FencingToken::MAX);
        let above = counter.filter(|_| !foreign && owner.as_str() != Owner::READERS);
        let above = above.map(|counter| FencingToken::new(counter.get() + 1));
        let (sender, mut votes) = vote_channel();
        // The release is sent only once. All readers share one owner token, so a late repetition would release
        // readers that acquired the lock since.
        for node in 0..pool.len() {
            if let Some(to) = above {
                let (resource, owner) = (resource.clone(), owner.clone());
                let request = Request::Raise { resource, owner, to, keep: pool.config().fence_retention };
                pool.ask(node, request, ReplyTo { sender: sender.clone(), ticket: RAISED });
            }
            let request = Request::Release { resource: resource.clone(), owner: owner.clone() };
            pool.ask(node, request, ReplyTo { sender: sender.clone(), ticket: RELEASED });
        }
        drop(sender);
        let deadline = pool.env().now() + pool.config().node_timeout * 2;
        let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
        let (mut freed, mut counted) = (0, 0);
        while let Some(Some(vote)) = pool.env().before(deadline, votes.recv()).await {
            if vote.ticket == RAISED {
                counted += usize::from(is_held && matches!(vote.answer, Answer::Reply(Reply::Raised)));
                continue;
            }
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
            freed += usize::from(matches!(vote.answer, Answer::Reply(Reply::Released(true))));
        }
        let clear = outcomes.iter().filter(|outcome| matches!(outcome, NodeOutcome::Granted)).count();
        ForcedRelease { freed, clear, counted, foreign, report: pool.report(outcomes) }
    }

    async fn before_release(&self, resource: &Resource, owner: &Owner) -> Before {
        let mut votes = self.pool().ask_all(Request::Inspect { resource: resource.clone() });
        let mut before = Before::default();
        while let Some(vote) = votes.recv().await {
            let Answer::Reply(Reply::State { holder, counter, .. }) = vote.answer else { continue };
            before.named += usize::from(holder.is_some_and(|(holder, _)| holder == *owner));
            before.counter = before.counter.max(counter);
        }
        before
    }
}
