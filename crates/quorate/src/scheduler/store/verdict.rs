//! Decides from the records that the nodes have of a run: whether a leader may start the run, and whether it
//! may overwrite a record. `docs/design/scheduler.md` explains the rules R1 to R14.

use crate::{
    config::majority,
    env::WallTime,
    ledger::Memory,
    node::{FencingToken, NodeTime, Record},
    scheduler::{
        job::RunOutcome,
        policy::Delivery,
        store::{OpenRun, RunRecord, Stage},
    },
};
use std::{sync::Arc, time::Duration};

impl Delivery {
    #[doc(hidden)]
    /// Decides whether a tick runs under this delivery rule. The verdict was computed from the nodes' records
    /// of the tick.
    pub fn decide(self, verdict: &RunVerdict) -> Decision {
        match (verdict, self) {
            // An open run is continued under both delivery rules, because only its slot shows whether it was
            // started.
            (RunVerdict::NotStarted | RunVerdict::Opened { .. }, _) => Decision::Run,
            (RunVerdict::Started { .. } | RunVerdict::Unknown, Self::AtLeastOnce) => Decision::Run,
            (RunVerdict::Started { .. }, Self::AtMostOnce) => Decision::Skip(SkipReason::Started),
            (RunVerdict::Unknown, Self::AtMostOnce) => Decision::Skip(SkipReason::Unknown),
            (RunVerdict::Final { .. }, _) => Decision::Skip(SkipReason::Final),
            (RunVerdict::Pruned, _) => Decision::Skip(SkipReason::Pruned),
            (RunVerdict::NoQuorum, _) => Decision::AskAgain,
        }
    }
}

/// The decision on a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The leader writes a *started* record and executes the run, or writes an *open* record, so that a
    /// worker can execute it.
    Run,
    /// The tick does not run, for this reason.
    Skip(SkipReason),
    /// Too few nodes have answered for a decision.
    AskAgain,
}

/// The reason why a tick does not run. The text completes "the tick was skipped: …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkipReason {
    /// The tick has ended.
    #[error("its record is final")]
    Final,
    /// The run may have been started, and the job is at-most-once.
    #[error("it was started before, and the job is at-most-once")]
    Started,
    /// The run may have been started: too few nodes would remember a record of a start. The job is
    /// at-most-once.
    #[error("too few nodes remember that time, and the job is at-most-once")]
    Unknown,
    /// The tick is older than the records that the ledger keeps.
    #[error("it is older than the ledger's low-water mark")]
    Pruned,
}

/// The part of one node's answer to the seal that concerns one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAnswer<'a> {
    /// The beginning of the node's memory, by the node's own wall clock. It is stored in the node's marker.
    pub since: NodeTime,
    /// The low-water mark of the ledger on this node.
    pub low_water: u64,
    /// The record that the node has under the tick's key.
    pub record: Option<&'a Record>,
}

impl NodeAnswer<'_> {
    /// Returns whether the node would still have a record of this tick if one had been written to it. This is
    /// true if the node's memory began before the tick was due, even if the node's clock is wrong by
    /// `max_clock_offset`. If it is false, the node counts neither in the seal nor in a write.
    pub fn remembers(&self, tick: WallTime, max_clock_offset: Duration) -> bool {
        self.since + max_clock_offset <= tick
    }
}

/// The conclusion that a leader draws about a tick from the answers of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunVerdict {
    /// No node has a record, and a majority of the nodes would remember one. Because of the seal, no earlier
    /// leader can start the tick any more.
    NotStarted,
    /// The deciding record is *started*, so the run may have been started.
    Started {
        /// The term of the deciding record.
        term: FencingToken,
        /// The worker that wrote the deciding record. `None` if the record's text cannot be read.
        worker: Option<Arc<str>>,
        /// The deciding record. A leader that overwrites this record passes it to the write.
        record: Record,
    },
    /// The deciding record is *open*: workers may take the run, or one of them has taken it.
    Opened {
        /// The deciding record.
        record: Record,
    },
    /// The deciding record is closed, so the tick has ended.
    Final {
        /// The deciding record.
        record: Record,
    },
    /// No node has a record, and no majority would remember one. So the run may have been started.
    Unknown,
    /// The tick is older than the ledger's low-water mark.
    Pruned,
    /// Too few nodes have answered for a conclusion.
    NoQuorum,
}

