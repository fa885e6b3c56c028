use super::TickRecord;
use crate::{
    env::WallTime,
    node::{FencingToken, NodeTime, Record},
};
use std::{fmt, sync::Arc, time::Duration};

/// What to do with a tick of which nobody can say whether it ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Delivery {
    /// Not again: a tick starts once, or not at all.
    AtMostOnce,
    /// Again, until it is recorded done. (A pause between a leader's last look at its lease and the start of
    /// the work may start a tick after another leader's *done*: the sink must compare fencing tokens.)
    #[default]
    AtLeastOnce,
}

impl Delivery {
    /// Whether to run a tick of which the ledger says this.
    pub fn decide(self, verdict: &TickVerdict) -> Decision {
        match (verdict, self) {
            (TickVerdict::NotStarted, _) => Decision::Run,
            (TickVerdict::Started { .. } | TickVerdict::Unknown, Self::AtLeastOnce) => Decision::Run,
            (TickVerdict::Started { .. }, Self::AtMostOnce) => Decision::Skip(SkipReason::Started),
            (TickVerdict::Unknown, Self::AtMostOnce) => Decision::Skip(SkipReason::Unknown),
            (TickVerdict::Final { .. }, _) => Decision::Skip(SkipReason::Final),
            (TickVerdict::Pruned, _) => Decision::Skip(SkipReason::Pruned),
            (TickVerdict::NoQuorum, _) => Decision::AskAgain,
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AtMostOnce => "at-most-once",
            Self::AtLeastOnce => "at-least-once",
        })
    }
}

/// What to do with a tick now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Write *started* to a majority, look at the lease again, and start it.
    Run,
    /// Leave it, for this reason.
    Skip(SkipReason),
    /// Too few nodes have answered to say anything.
    AskAgain,
}

/// Why a tick is left alone. The text completes "the tick was skipped: …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkipReason {
    /// It is done, or was given up.
    #[error("its record is final")]
    Final,
    /// It may have been started, and the job is at-most-once.
    #[error("it was started before, and the job is at-most-once")]
    Started,
    /// The nodes that would remember it have forgotten, and the job is at-most-once.
    #[error("too few nodes remember that time, and the job is at-most-once")]
    Unknown,
    /// It is older than what the ledger keeps.
    #[error("it is older than the ledger's low-water mark")]
    Pruned,
}

/// What one node's sealed ledger says of one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAnswer<'a> {
    /// When the node's memory began, by its own wall clock (from its marker).
    pub since: NodeTime,
    /// The ledger's low-water mark there.
    pub low_water: u64,
    /// What stands there under the tick's key.
    pub record: Option<&'a Record>,
}

impl NodeAnswer<'_> {
    /// Whether the node would still know of this tick, had one been recorded there: its memory began, with
    /// all that its clock may be off, before the tick was due. A node for which this is false counts neither
    /// in the seal nor in the write.
    pub fn remembers(&self, tick: WallTime, max_clock_offset: Duration) -> bool {
        self.since + max_clock_offset <= tick
    }
}

/// What the nodes together know of a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TickVerdict {
    /// A majority remembers that time and has seen nothing of it; after the seal no older leader can start it.
    NotStarted,
    /// At least one node has a record, and none a final one: it may have been started, and may have failed.
    Started {
        /// The highest term that wrote of it.
        term: FencingToken,
        /// Who wrote; `None` where the record's text cannot be read.
        worker: Option<Arc<str>>,
        /// The record to name as *seen* when writing over it.
        record: Record,
    },
    /// It is done or was given up: the last word.
    Final {
        /// That word.
        record: Record,
    },
    /// No majority remembers that time, and nobody has a record.
    Unknown,
    /// It is older than what the ledger keeps on purpose.
    Pruned,
    /// Fewer than a majority have answered.
    NoQuorum,
}

/// Orders the records that nodes have of one run: the highest decides.
///
/// A final record outranks any other, then the higher term counts. Two different records of one term are ordered by their
/// text, so that every leader that sees them, in whatever order of nodes, decides by the same one.
pub(in crate::schedule) fn rank(record: &Record) -> (bool, FencingToken, &str) {
    (record.last, record.term, &record.value)
}

