//! Records of a group, and the node's marker.

use super::{Desk, Store};
use crate::node::{Cursor, FencingToken, LedgerPage, PAGE_BYTES, PAGE_RECORDS, Record, Refusal, Reply};
use std::sync::Arc;

impl<S: Store> Desk<'_, S> {
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
