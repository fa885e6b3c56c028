//! What others wish of a holder: that it let go.
//!
//! A wish is a lease of its own, on [`Resource::wish`], that the *holder's* owner token signs. So it is for this one
//! holder and none after it, it ends by itself, and the nodes need no request of another kind for it.

use crate::{
    lease::{Lease, inner::QuorumInner},
    node::{FencingToken, Owner, Reply, Request, Resource},
    vote::{Answer, NodeOutcome, ReplyTo, Report, vote_channel},
};
use std::{collections::BTreeSet, time::Duration};

/// A wish's counter counts nothing, so that it is nothing to a node how far the clock is off that began it.
const ANY_CLOCK: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// A holder looks for wishes this often in a TTL, and within these bounds.
const LOOKS: u32 = 10;
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

/// Asks the holder of `resource` that is signed `owner` to let go; the wish lasts for `lasts`.
///
/// # Errors
/// What each node said, where fewer than a majority took it.
pub(crate) async fn ask(
    inner: &QuorumInner,
    resource: &Resource,
    owner: &Owner,
    lasts: Duration,
) -> Result<(), Report> {
    let (pool, wish) = (inner.pool(), resource.wish());
    let (answers, mut votes) = vote_channel();
    let mut looks = pool.ask_all(|_| Request::Inspect { resource: wish.clone() });
    while let Some(look) = looks.recv().await {
        if let Answer::Reply(Reply::State { holder: Some((standing, _)), .. }) = look.answer
            && standing != *owner
        {
            // Of a holder that has gone.
            let (nobody, _) = vote_channel();
            let stale = Request::Release { resource: wish.clone(), owner: standing };
            pool.ask(look.node, stale, ReplyTo { sender: nobody, ticket: 0 });
        }
        let request = Request::Acquire {
            resource: wish.clone(),
            owner: owner.clone(),
            ttl: lasts,
            propose: FencingToken::new(pool.env().wall().as_micros()),
            tolerance: ANY_CLOCK,
            keep: lasts,
            ticket: None,
        };
        pool.ask(look.node, request, ReplyTo { sender: answers.clone(), ticket: 0 });
    }
    drop(answers);
    let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
    while let Some(vote) = votes.recv().await {
        outcomes[vote.node] = match &vote.answer {
            Answer::Reply(Reply::Held { owner: standing, .. }) if standing == owner => NodeOutcome::Granted,
            other => NodeOutcome::of(other),
        };
    }
    let took = outcomes.iter().filter(|outcome| matches!(outcome, NodeOutcome::Granted)).count();
    if took >= pool.majority() { Ok(()) } else { Err(pool.report(outcomes)) }
}

/// Waits until a majority of nodes has said that the holder of `lease` is asked to let go. One node's word is not
/// enough: what is on a minority, nobody may ever have asked for.
///
/// # Cancel safety
/// Safe: it only looks.
pub(crate) async fn heard(lease: &Lease) {
    let pool = lease.inner().pool();
    let every = (lease.ttl() / LOOKS).clamp(LOOK_EVERY.0, LOOK_EVERY.1);
    let wish = lease.resource().wish();
    // Who has said so once need not say it again.
    let mut said = BTreeSet::new();
    loop {
        pool.env().sleep(every).await;
        let mut looks = pool.ask_all(|_| Request::Inspect { resource: wish.clone() });
        while let Some(look) = looks.recv().await {
            if let Answer::Reply(Reply::State { holder: Some((standing, _)), .. }) = look.answer
                && standing == *lease.owner()
            {
                said.insert(look.node);
            }
            if said.len() >= pool.majority() {
                return;
            }
        }
    }
}
