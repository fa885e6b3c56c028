//! The leader of a set: decides which worker owns which shard, and writes it as one record.

use super::{
    assignment::{Announcement, Assignment, KEY},
    set::Set,
    view,
};
use crate::{
    env::BootTime,
    lease::{AcquireError, Lease, Locks},
    ledger::LedgerError,
    node::{Record, Resource},
    sabotage::Sabotage,
    session::{Seen, Sessions, announced},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The pause after a look that too few nodes answered, and while a change of the number of shards waits.
const AGAIN: Duration = Duration::from_millis(250);
/// The pause after an error of the nodes, before the leadership is tried again.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// The time between a session's end and the look that finds it.
const AFTER_END: Duration = Duration::from_millis(5);
/// Announcements that are older are removed.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// The time between two renewals of the lifetimes of the records.
const KEEP_EVERY: Duration = Duration::from_secs(3600);
/// The largest number of other records that one write replaces, one after another.
const REPLACED_MAX: usize = 8;

/// Leads the set whenever no other worker does, until the future is dropped. Returns an error that no later attempt can avoid.
pub(super) async fn lead(set: &Arc<Set>) -> AcquireError {
    let (env, lock) = (set.env(), set.leadership());
    loop {
        match lock.acquire().await {
            Ok(lease) => {
                tracing::info!(
                    set = &*set.name,
                    term = lease.unchecked_token().get(),
                    "leads the set of shards"
                );
                Leader { set, lease, plan: None, forget_at: env.now(), keep_at: env.now() }.serve().await;
            }
            Err(error @ (AcquireError::Setting(_) | AcquireError::Closed)) => return error,
            Err(error) if error.is_permanent() && !set.quorum.pool().has_had_quorum() => return error,
            Err(error) => {
                tracing::debug!(set = &*set.name, "no worker leads the set yet: {error}");
                env.sleep(AFTER_ERROR).await;
            }
        }
    }
}

struct Leader<'a> {
    set: &'a Arc<Set>,
    lease: Lease,
    /// The latest record, as the nodes had it when they were asked last.
    plan: Option<(Record, Assignment)>,
    /// The times of the next removal of announcements, and of the next renewal of the lifetimes.
    forget_at: BootTime,
    keep_at: BootTime,
}

