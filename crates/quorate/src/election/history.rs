//! The history of a group's terms: who led, from when until when, and why the term ended.
//!
//! # Not guaranteed
//!
//! A leader writes the beginning and the end of its term beside its work, and waits for neither. An entry is missing
//! if too few nodes store it. The end of a term is not recorded if the leader's process died: the term then ends, for
//! the reader, at the latest with the beginning of the next one. The nodes keep the newest terms only.

use crate::{
    env::WallTime,
    ledger::{EntryList, Ledger, LedgerError},
    node::FencingToken,
    vote::NoMajority,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

/// The number of records of a group's terms that the nodes keep. Nearly every term has two.
const RECORDS_MAX: usize = 400;
/// The largest number of bytes of a reason that the nodes keep.
const REASON_MAX: usize = 512;

/// A term in the history of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastTerm {
    /// The number of the term.
    pub term: FencingToken,
    /// The name of the worker that led.
    pub holder: Arc<str>,
    /// The time at which the term began. In JSON, every time is in microseconds since the Unix epoch.
    pub began: WallTime,
    /// The priority of the worker, as its configuration says.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: u32,
    /// The end. `None` if no end is known: the term continues, or its leader died and no worker has led since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TermEnd>,
}

fn is_default(priority: &u32) -> bool {
    *priority == 0
}

/// The end of a term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermEnd {
    /// The time of the end: that of the lease, even if the leader noticed it later. If the leader's process died, the
    /// time at which the next term began.
    pub at: WallTime,
    /// The cause.
    pub cause: TermEndCause,
    /// The details, for people. May be empty.
    #[serde(default)]
    pub reason: Arc<str>,
}

/// The cause of the end of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TermEndCause {
    /// The leader was asked to resign, or its work resigned.
    Resigned,
    /// The leader was shut down.
    ShutDown,
    /// The work ended without an error.
    WorkEnded,
    /// The work returned an error or panicked.
    WorkFailed,
    /// The lease ended, because too few nodes extended it in time.
    LeaseLost,
    /// The term reached the longest time for which a leader may lead.
    MaxHold,
    /// The health check of the leader failed.
    Unhealthy,
    /// An operator released the lease by force.
    ForcedRelease,
    /// The leader did not record an end, and another term has begun. Its process died, or it could not reach a
    /// majority.
    Unknown,
}

impl TermEndCause {
    /// All causes.
    pub const ALL: [Self; 9] = [
        Self::Resigned,
        Self::ShutDown,
        Self::WorkEnded,
        Self::WorkFailed,
        Self::LeaseLost,
        Self::MaxHold,
        Self::Unhealthy,
        Self::ForcedRelease,
        Self::Unknown,
    ];

    /// Returns the name that JSON uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resigned => "resigned",
            Self::ShutDown => "shut-down",
            Self::WorkEnded => "work-ended",
            Self::WorkFailed => "work-failed",
            Self::LeaseLost => "lease-lost",
            Self::MaxHold => "max-hold",
            Self::Unhealthy => "unhealthy",
            Self::ForcedRelease => "forced-release",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for TermEndCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The records of a group's terms. Each term has up to three records, which are never replaced: its beginning, its
/// end, and the forced release of its lease.
#[derive(Clone, Debug)]
pub(super) struct TermRecords(EntryList);

impl TermRecords {
    pub(super) fn new(group: &Ledger) -> Self {
        Self(EntryList::new(group.part("terms"), RECORDS_MAX))
    }

    /// Stores the beginning of `term`, or its end if `term` has one.
    pub(super) async fn write(&self, term: &PastTerm) -> Result<(), LedgerError> {
        let (key, at, entry) = entry(term);
        self.0.add(&key, at, &entry).await
    }

    /// Removes the oldest terms if there are too many, and sets the time for which the nodes keep the others.
    pub(super) async fn prune(&self) -> Result<(), LedgerError> {
        self.0.prune().await?;
        self.keep().await
    }

    /// Renews the lifetime of the records on the nodes.
    pub(super) async fn keep(&self) -> Result<(), LedgerError> {
        self.0.ledger().keep(self.retention()).await
    }

    /// Returns the time for which the nodes keep the records.
    pub(super) fn retention(&self) -> Duration {
        self.0.ledger().quorum().config().ledger_retention
    }

