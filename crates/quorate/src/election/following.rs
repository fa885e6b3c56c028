//! Candidates that do not only wait for the lease: one that never leads, and one that is preferred.

use super::{Election, history::TermRecords, preference::Preference};
use crate::{
    env::Env,
    lease::{AcquireError, Inspection, request_release},
    ledger::Ledger,
    node::Owner,
};
use std::{convert::Infallible, time::Duration};

/// The shortest and the longest time between two looks at the leader.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(3));
/// The number of looks in the time after which a preferred candidate asks for the lead.
const LOOKS: u32 = 10;
/// The number of failures in a row that lengthen this time. Each doubles it.
const DOUBLINGS: u32 = 3;

/// Follows the leader without campaigning. Returns the error that ends the campaign.
///
/// If this worker has never had a quorum, an error that only an operator can fix ends the campaign, as it ends that of a
/// candidate that may lead.
pub(super) async fn follow(election: &Election, env: &Env) -> AcquireError {
    let Some(resource) = election.resource() else { return AcquireError::Closed };
    loop {
        match election.quorum().inspect(resource).await {
            Ok(Inspection { holder: Some(holder), remaining, .. }) => {
                election.note_holder(&holder, remaining);
            }
            Ok(_) => {}
            Err(report) => {
                let error = AcquireError::lost(resource.clone(), false, report);
                if error.is_permanent() && !election.quorum().pool().has_had_quorum() {
                    return error;
                }
            }
        }
        let looked = env.now();
        tokio::select! { biased;
            () = env.stopped().cancelled() => return AcquireError::Closed,
            () = env.sleep_until_poll(looked, looked + LOOK_EVERY.0, looked + LOOK_EVERY.1) => {}
        }
    }
}

/// While this candidate waits for the lease, asks a leader of lower priority to hand the lease over. It does so once a
/// majority of the nodes has answered at every look for long enough. After `failures` in a row of its own work it waits
/// longer, so that the leadership does not move to and fro. Never returns.
pub(super) async fn ask_for_the_lead(election: &Election, env: &Env, failures: u32) -> Infallible {
    let Preference { priority, take_over_after, .. } = election.preference();
    let patience = take_over_after * (1 << failures.min(DOUBLINGS));
    let pause = (take_over_after / LOOKS).clamp(LOOK_EVERY.0, LOOK_EVERY.1);
    let mut healthy_since = env.now();
    let mut known: Option<(Owner, u32)> = None;
    loop {
        let looked = env.now();
        env.sleep_until_poll(looked, looked + pause, healthy_since + patience.max(pause)).await;
        let Some(holder) = leader(election).await else {
            healthy_since = env.now();
            continue;
        };
        let Some(holder) = holder else { continue };
        if known.as_ref().is_none_or(|(of, _)| *of != holder) {
            known = priority_of(election, &holder).await.map(|priority| (holder.clone(), priority));
        }
        let is_lower = known.as_ref().is_some_and(|(_, other)| *other < priority);
        if !is_lower || healthy_since.until(env.now()) < patience {
            continue;
        }
        healthy_since = env.now();
        let (Some(resource), config) = (election.resource(), election.quorum().config()) else { continue };
        let request = holder.successor_request(&config.worker);
        let lasts = election.lease_ttl() * 2;
        match request_release(election.quorum().inner(), resource, &request, lasts).await {
            Ok(()) => tracing::info!(
                group = &**election.group(),
                priority,
                leader = crate::plain::plain(holder.worker(), 200),
                "asked the leader, which has a lower priority, to hand over"
            ),
            Err(report) => tracing::debug!("cannot ask the leader to hand over: {report}"),
        }
    }
}

/// Returns the owner token of the leader. Returns `None` if too few nodes answered.
async fn leader(election: &Election) -> Option<Option<Owner>> {
    let seen = election.quorum().inspect(election.resource()?).await.ok()?;
    Some(seen.holder.filter(|holder| holder.reserved_for().is_none()))
}

/// Returns the priority that the leader has recorded. Returns `None` while no record is found.
///
/// The record is that of the newest term. The counters of the nodes do not show the leader's term: an attempt of another
/// candidate that failed may have raised them.
async fn priority_of(election: &Election, leader: &Owner) -> Option<u32> {
    let ledger = Ledger::new(election.quorum(), election.group()).ok()?;
    let terms = TermRecords::new(&ledger).newest(1).await.ok()?;
    terms.iter().find(|past| past.end.is_none() && *past.holder == *leader.worker()).map(|past| past.priority)
}
