use crate::{
    env::WallTime,
    node::{FencingToken, Record, engine::cut},
    schedule::{Delivery, TickEnd},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The longest reason that a record keeps, in bytes.
const REASON_MAX: usize = 512;

/// How a spread tick stands in the ledger: the value of its [`Record`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SpreadRecord {
    /// How it has ended; `None` while it runs, as far as its worker could tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<TickEnd>,
    /// Who started it, or who gave it up unstarted.
    pub(super) worker: Arc<str>,
    /// The token of the claim under which that was.
    pub(super) token: FencingToken,
    /// 128 random bits: no two starts are ever the same record, whatever their workers are called.
    pub(super) nonce: Arc<str>,
    /// When.
    pub(super) at: WallTime,
    /// For people.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub(super) reason: Arc<str>,
}

/// What a worker that has the claim makes of a record that stands under the tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It has ended, and whoever said so has entered it.
    Over,
    /// Somebody has given it up unstarted, or was about to.
    Skip,
    /// It was started, and its worker has it no more: it may be run again, over this.
    Again,
    /// It was started, its worker has it no more, and it will not be run again.
    Lost,
}

/// What all the records under a tick come to where one of them is a skip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It has ended.
    Ended,
    /// It was started all the same, and is to be run again, over this.
    Owed(Record),
    /// It was started all the same, and will not be run again.
    Lost(Record),
    /// Nobody has started it.
    Skipped,
}

impl SpreadRecord {
    /// That a worker starts the tick.
    pub(super) fn started(worker: &str, token: FencingToken, random: [u64; 2], at: WallTime) -> Self {
        let nonce = format!("{:016x}{:016x}", random[0], random[1]).into();
        Self { end: None, worker: worker.into(), token, nonce, at, reason: "".into() }
    }

    /// That the tick has ended so, whoever says it.
    pub(super) fn ended(&self, end: TickEnd, reason: &str) -> Self {
        Self { end: Some(end), reason: cut(reason, REASON_MAX).into(), ..self.clone() }
    }

    /// The record of the tick due at `tick`. All are of the term 0: nobody seals this ledger.
    pub(super) fn into_record(self, tick: WallTime) -> Record {
        let value = serde_json::to_string(&self).unwrap_or_default().into();
        Record { at: tick.as_micros(), term: FencingToken::default(), last: self.end.is_some(), value }
    }

    /// Reads what stands; `None` where no worker of this version wrote it.
    pub(super) fn parse(record: &Record) -> Option<Self> {
        serde_json::from_str(&record.value).ok()
    }
}

/// What `standing` means to a worker that has the claim. A record that it cannot read is a start all the same.
pub(super) fn meaning(standing: &Record, delivery: Delivery) -> Meaning {
    match (standing.last, delivery) {
        (true, _) if is_skip(standing) => Meaning::Skip,
        (true, _) => Meaning::Over,
        (false, Delivery::AtLeastOnce) => Meaning::Again,
        (false, Delivery::AtMostOnce) => Meaning::Lost,
    }
}

/// Whether the record says that the tick is given up unstarted: whoever wrote it may not have reached a majority.
pub(super) fn is_skip(standing: &Record) -> bool {
    let end = SpreadRecord::parse(standing).and_then(|record| record.end);
    standing.last
        && matches!(end, Some(TickEnd::SkippedMisfire | TickEnd::SkippedOverlap | TickEnd::SkippedPaused))
}

/// What `standing`, from any of the nodes, comes to. The start of the attempt that asks, `own`, is none: it has run nothing.
pub(super) fn doubted(standing: &[&Record], own: &Record, delivery: Delivery) -> Doubt {
    if standing.iter().any(|record| record.last && !is_skip(record)) {
        return Doubt::Ended;
    }
    match standing.iter().find(|record| !record.last && **record != own) {
        Some(start) if delivery == Delivery::AtLeastOnce => Doubt::Owed((*start).clone()),
        Some(start) => Doubt::Lost((*start).clone()),
        None => Doubt::Skipped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: WallTime = WallTime::from_micros(1_700_000_000_000_000);

    fn started(random: u64) -> SpreadRecord {
        SpreadRecord::started("w", FencingToken::new(7), [random, 1], TICK)
    }

    #[test]
    fn records_go_both_ways_and_only_ends_are_last() {
        let record = started(1).into_record(TICK);
        assert_eq!(
            &*record.value,
            r#"{"worker":"w","token":7,"nonce":"00000000000000010000000000000001","at":1700000000000000}"#
        );
        assert_eq!((record.last, record.term, record.at), (false, FencingToken::new(0), TICK.as_micros()));
        assert_eq!(SpreadRecord::parse(&record), Some(started(1)));
        let lost = started(1).ended(TickEnd::Lost, &"x".repeat(2_000));
        let record = lost.clone().into_record(TICK);
        assert!(record.last && lost.reason.len() == REASON_MAX);
        assert_eq!(SpreadRecord::parse(&record), Some(lost));
        assert_eq!(SpreadRecord::parse(&Record { value: "?".into(), ..record }), None);
    }

    #[test]
    fn two_starts_of_one_worker_are_two_records() {
        assert_ne!(started(1).into_record(TICK), started(2).into_record(TICK));
    }

    #[test]
    fn a_start_is_run_again_at_least_once_and_never_at_most_once() {
        let begun = started(1).into_record(TICK);
        let ended = started(1).ended(TickEnd::Done, "").into_record(TICK);
        let odd = Record { value: "?".into(), ..begun.clone() };
        for (delivery, expect) in
            [(Delivery::AtMostOnce, Meaning::Lost), (Delivery::AtLeastOnce, Meaning::Again)]
        {
            assert_eq!(meaning(&ended, delivery), Meaning::Over);
            assert_eq!(meaning(&begun, delivery), expect, "{delivery}");
            assert_eq!(meaning(&odd, delivery), expect, "{delivery}");
        }
    }

    #[test]
    fn a_skip_is_believed_where_nothing_else_stands() {
        let [begun, own] = [1, 2].map(|random| started(random).into_record(TICK));
        let skip = started(3).ended(TickEnd::SkippedMisfire, "").into_record(TICK);
        let done = started(1).ended(TickEnd::Done, "").into_record(TICK);
        assert_eq!(meaning(&skip, Delivery::AtLeastOnce), Meaning::Skip);
        assert_eq!(
            meaning(&Record { value: "?".into(), ..skip.clone() }, Delivery::AtMostOnce),
            Meaning::Over
        );
        for (delivery, expect) in [
            (Delivery::AtMostOnce, Doubt::Lost(begun.clone())),
            (Delivery::AtLeastOnce, Doubt::Owed(begun.clone())),
        ] {
            assert_eq!(doubted(&[&own, &skip, &own], &own, delivery), Doubt::Skipped);
            assert_eq!(doubted(&[&skip, &own, &begun], &own, delivery), expect, "{delivery}");
            assert_eq!(doubted(&[&skip, &begun, &done], &own, delivery), Doubt::Ended);
        }
    }
}
