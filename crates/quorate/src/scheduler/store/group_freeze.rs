use crate::{
    env::WallTime,
    scheduler::{
        job::RequestId,
        store::{
            Paused, RecordError,
            job_row::{note_request, parse},
        },
    },
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The freeze of a group, which is a pause of all its jobs. The leader writes it to the row `freeze` of the group's
/// ledger, and any client may read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupFreeze {
    /// The last freeze. One that has ended stays here until the next one, so that a leader can end it for jobs for which
    /// no earlier leader has.
    #[serde(rename = "paused", default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Paused>,
    /// The last requests that changed the row, as in [`JobRow::requests`](super::JobRow::requests).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestId>,
}

impl GroupFreeze {
    /// The key of the row.
    pub const KEY: &str = "freeze";

    /// Returns the value of the row.
    pub fn to_value(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }

    /// Reads the row from its value.
    ///
    /// # Errors
    /// [`RecordError`] if [`GroupFreeze::to_value`] could not have written the value.
    pub fn parse(value: &str) -> Result<Self, RecordError> {
        parse("freeze", value)
    }

    /// Returns the freeze, if it has not ended.
    pub fn active(&self, now: WallTime) -> Option<&Paused> {
        self.last.as_ref().filter(|paused| paused.ended(now).is_none())
    }

    /// Returns whether the request has changed the row before.
    pub(in crate::scheduler) fn has_done(&self, request: RequestId) -> bool {
        self.requests.contains(&request)
    }

    /// Freezes the group from `paused.at` on. If the group is frozen, the reason and the end are replaced. Does
    /// nothing if the request has changed the row before.
    pub(in crate::scheduler) fn freeze(&mut self, request: RequestId, paused: Paused) {
        if !self.has_done(request) {
            let at = self.active(paused.at).map_or(paused.at, |before| before.at);
            self.last = Some(Paused { at, ..paused });
            note_request(&mut self.requests, request);
        }
    }

    /// Ends the freeze at `now`. Does nothing if the group is not frozen, or the request has changed the row before.
    pub(in crate::scheduler) fn unfreeze(&mut self, request: RequestId, now: WallTime) {
        if !self.has_done(request) && self.active(now).is_some() {
            self.last.iter_mut().for_each(|paused| paused.until = Some(now));
            note_request(&mut self.requests, request);
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
        assert_eq!(freeze.last.as_ref(), Some(&frozen(10, 40)), "it began with the first request");
        freeze.freeze(RequestId::from_u128(2), frozen(20, 99));
        assert_eq!(freeze.last.as_ref(), Some(&frozen(10, 40)), "a request is carried out once");
        freeze.unfreeze(RequestId::from_u128(3), at(25));
        assert_eq!(freeze.last.as_ref(), Some(&frozen(10, 25)));
        freeze.freeze(RequestId::from_u128(4), frozen(50, 60));
        assert_eq!(freeze.last.as_ref(), Some(&frozen(50, 60)), "a later freeze has a beginning of its own");
        freeze.unfreeze(RequestId::from_u128(5), at(70));
        assert!(!freeze.has_done(RequestId::from_u128(5)) && freeze.has_done(RequestId::from_u128(4)));
        assert!(freeze.to_value().starts_with(r#"{"paused":{"by":"ann","at":50,"until":60},"requests":["#));
        assert_eq!(GroupFreeze::parse(&freeze.to_value()).unwrap(), freeze, "the next leader reads the same");
    }
}
