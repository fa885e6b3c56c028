//! Requests on the ledger of a group, and on the node's marker.

use super::{LEDGER_LIFE, RequestHandler, RetentionRow, Store};
use crate::node::{Cursor, LedgerPage, PAGE_BYTES, PAGE_RECORDS, Record, Refusal, Reply, Request};
use std::{sync::Arc, time::Duration};

impl<S: Store> RequestHandler<'_, S> {
    /// Serves a request on a ledger. If the retention of the ledger has passed, the ledger is removed first. A
    /// successful request other than a read extends the retention.
    pub(super) fn serve_ledger(&mut self, ledger: &Arc<str>, request: &Request) -> Result<Reply, S::Error> {
        let mut life = self.store.ledger_life(ledger)?;
        if life.is_some_and(|life| life.until_micros <= self.clocks.wall.as_micros()) {
            self.store.remove_ledger(ledger)?;
            life = None;
        }
        let reply = match request {
            Request::Write { key, seen, record, .. } => self.write(ledger, key, seen.as_ref(), record)?,
            Request::Prune { below, after, .. } => self.prune(ledger, *below, after.as_ref())?,
            Request::Keep { life: requested, .. } => {
                if life.is_some() {
                    let millis = u64::try_from(requested.as_millis()).unwrap_or(u64::MAX);
                    self.extend_retention(ledger, Some(RetentionRow { until_micros: 0, millis }))?;
                }
                return Ok(Reply::Kept);
            }
            Request::Read { key: Some(key), .. } => {
                return Ok(Reply::Ledger(self.store.ledger_at(ledger, key)?.into()));
            }
            Request::Read { after, .. } => return Ok(Reply::Ledger(self.page(ledger, after.as_ref())?)),
            Request::SealCopy { seal, after, .. } => self.seal_copy(ledger, *seal, after.as_ref())?,
            Request::Lead { seal, memory, act, .. } => self.lead(ledger, (*seal, *memory), act)?,
            Request::Work { key, id, act, .. } => self.work(ledger, (key, *id), act)?,
            // `Read` is the only remaining request that reaches this function.
            _ => return Ok(Reply::Ledger(self.page(ledger, None)?)),
        };
        if matches!(reply, Reply::Ledger(_) | Reply::Written | Reply::Pruned { .. }) {
            self.extend_retention(ledger, life)?;
        }
        Ok(reply)
    }

    /// Extends the retention of a ledger from now on. Writes nothing if the new end is later than the stored
    /// end by at most 1/64 of the retention. This saves most writes.
    fn extend_retention(&mut self, ledger: &str, life: Option<RetentionRow>) -> Result<(), S::Error> {
        let millis =
            life.map_or(u64::try_from(LEDGER_LIFE.as_millis()).unwrap_or(u64::MAX), |life| life.millis);
        let until = (self.clocks.wall + Duration::from_millis(millis)).as_micros();
        let slack = millis.saturating_mul(1000) / 64;
        if life.is_none_or(|life| life.until_micros < until.saturating_sub(slack)) {
            self.store.set_ledger_life(ledger, RetentionRow { millis, until_micros: until })?;
        }
        Ok(())
    }

    /// Returns the next page: the records after `after`, in the order of their keys. The page has at least
    /// one record, if there is any left. Its size is limited to about [`PAGE_BYTES`] for every
    /// [`PAGE_RECORDS`] records that the store reads at a time.
    pub(super) fn page(&self, ledger: &str, after: Option<&Cursor>) -> Result<LedgerPage, S::Error> {
        let most = self.store.page_records();
        let mut state = self.store.ledger_after(ledger, after.map(Cursor::as_str), most)?;
        let mut bytes = 0;
        let fits = |(key, record): &&(Arc<str>, Record)| {
            let before = bytes;
            bytes += key.len() + record.value.len();
            before < PAGE_BYTES * most.div_ceil(PAGE_RECORDS)
        };
        let fit = state.records.iter().take_while(fits).count();
        let more = fit == most || fit < state.records.len();
        state.records.truncate(fit);
        let next = state.records.last().filter(|_| more).map(|(key, _)| Cursor::new(Arc::clone(key)));
        Ok(LedgerPage { state, next })
    }

    pub(super) fn write(
        &mut self,
        ledger: &Arc<str>,
        key: &Arc<str>,
        seen: Option<&Record>,
        record: &Record,
    ) -> Result<Reply, S::Error> {
        let state = self.store.ledger_at(ledger, key)?;
        if record.at < state.low_water {
            return Ok(Reply::Refused(Refusal::Pruned));
        }
        if let Some((_, stored)) = state.records.first() {
            if stored == record {
                return Ok(Reply::Written);
            }
            if stored.last || Some(stored) != seen {
                return Ok(Reply::Conflict(stored.clone()));
            }
        }
        let records = vec![(Arc::clone(key), Some(record.clone()))];
        self.store.amend_ledger(ledger, state.low_water, records)?;
        Ok(Reply::Written)
    }

    pub(super) fn prune(
        &mut self,
        ledger: &Arc<str>,
        below: u64,
        after: Option<&Cursor>,
    ) -> Result<Reply, S::Error> {
        let LedgerPage { state, next } = self.page(ledger, after)?;
        // The mark is limited to this node's own time. Otherwise a client whose clock is ahead could set it
        // after the times of records that are still to be written.
        let below = below.min(self.clocks.wall.as_micros());
        let mark = state.low_water.max(below);
        let forgotten = state.records.into_iter().filter(|(_, record)| record.at < mark);
        let forgotten: Vec<_> = forgotten.map(|(key, _)| (key, None)).collect();
        if !forgotten.is_empty() || state.low_water != mark {
            self.store.amend_ledger(ledger, mark, forgotten)?;
        }
        Ok(Reply::Pruned { next })
    }

    pub(super) fn mark(&mut self, expect: Option<&Arc<str>>, marker: &Arc<str>) -> Result<Reply, S::Error> {
        let stored = self.store.marker()?;
        if stored.as_ref() != expect {
            return Ok(Reply::Refused(Refusal::Marker(stored)));
        }
        // A worker may send the marker that is already stored, to confirm it. Then nothing is written.
        if stored.as_ref() != Some(marker) {
            self.store.set_marker(Arc::clone(marker))?;
        }
        Ok(Reply::Marked)
    }
}
