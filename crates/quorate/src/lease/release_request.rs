//! Requests that ask a holder to release its lease.
//!
//! A release request is stored like a short lease on a name of its own, [`Resource::resign_request`]. Its
//! owner token is the token of the *holder*. So the request applies only to this holder, and to no later one.
//! The request expires after its TTL. Nodes need no additional kind of request for it.
//!
//! If the owner token of the request has the name of a worker behind the token of the holder
//! ([`Owner::successor_request`]), the holder is asked to hand the lease over to this worker.

use crate::{
    lease::{Bell, Lease, inner::QuorumInner},
    node::{FencingToken, Owner, Reply, Request, Resource},
    vote::{Answer, NoMajority, NodeOutcome, ReplyTo, vote_channel},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The tolerance for the value at which a node starts a fencing counter for the request. This counter is not
/// used, so any clock is accepted.
const ANY_CLOCK: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// The number of checks for release requests that a holder makes in the time of one TTL.
const LOOKS: u32 = 5;
/// The shortest and the longest time between two of these checks.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The longest time between two of these checks if it is known that nothing changes on the nodes.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(60);

/// Asks the holder of `resource` with the owner token `owner` to release it, or to hand it over. The release request
/// lasts for `lasts`.
///
/// # Errors
/// The outcome of each node, if fewer than a majority accepted the release request.
pub(crate) async fn request_release(
    inner: &Arc<QuorumInner>,
    resource: &Resource,
    owner: &Owner,
    lasts: Duration,
) -> Result<(), NoMajority> {
    let (pool, request_key) = (inner.pool(), resource.resign_request());
    let (answers, mut votes) = vote_channel();
    let mut looks = pool.ask_all(Request::Inspect { resource: request_key.clone() });
    while let Some(look) = looks.recv().await {
        if let Answer::Reply(Reply::State { holder: Some((stored, _)), .. }) = look.answer
            && stored != *owner
        {
            // The stored request is addressed to a former holder, so it is removed to make room for the new
            // one.
            let (unused, _) = vote_channel();
            let stale = Request::Release { resource: request_key.clone(), owner: stored };
            pool.ask(look.node, stale, ReplyTo { sender: unused, ticket: 0 });
        }
        let request = Request::Acquire {
            resource: request_key.clone(),
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
            Answer::Reply(Reply::Held { owner: stored, .. }) if stored == owner => NodeOutcome::Granted,
            other => NodeOutcome::of(other),
        };
    }
    let accepted = outcomes.iter().filter(|outcome| matches!(outcome, NodeOutcome::Granted)).count();
    if accepted < pool.majority() {
        return Err(pool.report(outcomes));
    }
    Bell::new(inner, resource.bell()).ring().await;
    Ok(())
}

/// Waits until a majority of the nodes has reported a release request that is addressed to the holder of
/// `lease`. Returns the worker to which the holder is asked to hand the lease over, if the request names one. A request that
/// only a minority stores does not count, because its sender may have received an error. Looks when `bell` rings, and from
/// time to time.
///
/// # Cancel safety
/// Safe: the call only reads.
pub(crate) async fn resign_requested(lease: &Lease, bell: &Bell) -> Option<Arc<str>> {
    let pool = lease.inner().pool();
    let every = (lease.ttl() / LOOKS).clamp(LOOK_EVERY.0, LOOK_EVERY.1);
    let request_key = lease.resource().resign_request();
    // The nodes that have reported each request, now or in an earlier check of this function.
    let mut reported: BTreeMap<Owner, BTreeSet<usize>> = BTreeMap::new();
    let (mut looked, mut rings) = (pool.env().now(), bell.rings());
    loop {
        let now = pool.env().now();
        // A request lasts for some time only, and the ring may be lost.
        let at = now + bell.look_every(every).min(lease.ttl());
        tokio::select! { biased;
            () = bell.rung_after(rings) => {}
            () = pool.env().sleep_until_poll(looked, at, now + LOOK_AT_LEAST_EVERY) => {}
        }
        // A ring during this look is followed by another look.
        (looked, rings) = (pool.env().now(), bell.rings());
        let mut looks = pool.ask_all(Request::Inspect { resource: request_key.clone() });
        while let Some(look) = looks.recv().await {
            if let Answer::Reply(Reply::State { holder: Some((stored, _)), .. }) = look.answer
                && let Some(successor) =
                    lease.owner().successor_in(&stored).map(|worker| worker.map(Arc::from))
            {
                let nodes = reported.entry(stored).or_default();
                nodes.insert(look.node);
                if nodes.len() >= pool.majority() {
                    return successor;
                }
            }
        }
    }
}
