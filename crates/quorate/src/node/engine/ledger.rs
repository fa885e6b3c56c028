//! Records of a group, and the node's marker.

use super::{Desk, LEDGER_LIFE, LifeRow, Store};
use crate::node::{
    Cursor, FencingToken, LedgerPage, PAGE_BYTES, PAGE_RECORDS, Record, Refusal, Reply, Request,
};
use std::{sync::Arc, time::Duration};

impl<S: Store> Desk<'_, S> {
    /// Serves a request on a ledger: one whose life has ended is gone, and one that is changed lives on.
    pub(super) fn in_ledger(&mut self, ledger: &Arc<str>, request: &Request) -> Result<Reply, S::Error> {
        let mut life = self.store.ledger_life(ledger)?;
        if life.is_some_and(|life| life.until_micros <= self.clocks.wall.as_micros()) {
            self.store.remove_ledger(ledger)?;
            life = None;
        }
        let reply = match request {
            Request::Seal { term, after, .. } => self.seal(ledger, *term, after.as_ref())?,
            Request::Write { term, key, seen, record, .. } => {
                self.write(ledger, *term, key, seen.as_ref(), record)?
            }
            Request::Prune { term, below, after, .. } => self.prune(ledger, *term, *below, after.as_ref())?,
            Request::Keep { life: wanted, .. } => {
                if life.is_some() {
                    let millis = u64::try_from(wanted.as_millis()).unwrap_or(u64::MAX);
                    self.live_on(ledger, Some(LifeRow { until_micros: 0, millis }))?;
                }
                return Ok(Reply::Kept);
            }
            Request::Read { after, .. } => return Ok(Reply::Ledger(self.page(ledger, after.as_ref())?)),
            // Nothing else is asked of a ledger.
            _ => return Ok(Reply::Ledger(self.page(ledger, None)?)),
        };
        if matches!(reply, Reply::Ledger(_) | Reply::Written | Reply::Pruned { .. }) {
            self.live_on(ledger, life)?;
        }
        Ok(reply)
    }

    /// Lets a ledger live for as long from now as it is to. To save writes, an end that is at most a 64th too early stays.
    fn live_on(&mut self, ledger: &str, life: Option<LifeRow>) -> Result<(), S::Error> {
        let millis =
            life.map_or(u64::try_from(LEDGER_LIFE.as_millis()).unwrap_or(u64::MAX), |life| life.millis);
        let until = (self.clocks.wall + Duration::from_millis(millis)).as_micros();
        let slack = millis.saturating_mul(1000) / 64;
        if life.is_none_or(|life| life.until_micros < until.saturating_sub(slack)) {
            self.store.set_ledger_life(ledger, LifeRow { millis, until_micros: until })?;
        }
        Ok(())
    }

    pub(super) fn seal(
        &mut self,
        ledger: &Arc<str>,
        term: FencingToken,
        after: Option<&Cursor>,
    ) -> Result<Reply, S::Error> {
        let mut page = self.page(ledger, after)?;
        if page.state.term > term {
            return Ok(Reply::Refused(Refusal::Sealed { by: page.state.term }));
        }
        if page.state.term < term {
            page.state.term = term;
            self.store.amend_ledger(ledger, (term, page.state.low_water), Vec::new())?;
        }
        Ok(Reply::Ledger(page))
    }

    /// What comes after `after`, by key: about [`PAGE_BYTES`] of it, one record at least.
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
        term: FencingToken,
        key: &Arc<str>,
        seen: Option<&Record>,
        record: &Record,
    ) -> Result<Reply, S::Error> {
        let state = self.store.ledger_at(ledger, key)?;
        if state.term > term {
            return Ok(Reply::Refused(Refusal::Sealed { by: state.term }));
        }
        if record.at < state.low_water {
            return Ok(Reply::Refused(Refusal::Pruned));
        }
        if let Some((_, standing)) = state.records.first() {
            if standing == record {
                return Ok(Reply::Written);
            }
            if standing.last || Some(standing) != seen {
                return Ok(Reply::Standing(standing.clone()));
            }
        }
        let records = vec![(Arc::clone(key), Some(record.clone()))];
        self.store.amend_ledger(ledger, (term, state.low_water), records)?;
        Ok(Reply::Written)
    }

    pub(super) fn prune(
        &mut self,
        ledger: &Arc<str>,
        term: FencingToken,
        below: u64,
        after: Option<&Cursor>,
    ) -> Result<Reply, S::Error> {
        let LedgerPage { state, next } = self.page(ledger, after)?;
        if state.term > term {
            return Ok(Reply::Refused(Refusal::Sealed { by: state.term }));
        }
        // A leader whose clock is ahead must not have the ledger forget what is yet to come.
        let below = below.min(self.clocks.wall.as_micros());
        let mark = state.low_water.max(below);
        let forgotten = state.records.into_iter().filter(|(_, record)| record.at < mark);
        let forgotten: Vec<_> = forgotten.map(|(key, _)| (key, None)).collect();
        if !forgotten.is_empty() || (state.term, state.low_water) != (term, mark) {
            self.store.amend_ledger(ledger, (term, mark), forgotten)?;
        }
        Ok(Reply::Pruned { next })
    }

    pub(super) fn mark(&mut self, expect: Option<&Arc<str>>, marker: &Arc<str>) -> Result<Reply, S::Error> {
        let standing = self.store.marker()?;
        if standing.as_ref() != expect {
            return Ok(Reply::Refused(Refusal::Marker(standing)));
        }
        // Whoever only looks says what stands: nothing is written.
        if standing.as_ref() != Some(marker) {
            self.store.set_marker(Arc::clone(marker))?;
        }
        Ok(Reply::Marked)
    }
}