impl Leader<'_> {
    async fn serve(mut self) {
        let (env, step_down) = (self.set.env().clone(), self.lease.step_down_token().clone());
        loop {
            let rings = self.set.bell.rings();
            let pause = tokio::select! { biased;
                () = step_down.cancelled() => return,
                turn = self.turn() => match turn {
                    Ok(pause) => pause,
                    Err(LedgerError::Superseded { .. }) => return,
                    Err(error) => {
                        tracing::debug!(set = &*self.set.name, "the shards are not balanced yet: {error}");
                        AGAIN
                    }
                },
            };
            let at = env.now() + pause;
            tokio::select! { biased;
                () = step_down.cancelled() => return,
                () = self.set.bell.rung_after(rings) => {}
                () = env.sleep_until(at) => {}
            }
        }
    }

    /// Looks at the workers, and writes a new plan if it differs. Returns the pause before the next look.
    async fn turn(&mut self) -> Result<Duration, LedgerError> {
        let set = self.set;
        let keys = [KEY.into()];
        let (stored, announcements) = tokio::join!(set.ledger.read_keys(&keys), set.workers.read());
        // If the nodes have lost the record, the plan goes on as this leader knows it.
        self.plan = Assignment::latest(&stored?).or(self.plan.take());
        let announcements = announced::<Announcement>(&announcements?);
        let plan = self.plan.as_ref().map(|(_, plan)| plan.clone()).unwrap_or_default();
        let mut sessions: Vec<Arc<str>> = plan.workers.keys().cloned().collect();
        sessions.extend(announcements.iter().map(|(session, _)| Arc::clone(session)));
        sessions.sort_unstable();
        sessions.dedup();
        let looks = Sessions::look_long(&set.quorum, &set.group, &sessions).await;
        let ends = looks.iter().filter_map(|(_, _, remaining)| *remaining).min();
        let pause = if looks.len() < sessions.len() { AGAIN } else { set.look_every() };
        let seen: BTreeMap<Arc<str>, Seen> =
            looks.into_iter().map(|(session, seen, _)| (session, seen)).collect();
        let is_announced = !announcements.is_empty();
        let next = plan.next(announcements, &seen);
        if next != plan {
            let Some(_swept) = self.sweep(&plan, &next).await else { return Ok(AGAIN) };
            self.write(next).await?;
            set.bell.ring().await;
        }
        self.keep(is_announced).await?;
        Ok(ends.map_or(pause, |ends| pause.min(ends + AFTER_END)))
    }

    /// If the number of shards changes, acquires the leases of all shards at one moment: then no worker owns any of them.
    /// Returns `None` if one is still owned. The leases must be held until the new plan is stored: see `Owner::confirmed`.
    async fn sweep(&self, plan: &Assignment, next: &Assignment) -> Option<Vec<Lease>> {
        let skips = self.set.quorum.config().sabotaged(Sabotage::ShardsNotSwept);
        if plan.count == next.count || plan.count == 0 || skips {
            return Some(Vec::new());
        }
        let names = (0..plan.count).map(|shard| Resource::shard(&self.set.name, &shard)).collect();
        let locks = Locks::new(Arc::clone(self.set.quorum.inner()), Ok(names)).ttl(self.set.ttl);
        let each = locks.try_acquire_each().await.ok()?;
        let swept: Option<Vec<Lease>> = each.into_iter().map(|(_, tried)| tried.ok()?.acquired()).collect();
        if swept.is_some() {
            let (from, to) = (plan.count, next.count);
            tracing::info!(set = &*self.set.name, "the number of shards changes from {from} to {to}");
        }
        swept
    }

    async fn write(&mut self, next: Assignment) -> Result<(), LedgerError> {
        let term = self.lease.unchecked_token();
        let before = self.plan.as_ref().map_or(0, |(record, _)| record.at + 1);
        let at = self.set.quorum.wall().as_micros().max(before);
        let record = Record { at, term, last: false, value: next.to_value() };
        let mut seen = self.plan.as_ref().map(|(record, _)| record.clone());
        for _ in 0..REPLACED_MAX {
            // A write that comes later than the term changes nothing that a later leader has written.
            if !self.lease.is_valid() {
                return Err(LedgerError::Ended);
            }
            match self.set.ledger.write(&KEY.into(), seen.as_ref(), &record).await {
                Err(LedgerError::Standing(other)) if other.term > term => {
                    return Err(LedgerError::Superseded { by: other.term });
                }
                Err(LedgerError::Standing(other)) if seen.as_ref() != Some(&other) => seen = Some(other),
                written => {
                    written?;
                    tracing::info!(
                        set = &*self.set.name,
                        workers = next.workers.len(),
                        "balanced the shards"
                    );
                    self.set.measures.balanced();
                    self.plan = Some((record, next));
                    return Ok(());
                }
            }
        }
        Err(LedgerError::Ended)
    }

    /// Removes old announcements, and renews the lifetimes of the records.
    async fn keep(&mut self, is_announced: bool) -> Result<(), LedgerError> {
        let (set, now) = (self.set, self.set.env().now());
        if is_announced && now >= self.forget_at {
            self.forget_at = now + FORGET_AFTER;
            set.workers.prune((set.quorum.wall() - FORGET_AFTER).as_micros()).await?;
        }
        if now < self.keep_at {
            return Ok(());
        }
        let life = set.quorum.config().ledger_retention;
        view::note(set).await?;
        set.ledger.keep(life).await?;
        set.workers.keep(life).await?;
        self.keep_at = now + KEEP_EVERY;
        Ok(())
    }
}
