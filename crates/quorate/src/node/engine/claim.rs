//! That a claim is done.

use super::{Desk, DoneRow, Store};
use crate::node::{DoneRecord, FencingToken, Owner, Refusal, Reply, Resource};
use std::{sync::Arc, time::Duration};

impl<S: Store> Desk<'_, S> {
    pub(super) fn complete(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        token: FencingToken,
        result: &Arc<str>,
        retention: Duration,
    ) -> Result<Reply, S::Error> {
        let standing = self.live_done(resource)?;
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
        let until_micros = (self.clocks.wall + retention).as_micros();
        let record = DoneRecord { token, result: Arc::clone(result) };
        let count = self.live_counter(resource)?.map_or(token, |count| count.max(token));
        self.count(resource, count, retention)?;
        self.store.set_done(resource, DoneRow { record, until_micros })?;
        if holder.is_some() {
            self.free(resource, owner)?;
        }
        Ok(Reply::Completed)
    }
}
