use super::{MaybeCause, MaybeMillis, MaybeRfc3339, Rfc3339, name, text};
use quorate::{
    election::{Observer, PastTerm, TermEndCause},
    env::WallTime,
    node::FencingToken,
    quorum::NoMajority,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// A term.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Term")]
pub struct TermView {
    /// The number of the term, which is the fencing token of its lease.
    pub term: u64,
    /// The worker that led.
    pub holder: String,
    /// The beginning.
    #[serde(with = "Rfc3339")]
    pub began: WallTime,
    /// The end. `null` if the term continues, or if no end is recorded and no worker has led since.
    #[serde(with = "MaybeRfc3339")]
    pub ended: Option<WallTime>,
    /// The cause of the end.
    #[serde(with = "MaybeCause")]
    pub cause: Option<TermEndCause>,
    /// The details of the cause. May be empty.
    pub reason: Option<String>,
    /// The length of the term up to its end, or until now.
    #[serde(rename = "lasted_ms", with = "MaybeMillis")]
    pub lasted: Option<Duration>,
    /// True if the worker leads now.
    pub leads: bool,
}

impl TermView {
    /// Reads the newest terms of a group, at most `limit`.
    ///
    /// # Errors
    /// Too few nodes answered.
    pub async fn newest(
        observer: &mut Observer,
        limit: usize,
        now: WallTime,
    ) -> Result<Vec<Self>, NoMajority> {
        let present = observer.leader().await?.and_then(|leader| leader.term);
        let terms = observer.history(limit).await?;
        Ok(terms.iter().map(|term| Self::new(term, present, now)).collect())
    }

    /// Returns the view of a term. `present` is the term of the leader.
    pub fn new(term: &PastTerm, present: Option<FencingToken>, now: WallTime) -> Self {
        // A leader may extend its lease in spite of a forced release.
        let leads = present == Some(term.term);
        let end = term.end.as_ref().filter(|_| !leads);
        let until = end.map(|end| end.at).or(leads.then_some(now));
        Self {
            term: term.term.get(),
            holder: name(&term.holder),
            began: term.began,
            ended: end.map(|end| end.at),
            cause: end.map(|end| end.cause),
            reason: end.map(|end| text(&end.reason)),
            lasted: until.map(|until| term.began.until(until)),
            leads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::election::TermEnd;

    #[test]
    fn the_term_of_the_leader_continues_in_spite_of_a_recorded_end() {
        let at = |seconds: u64| WallTime::from_micros(seconds * 1_000_000);
        let end = TermEnd { at: at(5), cause: TermEndCause::ForcedRelease, reason: "by ada".into() };
        let number = FencingToken::new(7);
        let past =
            PastTerm { term: number, holder: "a\u{1b}[2J".into(), began: at(2), priority: 0, end: Some(end) };
        let view = TermView::new(&past, Some(number), at(9));
        assert!(view.leads && view.ended.is_none() && view.cause.is_none() && view.reason.is_none());
        assert_eq!((view.lasted, &*view.holder), (Some(Duration::from_secs(7)), "a [2J"));
        let view = TermView::new(&past, Some(FencingToken::new(8)), at(9));
        assert_eq!((view.leads, view.ended, view.lasted), (false, Some(at(5)), Some(Duration::from_secs(3))));
        let json = serde_json::to_value(&view).expect("JSON");
        assert_eq!((&json["cause"], &json["lasted_ms"]), (&"forced-release".into(), &3_000.into()));
        assert_eq!(json["ended"], "1970-01-01T00:00:05Z");
        let unknown = TermView::new(&PastTerm { end: None, ..past }, None, at(9));
        assert!(unknown.lasted.is_none() && unknown.ended.is_none() && !unknown.leads);
    }
}
