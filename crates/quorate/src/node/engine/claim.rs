//! Requests on claims: counting attempts, completing a claim, and resetting it.

use super::{ClaimRecord, ClaimRow, RequestHandler, Store};
use crate::node::{AttemptCount, DoneRecord, Owner, Refusal, Reply, Resource};
use std::time::Duration;

/// The record of a claim that has not expired. At most one of the two fields is set.
#[derive(Default)]
pub(super) struct ClaimState {
    pub(super) done: Option<DoneRecord>,
    pub(super) begun: Option<AttemptCount>,
}

/// Returns whether a node that has counted `stored` attempts accepts the count `requested`. The node accepts
/// only a larger count, so that each attempt is counted once. Without this rule, two workers could begin the
/// same attempt, because the majority that granted the claim may differ from the majority that counts the
/// attempt.
pub fn counts_more(stored: Option<u32>, requested: u32) -> bool {
    stored.unwrap_or_default() < requested
}

impl<S: Store> RequestHandler<'_, S> {
    /// Returns the record of a claim if it has not expired. For any other resource, returns an empty record.
    pub(super) fn live_claim(&self, resource: &Resource) -> Result<ClaimState, S::Error> {
        if resource.is_claim() { self.claim_state(resource) } else { Ok(ClaimState::default()) }
    }

    fn claim_state(&self, resource: &Resource) -> Result<ClaimState, S::Error> {
        let row = self.store.claim(resource)?;
        let row = row.filter(|row| row.until_micros > self.clocks.wall.as_micros());
        Ok(match row.map(|row| row.record) {
            Some(ClaimRecord::Done(done)) => ClaimState { done: Some(done), begun: None },
            Some(ClaimRecord::Begun(begun)) => ClaimState { done: None, begun: Some(begun) },
            None => ClaimState::default(),
        })
    }

    fn set_record(
        &mut self,
        resource: &Resource,
        record: ClaimRecord,
        keep: Duration,
    ) -> Result<(), S::Error> {
        let until_micros = (self.clocks.wall + keep).as_micros();
        self.store.set_claim(resource, Some(ClaimRow { record, until_micros }))
    }

    pub(super) fn complete(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        record: &DoneRecord,
        retention: Duration,
    ) -> Result<Reply, S::Error> {
        let token = record.token;
        let stored = self.live_claim(resource)?.done;
        if let Some(done) = stored.filter(|done| done.token > token) {
            return Ok(Reply::Done(done));
        }
        let holder = self.live_lease(resource)?;
        match &holder {
            Some(row) if *row.owner != *owner.as_str() => return Ok(self.held(row)),
            Some(_) => {}
            None if self.live_counter(resource)?.is_some_and(|count| count > token) => {
                return Ok(Reply::Refused(Refusal::Superseded));
            }
            None => {}
        }
        // The done record contains the token, and the next token is computed from it. So the counter may
        // expire.
        if let Some(count) = self.live_counter(resource)? {
            self.set_counter(resource, count, Duration::ZERO)?;
        }
        self.set_record(resource, ClaimRecord::Done(record.clone()), retention)?;
        if holder.is_some() {
            self.free(resource, owner)?;
        }
        Ok(Reply::Completed)
    }

    /// Counts an attempt that is about to begin. If `withdraw` is true, removes the count of an attempt whose
    /// handler never began.
    pub(super) fn count_attempt(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        mut requested: AttemptCount,
        withdraw: bool,
        keep: Duration,
    ) -> Result<Reply, S::Error> {
        match self.live_lease(resource)? {
            Some(row) if *row.owner == *owner.as_str() => {}
            _ => return Ok(Reply::Refused(Refusal::NotOwner)),
        }
        let ClaimState { done, begun } = self.claim_state(resource)?;
        if let Some(done) = done {
            return Ok(Reply::Done(done));
        }
        let stored = begun.as_ref().map(|begun| begun.attempts);
        let is_accepted = if withdraw {
            stored == Some(requested.attempts)
        } else {
            counts_more(stored, requested.attempts)
        };
        if !is_accepted {
            return Ok(Reply::Refused(Refusal::Superseded));
        }
        if withdraw {
            requested.attempts = requested.attempts.saturating_sub(1);
        }
        // If no attempts are counted, the payload's fingerprint is removed too. An attempt that never began
        // must not exclude other payloads.
        requested.payload = match requested.attempts {
            0 => None,
            _ => requested.payload.or(begun.and_then(|begun| begun.payload)),
        };
        self.set_record(resource, ClaimRecord::Begun(requested), keep)?;
        Ok(Reply::Counted)
    }

    pub(super) fn reset_attempts(&mut self, resource: &Resource, keep: Duration) -> Result<Reply, S::Error> {
        if let Some(row) = self.live_lease(resource)? {
            return Ok(self.held(&row));
        }
        match self.claim_state(resource)? {
            ClaimState { done: Some(done), .. } if done.dead_lettered.is_none() => {
                return Ok(Reply::Done(done));
            }
            ClaimState { done: Some(done), .. } => {
                // The dead-letter record is removed, and the next token must be larger than its token. So the
                // counter continues from there.
                let count = self.live_counter(resource)?.map_or(done.token, |count| count.max(done.token));
                self.set_counter(resource, count, keep)?;
                self.store.set_claim(resource, None)?;
            }
            ClaimState { done: None, begun: Some(_) } => self.store.set_claim(resource, None)?,
            ClaimState { done: None, begun: None } => {}
        }
        Ok(Reply::AttemptsReset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_is_counted_once() {
        assert!(counts_more(None, 1) && counts_more(Some(1), 2));
        assert!(!counts_more(Some(1), 1) && !counts_more(Some(2), 1) && !counts_more(None, 0));
    }
}