/// Returns the rank of a record. Nodes may have different records of one run. The record of the highest rank
/// then decides, even if another record is closed (rule R11b).
///
/// The record of the higher term has the higher rank. Within a term, the record of the later stage has the
/// higher rank. Two different records of the same term and stage are ordered by their text, so that all leaders
/// that see both choose the same one.
pub(in crate::scheduler) fn rank(record: &Record) -> (FencingToken, Stage, &str) {
    (record.term, stage(record), &record.value)
}

/// Returns the stage of a record. A record that cannot be read counts as *started*, because the run may have
/// been started.
pub(in crate::scheduler) fn stage(record: &Record) -> Stage {
    RunRecord::parse(&record.value).map_or(Stage::Started, |written| written.stage())
}

/// Returns whether a leader may overwrite `met` with `target` (rule R14). `met` is a record of an earlier term
/// that the leader finds on a node when it writes. `seen` is the record that it found at the seal.
///
/// `remembering` is true if the seal was answered by a majority of nodes that remember the run. The seal then
/// found every record that ever had a majority, so `met` never had one. If `remembering` is false, a record of
/// a higher rank than `seen` may have had a majority. The leader does not overwrite such a record, but
/// continues from it. As an exception, a closed record may overwrite every record of an earlier term.
pub fn overwrites(target: &Record, seen: Option<&Record>, met: &Record, remembering: bool) -> bool {
    remembering || seen.is_some_and(|seen| rank(met) <= rank(seen)) || stage(target) == Stage::Closed
}

/// Returns whether a leader that has written `before` may write `next`. Within a term, the records that a
/// leader writes of a run go forward: *open* 1, *open* 2, *closed* (rule R14).
pub fn goes_forward(before: &Record, next: &Record) -> bool {
    rank(next) > rank(before)
}

/// Returns the end of a run for which an earlier leader recorded the end `end` (rule R2b). `remembering` is
/// true if the seal was answered by a majority of nodes that remember the run. If it is false, a record that is
/// later than *skipped* may have had a majority, and the nodes may have forgotten it. The run may then have
/// been started, so *skipped* becomes *lost*.
pub fn inherited(end: RunOutcome, remembering: bool) -> RunOutcome {
    if end.is_skipped() && !remembering { RunOutcome::Lost } else { end }
}

/// Returns the outcome of a generation that the leader ended through its slot. `end` is the outcome that the
/// leader intended. If `end` is *skipped*, a generation after the first is *cancelled* instead, because an
/// earlier generation may have been started.
pub fn voided(generation: u32, end: RunOutcome) -> RunOutcome {
    if end.is_skipped() && generation > 1 { RunOutcome::Cancelled } else { end }
}

/// Returns the number of the generation that a leader opens if it found no *open* record of the run.
/// `remembering` is true if a majority of the nodes would remember such a record. If it is false, an earlier
/// generation may have been started, so the new generation is the second (rule R2c).
pub fn first_opened(remembering: bool) -> u32 {
    if remembering { 1 } else { 2 }
}

/// Returns the run's time or the beginning of the leader's term, whichever is later. A node counts for the
/// leader's writes, and for the generations that the leader opens, only if the node's memory began before this
/// time (rule R13).
pub fn memory_needed(run: WallTime, term_began: WallTime) -> WallTime {
    run.max(term_began)
}

/// Returns the open record that a worker may take, if there is one. A majority of the node set, which has
/// `nodes` nodes, must store exactly the same record, including its term. A node counts only if its memory
/// covers the time `at` of the record (rule R3).
pub fn is_open(shown: &[(Memory, Option<Record>)], nodes: usize) -> Option<(&Record, OpenRun)> {
    shown.iter().find_map(|(_, record)| {
        let record = record.as_ref()?;
        let Ok(RunRecord::Open(open)) = RunRecord::parse(&record.value) else { return None };
        let counts = |(memory, other): &&(Memory, Option<Record>)| {
            other.as_ref() == Some(record) && memory.covers(open.at.as_micros())
        };
        (shown.iter().filter(counts).count() >= majority(nodes)).then_some((record, open))
    })
}

