//! Records of a group, and the node's marker.

use super::{Desk, Store};
use crate::node::{FencingToken, Record, Refusal, Reply};
use std::sync::Arc;

impl<S: Store> Desk<'_, S> {
    pub(super) fn seal(&mut self, ledger: &Arc<str>, term: FencingToken) -> Result<Reply, S::Error> {
        let mut state = self.store.ledger(ledger)?;
        if state.term > term {
            return Ok(Reply::Refused(Refusal::Sealed { by: state.term }));
        }
        if state.term < term {
            state.term = term;
            self.store.set_ledger(ledger, state.clone())?;
        }
        Ok(Reply::Ledger(state))
    }

    pub(super) fn write(
        &mut self,
        ledger: &Arc<str>,
        term: FencingToken,
        key: &Arc<str>,
        seen: Option<&Record>,
        record: &Record,
    ) -> Result<Reply, S::Error> {
        let mut state = self.store.ledger(ledger)?;
        if state.term > term {
            return Ok(Reply::Refused(Refusal::Sealed { by: state.term }));
        }
        if record.at < state.low_water {
            return Ok(Reply::Refused(Refusal::Pruned));
        }
        let place = state.records.binary_search_by(|(name, _)| name.cmp(key));
        if let Ok(at) = place {
            let standing = &state.records[at].1;
            if standing == record {
                return Ok(Reply::Written);
            }
            if standing.last || Some(standing) != seen {
                return Ok(Reply::Standing(standing.clone()));
            }
        }
        match place {
            Ok(at) => state.records[at].1 = record.clone(),
            Err(at) => state.records.insert(at, (Arc::clone(key), record.clone())),
        }
        state.term = term;
        self.store.set_ledger(ledger, state)?;
        Ok(Reply::Written)
    }

    pub(super) fn prune(
        &mut self,
        ledger: &Arc<str>,
        term: FencingToken,
        below: u64,
    ) -> Result<Reply, S::Error> {
        let mut state = self.store.ledger(ledger)?;
        if state.term > term {
            return Ok(Reply::Refused(Refusal::Sealed { by: state.term }));
        }
        state.term = term;
        // A leader whose clock is ahead must not have the ledger forget what is yet to come.
        let below = below.min(self.clocks.wall.as_micros());
        state.low_water = state.low_water.max(below);
        let mark = state.low_water;
        state.records.retain(|(_, record)| record.at >= mark);
        self.store.set_ledger(ledger, state)?;
        Ok(Reply::Written)
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
