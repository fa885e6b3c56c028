//! What is recorded of a claim: how often it was begun, that it is done, that it was given up.

use super::{ClaimRecord, ClaimRow, Desk, Store};
use crate::node::{Begun, DoneRecord, Owner, Refusal, Reply, Resource};
use std::time::Duration;

/// What stands of a claim: one of the two, or neither.
#[derive(Default)]
pub(super) struct Stands {
    pub(super) done: Option<DoneRecord>,
    pub(super) begun: Option<Begun>,
}

/// Whether a node where `standing` attempts are counted counts that there are `asked`: one count stands for one
/// attempt. (The majority that counts need not be the one that granted: a node of it may have counted another's
/// attempt meanwhile.)
pub fn counts_more(standing: Option<u32>, asked: u32) -> bool {
    standing.unwrap_or_default() < asked
}

impl<S: Store> Desk<'_, S> {
    /// Nothing, of what is no claim.
    pub(super) fn live_claim(&self, resource: &Resource) -> Result<Stands, S::Error> {
        if resource.is_claim() { self.recorded(resource) } else { Ok(Stands::default()) }
    }

    fn recorded(&self, resource: &Resource) -> Result<Stands, S::Error> {
        let row = self.store.claim(resource)?;
        let row = row.filter(|row| row.until_micros > self.clocks.wall.as_micros());
        Ok(match row.map(|row| row.record) {
            Some(ClaimRecord::Done(done)) => Stands { done: Some(done), begun: None },
            Some(ClaimRecord::Begun(begun)) => Stands { done: None, begun: Some(begun) },
            None => Stands::default(),
        })
    }

    fn keep(&mut self, resource: &Resource, record: ClaimRecord, keep: Duration) -> Result<(), S::Error> {
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
        let standing = self.live_claim(resource)?.done;
        if let Some(done) = standing.filter(|done| done.token > token) {
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
        // The record has the token from now on.
        if let Some(count) = self.live_counter(resource)? {
            self.count(resource, count, Duration::ZERO)?;
        }
        self.keep(resource, ClaimRecord::Done(record.clone()), retention)?;
        if holder.is_some() {
            self.free(resource, owner)?;
        }
        Ok(Reply::Completed)
    }

    /// An attempt that is about to begin, or (`back`) that never began after all.
    pub(super) fn count_attempt(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        mut asked: Begun,
        back: bool,
        keep: Duration,
    ) -> Result<Reply, S::Error> {
        match self.live_lease(resource)? {
            Some(row) if *row.owner == *owner.as_str() => {}
            _ => return Ok(Reply::Refused(Refusal::NotOwner)),
        }
        let Stands { done, begun } = self.recorded(resource)?;
        if let Some(done) = done {
            return Ok(Reply::Done(done));
        }
        let standing = begun.as_ref().map(|begun| begun.attempts);
        let agrees =
            if back { standing == Some(asked.attempts) } else { counts_more(standing, asked.attempts) };
        if !agrees {
            return Ok(Reply::Refused(Refusal::Superseded));
        }
        if back {
            asked.attempts = asked.attempts.saturating_sub(1);
        }
        // Where none is counted there is no payload either: the one that never began must not keep others away.
        asked.payload = match asked.attempts {
            0 => None,
            _ => asked.payload.or(begun.and_then(|begun| begun.payload)),
        };
        self.keep(resource, ClaimRecord::Begun(asked), keep)?;
        Ok(Reply::Counted)
    }

    pub(super) fn forgive(&mut self, resource: &Resource, keep: Duration) -> Result<Reply, S::Error> {
        if let Some(row) = self.live_lease(resource)? {
            return Ok(self.held(&row));
        }
        match self.recorded(resource)? {
            Stands { done: Some(done), .. } if done.poisoned.is_none() => return Ok(Reply::Done(done)),
            Stands { done: Some(done), .. } => {
                // The next token must be larger.
                let count = self.live_counter(resource)?.map_or(done.token, |count| count.max(done.token));
                self.count(resource, count, keep)?;
                self.store.set_claim(resource, None)?;
            }
            Stands { done: None, begun: Some(_) } => self.store.set_claim(resource, None)?,
            Stands { done: None, begun: None } => {}
        }
        Ok(Reply::Forgiven)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_count_stands_for_one_attempt() {
        assert!(counts_more(None, 1) && counts_more(Some(1), 2));
        assert!(!counts_more(Some(1), 1) && !counts_more(Some(2), 1) && !counts_more(None, 0));
    }
}
