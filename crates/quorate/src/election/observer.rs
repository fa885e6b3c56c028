use super::history::{PastTerm, TermEnd, TermEndCause, TermRecords};
use crate::{
    backoff::poll_pause,
    env::{BootTime, WallTime},
    ledger::{Ledger, LedgerError},
    node::{FencingToken, Resource},
    quorum::Quorum,
    vote::NoMajority,
};
use std::{sync::Arc, time::Duration};

/// The shortest and the longest time between two inspections by an observer that waits for a change. The longest
/// is for a leadership that has not changed for long.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(3));

/// Watches the leadership of a group without campaigning. A result may already be out of date when the caller
/// reads it.
#[derive(Debug)]
pub struct Observer {
    pub(super) quorum: Quorum,
    pub(super) resource: Resource,
    ledger: Ledger,
    last: Option<Leader>,
    /// The time of the last look of [`Observer::change`] that found a change.
    changed_at: Option<BootTime>,
}

/// The leader of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Leader {
    /// The name of the worker that leads, from its owner token.
    pub worker: Arc<str>,
    /// The leader's term, or `None` if it is not known.
    pub term: Option<FencingToken>,
    /// The time at which this process first saw the leader lead, by its own wall clock.
    pub seen_since: WallTime,
    /// The time for which the leader will lead if its lease is not extended again.
    pub remaining: Option<Duration>,
}

impl Observer {
    pub(super) fn new(quorum: Quorum, resource: Resource, ledger: Ledger) -> Self {
        Self { quorum, resource, ledger, last: None, changed_at: None }
    }

    /// Asks the nodes for the leader.
    ///
    /// # Errors
    /// [`NoMajority`] if fewer than a majority answered.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn leader(&mut self) -> Result<Option<Leader>, NoMajority> {
        let seen = self.quorum.inspect(&self.resource).await?;
        // During a reservation, the nodes name the successor as the owner, but the successor does not lead yet.
        let holder = seen.holder.filter(|holder| holder.reserved_for().is_none());
        let leader = holder.map(|holder| {
            let worker: Arc<str> = holder.worker().into();
            let same = self.last.as_ref().filter(|last| last.worker == worker && last.term == seen.token);
            let seen_since = same.map_or_else(|| self.quorum.env().wall(), |last| last.seen_since);
            Leader { worker, term: seen.token, seen_since, remaining: seen.remaining }
        });
        self.last.clone_from(&leader);
        Ok(leader)
    }

    /// Returns the `limit` newest terms of the group, the newest first. The nodes keep about the newest 200 terms.
    ///
    /// # Errors
    /// [`NoMajority`] if fewer than a majority answered.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    #[doc(hidden)]
    pub async fn history(&self, limit: usize) -> Result<Vec<PastTerm>, NoMajority> {
        self.terms().newest(limit).await
    }

    /// Records that an operator released the lease of `holder`'s term by force. The leader itself notices only that
    /// it cannot extend its lease. Does nothing if the term is not known.
    ///
    /// # Errors
    /// [`LedgerError`] if too few nodes stored the record.
    ///
    /// # Cancel safety
    /// If the future is dropped, some nodes may store the record.
    #[doc(hidden)]
    pub async fn note_forced_release(
        &self,
        holder: &str,
        term: Option<FencingToken>,
        reason: &str,
    ) -> Result<(), LedgerError> {
        let Some(number) = term else { return Ok(()) };
        let known = self.terms().newest(usize::MAX).await.map_err(LedgerError::NoMajority)?;
        let at = self.quorum.wall();
        let of_term = known.iter().find(|term| term.term == number);
        let (began, priority) = of_term.map_or((at, 0), |term| (term.began, term.priority));
        let end = TermEnd { at, cause: TermEndCause::ForcedRelease, reason: reason.into() };
        let holder = holder.into();
        self.terms().write(&PastTerm { term: number, holder, began, priority, end: Some(end) }).await
    }

    fn terms(&self) -> TermRecords {
        TermRecords::new(&self.ledger)
    }

    /// Waits until the leader or the term differs from the one last returned, or until there is no leader any
    /// more. The first call returns at once. The nodes are asked every 250 ms, and less often the longer nothing
    /// changes: every 3 s after 48 s.
    ///
    /// # Errors
    /// [`NoMajority`] if fewer than a majority answered. Call the function again to continue.
    ///
    /// # Cancel safety
    /// Safe: if a dropped call missed a change, the next call reports it.
    pub async fn change(&mut self) -> Result<Option<Leader>, NoMajority> {
        let key = |leader: &Option<Leader>| leader.as_ref().map(|l| (Arc::clone(&l.worker), l.term));
        loop {
            let before = key(&self.last);
            let env = self.quorum.env().clone();
            let looked = env.now();
            let now = self.leader().await?;
            if self.changed_at.is_none() || key(&now) != before {
                self.changed_at = Some(looked);
                return Ok(now);
            }
            let quiet = self.changed_at.map_or(Duration::ZERO, |at| at.until(looked));
            let pause = poll_pause(quiet, LOOK_EVERY.0, LOOK_EVERY.1);
            let lasts = now.and_then(|leader| leader.remaining).unwrap_or_default() / 10 * 9;
            env.sleep_until_poll(looked, env.now() + pause, env.now() + lasts.max(pause)).await;
        }
    }
}