/// Decides from the nodes' answers to the *seal* what happened to the tick due at `tick`. `answers` has one
/// answer for each node that has answered.
///
/// The record of the highest term decides, even if another record is closed. A record counts on every node,
/// even if the node's memory began after the tick, because a leader did write the record. The absence of a
/// record counts only on a node that would remember one. One *started* record on one node is enough to count as
/// a start, because the nodes that did not answer may have the record too.
pub fn verdict(
    answers: &[NodeAnswer<'_>],
    quorum: usize,
    tick: WallTime,
    max_clock_offset: Duration,
) -> RunVerdict {
    if answers.len() < quorum {
        return RunVerdict::NoQuorum;
    }
    let decides = answers.iter().filter_map(|answer| answer.record).max_by_key(|record| rank(record));
    if let Some(record) = decides.filter(|record| stage(record) == Stage::Closed) {
        return RunVerdict::Final { record: record.clone() };
    }
    if answers.iter().any(|answer| tick.as_micros() < answer.low_water) {
        return RunVerdict::Pruned;
    }
    if let Some(record) = decides {
        let written = RunRecord::parse(&record.value).ok();
        if matches!(written, Some(RunRecord::Open(_))) {
            return RunVerdict::Opened { record: record.clone() };
        }
        let worker = written.and_then(|written| written.worker().cloned());
        return RunVerdict::Started { term: record.term, worker, record: record.clone() };
    }
    let remember = answers.iter().filter(|answer| answer.remembers(tick, max_clock_offset)).count();
    if remember >= quorum { RunVerdict::NotStarted } else { RunVerdict::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::job::RunCause;

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
        RunRecord::started(&format!("w{term}")).into_record(TICK, FencingToken::new(term))
    }

    fn done(term: u64) -> Record {
        RunRecord::done("w", OFFSET, "").into_record(TICK, FencingToken::new(term))
    }

    fn weigh(answers: &[NodeAnswer<'_>]) -> RunVerdict {
        verdict(answers, QUORUM, TICK, OFFSET)
    }

    #[test]
    fn a_majority_that_remembers_nothing_means_not_started() {
        assert_eq!(weigh(&[node(None), node(None)]), RunVerdict::NotStarted);
        assert_eq!(weigh(&[node(None), node(None), forgetful(None)]), RunVerdict::NotStarted);
    }

    #[test]
    fn without_a_majority_that_remembers_the_tick_is_unknown() {
        assert_eq!(weigh(&[node(None), forgetful(None), forgetful(None)]), RunVerdict::Unknown);
        assert_eq!(weigh(&[node(None), forgetful(None)]), RunVerdict::Unknown);
    }

    #[test]
    fn a_node_remembers_from_its_beginning_plus_the_clock_offset() {
        let at = |since: WallTime| NodeAnswer { since, ..node(None) };
        assert!(at(TICK - OFFSET).remembers(TICK, OFFSET));
        let later = TICK - OFFSET + Duration::from_micros(1);
        assert!(!at(later).remembers(TICK, OFFSET));
        assert_eq!(weigh(&[at(TICK - OFFSET), at(TICK - OFFSET)]), RunVerdict::NotStarted);
        assert_eq!(weigh(&[at(TICK - OFFSET), at(later)]), RunVerdict::Unknown);
    }

    #[test]
    fn one_record_on_one_node_is_a_start() {
        let (old, new) = (started(3), started(5));
        let expect = RunVerdict::Started {
            term: FencingToken::new(5),
            worker: Some("w5".into()),
            record: new.clone(),
        };
        assert_eq!(weigh(&[node(Some(&old)), node(Some(&new)), node(None)]), expect);
        assert_eq!(weigh(&[node(Some(&new)), node(Some(&old)), node(None)]), expect);
        assert_eq!(weigh(&[forgetful(Some(&new)), node(None), node(None)]), expect);
    }

    fn skipped(term: u64) -> Record {
        let skipped = RunRecord::closed("w", RunOutcome::SkippedMisfire, "");
        skipped.into_record(TICK, FencingToken::new(term))
    }

    /// Regression: a minority of the nodes had a *skipped* record of a deposed leader. In an earlier version,
    /// this record took precedence over the *started* record of a later leader.
    #[test]
    fn the_record_of_the_highest_term_decides_closed_or_not() {
        let (old, new) = (skipped(3), started(5));
        let expect = RunVerdict::Started {
            term: FencingToken::new(5),
            worker: Some("w5".into()),
            record: new.clone(),
        };
        assert_eq!(weigh(&[node(Some(&old)), node(Some(&new))]), expect);
        assert_eq!(weigh(&[node(Some(&new)), node(Some(&old))]), expect);
        let done = done(6);
        let expect = RunVerdict::Final { record: done.clone() };
        assert_eq!(weigh(&[node(Some(&new)), node(Some(&done)), node(Some(&old))]), expect);
        assert_eq!(weigh(&[forgetful(Some(&done)), forgetful(None)]), expect, "on any node");
    }

    #[test]
    fn a_later_record_decides_where_the_seal_does_not_remember() {
        let (target, met) = (started(7), skipped(3));
        assert!(overwrites(&target, None, &met, true));
        assert!(!overwrites(&target, None, &met, false) && overwrites(&target, Some(&met), &met, false));
        assert!(!overwrites(&target, Some(&started(2)), &met, false));
        assert!(overwrites(&skipped(7), None, &met, false), "an end may overwrite any record");
        assert!(goes_forward(&started(3), &done(3)) && !goes_forward(&done(3), &started(3)));
        assert_eq!(inherited(RunOutcome::SkippedMisfire, false), RunOutcome::Lost);
        assert_eq!(inherited(RunOutcome::Done, false), RunOutcome::Done);
        assert_eq!(voided(2, RunOutcome::SkippedPaused), RunOutcome::Cancelled);
        assert_eq!((first_opened(true), first_opened(false)), (1, 2));
    }

    #[test]
    fn a_worker_takes_one_record_that_a_majority_of_older_nodes_shows() {
        let open = |term, generation| {
            let at = TICK;
            let open = OpenRun {
                generation,
                at,
                not_before: at,
                take_by: at,
                horizon: at,
                delivery: Delivery::AtMostOnce,
                cause: RunCause::Scheduled,
                term: FencingToken::new(1),
                state: None,
                cancel: None,
            };
            RunRecord::Open(open).into_record(TICK, FencingToken::new(term))
        };
        let shown =
            |since: WallTime, record: Option<Record>| (Memory { since, max_clock_offset: OFFSET }, record);
        let (old, young) = (WallTime::default(), TICK);
        let taken = |shown: &[(Memory, Option<Record>)]| is_open(shown, 3).map(|(_, open)| open.generation);
        assert_eq!(taken(&[shown(old, Some(open(3, 1))), shown(old, Some(open(3, 1)))]), Some(1));
        assert_eq!(taken(&[shown(old, Some(open(3, 1))), shown(old, None)]), None, "R3: one node");
        assert_eq!(
            taken(&[shown(old, Some(open(3, 1))), shown(old, Some(open(4, 1)))]),
            None,
            "R3: two terms"
        );
        assert_eq!(
            taken(&[shown(old, Some(open(3, 1))), shown(young, Some(open(3, 1)))]),
            None,
            "R3: a young node"
        );
        assert_eq!(taken(&[shown(old, Some(skipped(3))), shown(old, Some(skipped(3)))]), None);
    }

    #[test]
    fn too_few_answers_give_no_verdict() {
        let record = started(5);
        assert_eq!(weigh(&[]), RunVerdict::NoQuorum);
        assert_eq!(weigh(&[node(None)]), RunVerdict::NoQuorum);
        assert_eq!(weigh(&[node(Some(&record))]), RunVerdict::NoQuorum);
    }

    #[test]
    fn below_the_low_water_mark_nothing_runs() {
        let mark = |low_water| NodeAnswer { low_water, ..node(None) };
        assert_eq!(weigh(&[mark(TICK.as_micros() + 1), mark(0)]), RunVerdict::Pruned);
        assert_eq!(weigh(&[mark(TICK.as_micros()), mark(0)]), RunVerdict::NotStarted);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_still_a_start() {
        let record = Record { value: "?".into(), ..started(5) };
        let RunVerdict::Started { worker, .. } = weigh(&[node(Some(&record)), node(None)]) else {
            panic!("a record exists")
        };
        assert_eq!(worker, None);
    }

    #[test]
    fn delivery_decides() {
        use Decision::{AskAgain, Run, Skip};
        let record = started(5);
        let begun = RunVerdict::Started { term: record.term, worker: None, record: record.clone() };
        let table = [
            (RunVerdict::NotStarted, Run, Run),
            (begun, Skip(SkipReason::Started), Run),
            (RunVerdict::Unknown, Skip(SkipReason::Unknown), Run),
            (RunVerdict::Final { record }, Skip(SkipReason::Final), Skip(SkipReason::Final)),
            (RunVerdict::Pruned, Skip(SkipReason::Pruned), Skip(SkipReason::Pruned)),
            (RunVerdict::NoQuorum, AskAgain, AskAgain),
        ];
        for (verdict, at_most, at_least) in table {
            assert_eq!(Delivery::AtMostOnce.decide(&verdict), at_most, "{verdict:?}");
            assert_eq!(Delivery::AtLeastOnce.decide(&verdict), at_least, "{verdict:?}");
        }
    }
}