    /// Returns the `limit` newest terms, the newest first.
    pub(super) async fn newest(&self, limit: usize) -> Result<Vec<PastTerm>, NoMajority> {
        match self.0.read().await {
            Ok(records) => Ok(terms(records).into_iter().rev().take(limit).collect()),
            Err(LedgerError::NoMajority(report)) => Err(report),
            // A read of a part has no other error.
            Err(_) => Ok(Vec::new()),
        }
    }
}

/// Returns the key of the record that stores what `term` says.
fn key(term: &PastTerm) -> Arc<str> {
    let kind = match &term.end {
        None => "began",
        Some(end) if end.cause == TermEndCause::ForcedRelease => "forced",
        Some(_) => "ended",
    };
    format!("{:016}/{kind}", term.term.get()).into()
}

/// Returns the record of a term: its key, its time and its content. The time is the beginning of the term, so that all records
/// of a term are pruned together.
fn entry(term: &PastTerm) -> (Arc<str>, WallTime, PastTerm) {
    let key = key(term);
    let mut term = term.clone();
    if let Some(end) = &mut term.end {
        end.reason = crate::node::engine::cut(&end.reason, REASON_MAX).into();
    }
    (key, term.began, term)
}

/// Returns the terms of which there are `records`, the oldest first. A term without a recorded end, after which
/// another term has begun, has ended for an unknown cause.
fn terms(records: Vec<PastTerm>) -> Vec<PastTerm> {
    let mut terms: BTreeMap<FencingToken, PastTerm> = BTreeMap::new();
    let mut releases: BTreeMap<FencingToken, TermEnd> = BTreeMap::new();
    for mut found in records {
        if let Some(release) = found.end.take_if(|end| end.cause == TermEndCause::ForcedRelease) {
            releases.insert(found.term, release);
        }
        match terms.get_mut(&found.term) {
            Some(known) => known.end = known.end.take().or(found.end),
            None => drop(terms.insert(found.term, found)),
        }
    }
    let mut terms: Vec<PastTerm> = terms.into_values().collect();
    let mut next: Option<(WallTime, Arc<str>)> = None;
    for term in terms.iter_mut().rev() {
        let release = releases.remove(&term.term);
        term.end = decisive(term.end.take(), release, next.as_ref().map(|(began, _)| *began));
        if let Some((at, holder)) = &next
            && term.end.is_none()
        {
            let reason = format!("no end was recorded; {} took over", crate::plain::plain(holder, 200));
            term.end = Some(TermEnd { at: *at, cause: TermEndCause::Unknown, reason: reason.into() });
        }
        next = Some((term.began, Arc::clone(&term.holder)));
    }
    terms
}

/// Returns the end that counts: `own`, which the leader recorded, or the forced release of its lease. A leader does not
/// know of the release. It loses the lease, seems stuck, or learns of the `next` term, which has begun already. A leader
/// that extended the lease in spite of the release has another end.
fn decisive(own: Option<TermEnd>, release: Option<TermEnd>, next: Option<WallTime>) -> Option<TermEnd> {
    let (Some(ended), Some(released)) = (&own, &release) else { return own.or(release) };
    let is_lost = matches!(ended.cause, TermEndCause::LeaseLost | TermEndCause::Unhealthy);
    let is_followed = next.is_some_and(|next| released.at <= next && next <= ended.at);
    if is_lost || is_followed { release } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ledger::{
            Answered,
            entry_list::{entries, record},
        },
        node::LedgerState,
    };

    fn term(number: u64, end: Option<(u64, TermEndCause)>) -> PastTerm {
        let end = end.map(|(at, cause)| TermEnd { at: WallTime::from_micros(at), cause, reason: "".into() });
        let (term, began) = (FencingToken::new(number), WallTime::from_micros(number * 10));
        PastTerm { term, holder: format!("w{number}").into(), began, priority: 0, end }
    }

    fn node(terms: &[PastTerm]) -> Answered {
        let mut records: Vec<_> =
            terms.iter().map(entry).map(|(key, at, term)| (key, record(at, &term))).collect();
        records.sort_by(|a, b| a.0.cmp(&b.0));
        Answered { state: LedgerState { records, ..LedgerState::default() }, ..Answered::default() }
    }

    #[test]
    fn a_term_has_the_end_that_its_leader_recorded_and_else_that_of_its_successor() {
        use TermEndCause::{ForcedRelease, LeaseLost, Resigned, Unknown};
        let lasting = [term(9, Some((91, ForcedRelease))), term(9, Some((99, Resigned)))];
        let found = terms(entries(&[node(&lasting)]));
        assert_eq!(found[0].end.as_ref().map(|end| end.cause), Some(Resigned), "it extended its lease again");
        let late = [term(9, Some((91, ForcedRelease))), term(9, Some((120, Resigned))), term(10, None)];
        let found = terms(entries(&[node(&late)]));
        assert_eq!(
            found[0].end.as_ref().map(|end| end.cause),
            Some(ForcedRelease),
            "the next term had begun"
        );
        let (lost, forced) = (Some((25, LeaseLost)), Some((24, ForcedRelease)));
        let one = node(&[term(1, None), term(1, Some((15, Resigned))), term(2, None), term(2, lost)]);
        // The second node missed the beginning of the first term, and has the forced release of the second.
        let two = node(&[term(2, None), term(2, forced), term(3, None), term(4, None)]);
        for answers in [[one.clone(), two.clone()], [two, one]] {
            let found = terms(entries(&answers));
            let ends: Vec<_> = found
                .iter()
                .map(|term| term.end.as_ref().map(|end| (end.at.as_micros(), end.cause)))
                .collect();
            assert_eq!(ends, [Some((15, Resigned)), forced, Some((40, Unknown)), None]);
            assert!(found[2].end.as_ref().unwrap().reason.contains("w4 took over"));
        }
    }

    #[test]
    fn a_term_is_read_as_it_was_written_and_its_reason_is_bounded() {
        let text = |term: &PastTerm| serde_json::to_string(&entry(term).2).unwrap();
        assert_eq!(
            entry(&term(7, None)).1,
            entry(&term(7, Some((75, TermEndCause::Resigned)))).1,
            "pruned together"
        );
        for cause in TermEndCause::ALL {
            let ended = term(7, Some((75, cause)));
            let value = text(&ended);
            assert!(value.contains(&format!("\"{cause}\"")), "{value}");
            assert_eq!(serde_json::from_str::<PastTerm>(&value).unwrap(), ended);
        }
        let mut long = term(7, Some((75, TermEndCause::WorkFailed)));
        long.end.as_mut().unwrap().reason = "é".repeat(5_000).into();
        assert!(text(&long).len() < 800);
        assert_eq!(text(&term(7, None)), r#"{"term":7,"holder":"w7","began":70}"#);
    }
}
