//! The freeze of a group: a pause of all its jobs, stored in one row. The row has the form of a job's row, of which it
//! uses the pause and the requests.

use crate::{
    env::WallTime,
    scheduler::{
        job::RequestId,
        plan::known_jobs::{StoredRow, row_of},
        store::{JobRow, Paused, RecordError, snapshot::LedgerSnapshot},
    },
};
use std::sync::Arc;

/// The freeze of the group, as the leader knows it. A freeze that has ended stays in the row until the next one, so
/// that a leader can end it for jobs for which no earlier leader has.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct GroupFreeze(JobRow);

impl GroupFreeze {
    /// Reads the row from the ledger, and the reason why it cannot be read.
    pub(in crate::scheduler) fn find(sealed: &LedgerSnapshot) -> (Self, Option<RecordError>) {
        let StoredRow { row, unreadable } = row_of(sealed.row(JobRow::FREEZE));
        (Self(row.unwrap_or_default()), unreadable)
    }

    /// Returns the value of the row.
    pub(in crate::scheduler) fn to_value(&self) -> Arc<str> {
        self.0.to_value()
    }

    /// Returns the last freeze, which may have ended.
    pub(in crate::scheduler) fn last(&self) -> Option<&Paused> {
        self.0.paused.as_ref()
    }

    /// Returns the freeze, if it has not ended.
    pub(in crate::scheduler) fn active(&self, now: WallTime) -> Option<&Paused> {
        self.last().filter(|paused| paused.ended(now).is_none())
    }

    /// Returns whether the request has changed the row before.
    pub(in crate::scheduler) fn has_done(&self, request: RequestId) -> bool {
        self.0.requests.contains(&request)
    }

    /// Freezes the group from `paused.at` on. If the group is frozen, the reason and the end are replaced. Does
    /// nothing if the request has changed the row before.
    pub(in crate::scheduler) fn freeze(&mut self, request: RequestId, paused: Paused) {
        if !self.has_done(request) {
            let at = self.active(paused.at).map_or(paused.at, |before| before.at);
            self.0.paused = Some(Paused { at, ..paused });
            self.0.changed_by(request);
        }
    }

    /// Ends the freeze at `now`. Does nothing if the group is not frozen, or the request has changed the row before.
    pub(in crate::scheduler) fn unfreeze(&mut self, request: RequestId, now: WallTime) {
        if !self.has_done(request) && self.active(now).is_some() {
            self.0.paused.iter_mut().for_each(|paused| paused.until = Some(now));
            self.0.changed_by(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> WallTime {
        WallTime::from_micros(micros)
    }

    fn frozen(from: u64, until: u64) -> Paused {
        Paused { by: "ann".into(), at: at(from), reason: None, until: Some(at(until)) }
    }

    #[test]
    fn a_freeze_lasts_until_its_end_or_until_the_group_is_unfrozen() {
        let mut freeze = GroupFreeze::default();
        assert!(freeze.active(at(0)).is_none());
        freeze.freeze(RequestId::from_u128(1), frozen(10, 30));
        let active = |freeze: &GroupFreeze| [10, 29, 30].map(|now| freeze.active(at(now)).is_some());
        assert_eq!(active(&freeze), [true, true, false]);
        freeze.freeze(RequestId::from_u128(2), frozen(20, 40));
        assert_eq!(freeze.last(), Some(&frozen(10, 40)), "it began with the first request");
        freeze.freeze(RequestId::from_u128(2), frozen(20, 99));
        assert_eq!(freeze.last(), Some(&frozen(10, 40)), "a request is carried out once");
        freeze.unfreeze(RequestId::from_u128(3), at(25));
        assert_eq!(freeze.last(), Some(&frozen(10, 25)));
        freeze.freeze(RequestId::from_u128(4), frozen(50, 60));
        assert_eq!(freeze.last(), Some(&frozen(50, 60)), "a later freeze has a beginning of its own");
        freeze.unfreeze(RequestId::from_u128(5), at(70));
        assert!(!freeze.has_done(RequestId::from_u128(5)) && freeze.has_done(RequestId::from_u128(4)));
    }
}