/// Weighs the nodes' answers, one for each node that has answered the *seal*, about the tick due at `tick`.
///
/// A final record wins, then the one of the highest term. A record counts on whichever node it stands, also on
/// one whose memory began later (somebody did write it); *silence* counts only from a node that would
/// remember. One record on one node is taken for a start, although the writer may not have had its
/// majority: of the nodes that did not answer nobody knows.
pub fn verdict(
    answers: &[NodeAnswer<'_>],
    quorum: usize,
    tick: WallTime,
    max_clock_offset: Duration,
) -> TickVerdict {
    let records = answers.iter().filter_map(|answer| answer.record);
    let standing = records.max_by_key(|record| rank(record));
    if let Some(record) = standing.filter(|record| record.last) {
        return TickVerdict::Final { record: record.clone() };
    }
    if answers.len() < quorum {
        return TickVerdict::NoQuorum;
    }
    if answers.iter().any(|answer| tick.as_micros() < answer.low_water) {
        return TickVerdict::Pruned;
    }
    if let Some(record) = standing {
        let worker = TickRecord::parse(&record.value).ok().map(|written| Arc::clone(written.worker()));
        return TickVerdict::Started { term: record.term, worker, record: record.clone() };
    }
    let remember = answers.iter().filter(|answer| answer.remembers(tick, max_clock_offset)).count();
    if remember >= quorum { TickVerdict::NotStarted } else { TickVerdict::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: WallTime = WallTime::from_micros(100_000_000);
    const OFFSET: Duration = Duration::from_secs(1);
    const QUORUM: usize = 2;

    fn node(record: Option<&Record>) -> NodeAnswer<'_> {
        NodeAnswer { since: NodeTime::from_micros(0), low_water: 0, record }
    }

    fn forgetful(record: Option<&Record>) -> NodeAnswer<'_> {
        NodeAnswer { since: TICK, ..node(record) }
    }

    fn started(term: u64) -> Record {
        TickRecord::started(&format!("w{term}")).into_record(TICK, FencingToken::new(term), false)
    }

    fn done(term: u64) -> Record {
        TickRecord::done("w", OFFSET, "").into_record(TICK, FencingToken::new(term), true)
    }

    fn weigh(answers: &[NodeAnswer<'_>]) -> TickVerdict {
        verdict(answers, QUORUM, TICK, OFFSET)
    }

    #[test]
    fn a_majority_that_remembers_nothing_means_not_started() {
        assert_eq!(weigh(&[node(None), node(None)]), TickVerdict::NotStarted);
        assert_eq!(weigh(&[node(None), node(None), forgetful(None)]), TickVerdict::NotStarted);
    }

    #[test]
    fn without_a_majority_that_remembers_the_tick_is_unknown() {
        assert_eq!(weigh(&[node(None), forgetful(None), forgetful(None)]), TickVerdict::Unknown);
        assert_eq!(weigh(&[node(None), forgetful(None)]), TickVerdict::Unknown);
    }

    #[test]
    fn a_node_remembers_from_its_beginning_plus_the_clock_offset() {
        let at = |since: WallTime| NodeAnswer { since, ..node(None) };
        assert!(at(TICK - OFFSET).remembers(TICK, OFFSET));
        let later = TICK - OFFSET + Duration::from_micros(1);
        assert!(!at(later).remembers(TICK, OFFSET));
        assert_eq!(weigh(&[at(TICK - OFFSET), at(TICK - OFFSET)]), TickVerdict::NotStarted);
        assert_eq!(weigh(&[at(TICK - OFFSET), at(later)]), TickVerdict::Unknown);
    }

    #[test]
    fn one_record_on_one_node_is_a_start() {
        let (old, new) = (started(3), started(5));
        let expect = TickVerdict::Started {
            term: FencingToken::new(5),
            worker: Some("w5".into()),
            record: new.clone(),
        };
        assert_eq!(weigh(&[node(Some(&old)), node(Some(&new)), node(None)]), expect);
        assert_eq!(weigh(&[node(Some(&new)), node(Some(&old)), node(None)]), expect);
        assert_eq!(weigh(&[forgetful(Some(&new)), node(None), node(None)]), expect);
    }

    #[test]
    fn a_final_record_wins_over_a_higher_term() {
        let (done, later) = (done(3), started(5));
        let expect = TickVerdict::Final { record: done.clone() };
        assert_eq!(weigh(&[node(Some(&later)), node(Some(&done))]), expect);
        assert_eq!(weigh(&[node(Some(&done)), node(Some(&later))]), expect);
        assert_eq!(weigh(&[forgetful(Some(&done)), forgetful(None)]), expect, "whoever knows of it");
        assert_eq!(weigh(&[node(Some(&done))]), expect, "final needs no majority");
    }

    #[test]
    fn too_few_answers_say_nothing() {
        let record = started(5);
        assert_eq!(weigh(&[]), TickVerdict::NoQuorum);
        assert_eq!(weigh(&[node(None)]), TickVerdict::NoQuorum);
        assert_eq!(weigh(&[node(Some(&record))]), TickVerdict::NoQuorum);
    }

    #[test]
    fn below_the_low_water_mark_nothing_runs() {
        let mark = |low_water| NodeAnswer { low_water, ..node(None) };
        assert_eq!(weigh(&[mark(TICK.as_micros() + 1), mark(0)]), TickVerdict::Pruned);
        assert_eq!(weigh(&[mark(TICK.as_micros()), mark(0)]), TickVerdict::NotStarted);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_still_a_start() {
        let record = Record { value: "?".into(), ..started(5) };
        let TickVerdict::Started { worker, .. } = weigh(&[node(Some(&record)), node(None)]) else {
            panic!("a record stands")
        };
        assert_eq!(worker, None);
    }

    #[test]
    fn delivery_decides() {
        use Decision::{AskAgain, Run, Skip};
        let record = started(5);
        let begun = TickVerdict::Started { term: record.term, worker: None, record: record.clone() };
        let table = [
            (TickVerdict::NotStarted, Run, Run),
            (begun, Skip(SkipReason::Started), Run),
            (TickVerdict::Unknown, Skip(SkipReason::Unknown), Run),
            (TickVerdict::Final { record }, Skip(SkipReason::Final), Skip(SkipReason::Final)),
            (TickVerdict::Pruned, Skip(SkipReason::Pruned), Skip(SkipReason::Pruned)),
            (TickVerdict::NoQuorum, AskAgain, AskAgain),
        ];
        for (verdict, at_most, at_least) in table {
            assert_eq!(Delivery::AtMostOnce.decide(&verdict), at_most, "{verdict:?}");
            assert_eq!(Delivery::AtLeastOnce.decide(&verdict), at_least, "{verdict:?}");
        }
    }
}
