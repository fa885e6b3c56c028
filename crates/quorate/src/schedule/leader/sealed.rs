//! What the seal found, as the leader needs it for the rest of its term.

use super::{
    ask::{AskRow, PREFIX},
    run::JobState,
};
use crate::{
    env::WallTime,
    ledger::Answered,
    node::{NodeTime, Record},
    schedule::{Decision, Delivery, JobRow, NodeAnswer, SkipReason, TickKey, TickVerdict, rank, verdict},
};
use std::{
    collections::{BTreeMap, btree_map},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

/// The keys of ticks and of made-up runs begin so.
const RUNS: [&str; 2] = ["tick/", "run/"];

/// So many records are taken in before other tasks have their turn.
const TAKE_AT_ONCE: usize = 2_000;

/// The ledger as the nodes that answered the seal have it. Of the records of a run only the one of the highest
/// [rank](crate::schedule::rank) is kept.
#[derive(Debug)]
pub(super) struct Sealed {
    nodes: Vec<Node>,
    quorum: usize,
    pub(super) max_clock_offset: Duration,
    runs: BTreeMap<Arc<str>, Record>,
    /// What each node has under any other key.
    rows: BTreeMap<Arc<str>, Vec<Option<Record>>>,
}

#[derive(Debug)]
struct Node {
    since: NodeTime,
    low_water: u64,
}

/// What the ledger says of a run.
#[derive(Debug, PartialEq)]
pub(super) struct Decided {
    pub(super) decision: Decision,
    /// The record that stands, and is not final.
    pub(super) seen: Option<Record>,
    /// Too few nodes can remember a record of that time.
    pub(super) unknown: bool,
}

impl Sealed {
    /// What the nodes answered. It may be very much: other tasks have their turns in between.
    pub(super) async fn take(answers: Vec<Answered>, quorum: usize, max_clock_offset: Duration) -> Self {
        let mut sealed = Self::empty(&answers, quorum, max_clock_offset);
        for (node, answer) in answers.into_iter().enumerate() {
            for (number, (key, record)) in answer.state.records.into_iter().enumerate() {
                sealed.add(node, key, record);
                if number % TAKE_AT_ONCE == TAKE_AT_ONCE - 1 {
                    tokio::task::yield_now().await;
                }
            }
        }
        sealed
    }

    fn empty(answers: &[Answered], quorum: usize, max_clock_offset: Duration) -> Self {
        let nodes = answers
            .iter()
            .map(|answer| Node { since: answer.memory.since, low_water: answer.state.low_water })
            .collect();
        Self { nodes, quorum, max_clock_offset, runs: BTreeMap::new(), rows: BTreeMap::new() }
    }

    fn add(&mut self, node: usize, key: Arc<str>, record: Record) {
        if RUNS.iter().any(|prefix| key.starts_with(prefix)) {
            match self.runs.entry(key) {
                btree_map::Entry::Vacant(place) => drop(place.insert(record)),
                btree_map::Entry::Occupied(mut known) if rank(&record) > rank(known.get()) => {
                    known.insert(record);
                }
                btree_map::Entry::Occupied(_) => {}
            }
        } else {
            let count = self.nodes.len();
            self.rows.entry(key).or_insert_with(|| vec![None; count])[node] = Some(record);
        }
    }

    #[cfg(test)]
    pub(super) fn new(answers: Vec<Answered>, quorum: usize, max_clock_offset: Duration) -> Self {
        let mut sealed = Self::empty(&answers, quorum, max_clock_offset);
        for (node, answer) in answers.into_iter().enumerate() {
            answer.state.records.into_iter().for_each(|(key, record)| sealed.add(node, key, record));
        }
        sealed
    }

    /// What to do with the run under `key`, of which the first word would have been written at `at` or later.
    pub(super) fn decide(&self, delivery: Delivery, key: &Arc<str>, at: WallTime) -> Decided {
        let seen = match self.runs.get(key) {
            Some(record) if record.last => {
                return Decided { decision: Decision::Skip(SkipReason::Final), seen: None, unknown: false };
            }
            seen => seen,
        };
        // The verdict takes the highest record of all, whichever node has it.
        let records = seen.into_iter().map(Some).chain(std::iter::repeat(None));
        let views = self.nodes.iter().zip(records);
        let views: Vec<NodeAnswer<'_>> = views
            .map(|(node, record)| NodeAnswer { since: node.since, low_water: node.low_water, record })
            .collect();
        let verdict = verdict(&views, self.quorum, at, self.max_clock_offset);
        let decision = delivery.decide(&verdict);
        Decided { decision, seen: seen.cloned(), unknown: verdict == TickVerdict::Unknown }
    }

    /// The ticks of a job that stand as started and not ended, with their records. (What is below the low-water mark of
    /// a node is none of them: it had its end, or was given up, and only a node that was away still has it.)
    pub(super) fn open(&self, job: &str) -> impl Iterator<Item = (WallTime, Record)> + '_ {
        let low_water = self.nodes.iter().map(|node| node.low_water).max().unwrap_or_default();
        let open = self.of_job(job).filter(move |(_, record)| !record.last && record.at >= low_water);
        open.filter_map(|(key, record)| Some((TickKey::parse(key).ok()??.tick, record.clone())))
    }

    /// The ticks of a job that have ended, as far as the ledger still knows of them: newest first.
    pub(super) fn ended(&self, job: &str) -> impl Iterator<Item = (WallTime, &Record)> + '_ {
        let ended = self.of_job(job).rev().filter(|(_, record)| record.last);
        ended.filter_map(|(key, record)| Some((TickKey::parse(key).ok()??.tick, record)))
    }

    fn of_job(&self, job: &str) -> btree_map::Range<'_, Arc<str>, Record> {
        let first = TickKey::new(job, WallTime::default()).key();
        let last = TickKey::new(job, WallTime::from_micros(u64::MAX)).key();
        self.runs.range::<str, _>((Bound::Included(&*first), Bound::Included(&*last)))
    }

    /// The ticks of a job from `first` to `last` of which the ledger knows anything.
    pub(super) fn stand(
        &self,
        job: &str,
        first: WallTime,
        last: WallTime,
    ) -> impl Iterator<Item = WallTime> + '_ {
        let (first, last) = (TickKey::new(job, first).key(), TickKey::new(job, last).key());
        let of_job = self.runs.range::<str, _>((Bound::Included(&*first), Bound::Included(&*last)));
        of_job.filter_map(|(key, _)| Some(TickKey::parse(key).ok()??.tick))
    }

    /// The last tick of a job before `before` of which the ledger knows anything.
    pub(super) fn last_before(&self, job: &str, before: WallTime) -> Option<WallTime> {
        let first = TickKey::new(job, WallTime::default()).key();
        let end = TickKey::new(job, before).key();
        let mut of_job = self.runs.range::<str, _>((Bound::Included(&*first), Bound::Excluded(&*end)));
        TickKey::parse(of_job.next_back()?.0).ok()?.map(|key| key.tick)
    }

    /// What each node that answered has under `key`; nothing where none has anything.
    pub(super) fn row(&self, key: &str) -> &[Option<Record>] {
        self.rows.get(key).map_or(&[], Vec::as_slice)
    }

    /// Forgets a job of which the nodes have forgotten everything.
    pub(super) fn forget(&mut self, job: &str) {
        let ticks: Vec<Arc<str>> = self.of_job(job).map(|(key, _)| Arc::clone(key)).collect();
        ticks.iter().for_each(|key| drop(self.runs.remove(key)));
        for key in [JobRow::key(job), JobState::key(job)] {
            self.rows.remove(&key);
        }
        let asks: Vec<Arc<str>> = self
            .rows(PREFIX)
            .filter(|(_, records)| {
                AskRow::find(records).is_some_and(|(row, _)| **row.request.what.job() == *job)
            })
            .map(|(key, _)| Arc::clone(key))
            .collect();
        asks.iter().for_each(|key| drop(self.rows.remove(key)));
    }

    /// The rows whose keys begin with `prefix`.
    pub(super) fn rows<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a [Option<Record>])> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let of_prefix = self.rows.range::<str, _>(from).take_while(move |(key, _)| key.starts_with(prefix));
        of_prefix.map(|(key, records)| (key, records.as_slice()))
    }

    /// From when on a majority can answer for a tick: a job that is new begins there, or now.
    pub(super) fn begins(&self, now: WallTime) -> WallTime {
        let mut since: Vec<WallTime> =
            self.nodes.iter().map(|node| node.since + self.max_clock_offset).collect();
        since.sort_unstable();
        since.get(self.quorum - 1).copied().unwrap_or(now).max(now)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        ledger::Memory,
        node::{FencingToken, LedgerState},
        schedule::{TickEnd, TickRecord},
    };

    pub(in crate::schedule::leader) const SECOND: Duration = Duration::from_secs(1);

    pub(in crate::schedule::leader) fn at(seconds: u64) -> WallTime {
        WallTime::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    /// A node whose memory began at `since`, with these records.
    pub(in crate::schedule::leader) fn node(
        since: WallTime,
        mut records: Vec<(Arc<str>, Record)>,
    ) -> Answered {
        records.sort_by(|a, b| a.0.cmp(&b.0));
        let memory = Memory { since, max_clock_offset: SECOND };
        Answered { memory, state: LedgerState { records, ..LedgerState::default() } }
    }

    pub(in crate::schedule::leader) fn tick_record(tick: u64, term: u64, last: bool) -> (Arc<str>, Record) {
        let written = if last { TickRecord::done("old", SECOND, "") } else { TickRecord::started("old") };
        (TickKey::new("j", at(tick)).key(), written.into_record(at(tick), FencingToken::new(term), last))
    }

    /// Three nodes whose memory began at 0; `started` and `done` stand on two of them.
    pub(in crate::schedule::leader) fn sealed(started: &[u64], done: &[u64]) -> Sealed {
        let open = started.iter().map(|&tick| tick_record(tick, 1, false));
        let records: Vec<_> = open.chain(done.iter().map(|&tick| tick_record(tick, 1, true))).collect();
        let answers = vec![node(at(0), records.clone()), node(at(0), records), node(at(0), vec![])];
        Sealed::new(answers, 2, SECOND)
    }

    #[test]
    fn of_several_records_the_final_one_counts_and_then_the_highest_term() {
        let sealed = |first: &[(u64, bool)]| {
            let nodes = first.iter().map(|&(term, last)| node(at(0), vec![tick_record(5, term, last)]));
            Sealed::new(nodes.collect(), 2, SECOND)
        };
        let key = TickKey::new("j", at(5)).key();
        for all in [[(1, true), (7, false)], [(7, false), (1, true)]] {
            let decided = sealed(&all).decide(Delivery::AtLeastOnce, &key, at(5));
            assert_eq!(decided.decision, Decision::Skip(SkipReason::Final));
            assert_eq!(sealed(&all).open("j").count(), 0);
        }
        for all in [[(3, false), (7, false)], [(7, false), (3, false)]] {
            let decided = sealed(&all).decide(Delivery::AtLeastOnce, &key, at(5));
            assert_eq!(decided.decision, Decision::Run);
            assert_eq!(decided.seen.map(|record| record.term.get()), Some(7));
            let open: Vec<_> =
                sealed(&all).open("j").map(|(tick, record)| (tick, record.term.get())).collect();
            assert_eq!(open, [(at(5), 7)]);
        }
        let most = sealed(&[(3, false), (7, false)]).decide(Delivery::AtMostOnce, &key, at(5));
        assert_eq!(most.decision, Decision::Skip(SkipReason::Started));
    }

    #[test]
    fn of_two_final_records_the_one_of_the_highest_term_wins_in_either_node_order() {
        let key = TickKey::new("j", at(5)).key();
        let ended = |term: u64, end| {
            let closed = TickRecord::closed(&format!("w{term}"), end, "");
            (Arc::clone(&key), closed.into_record(at(5), FencingToken::new(term), true))
        };
        let done = TickRecord::done("w3", SECOND, "").into_record(at(5), FencingToken::new(3), true);
        let (old, new) = ((Arc::clone(&key), done), ended(7, TickEnd::Lost));
        // Two of one term differ where a leader dropped the run while its end was being written.
        let (one, other) = (ended(7, TickEnd::Cancelled), ended(7, TickEnd::TimedOut));
        for (first, second, wins) in [(&old, &new, Some(&new.1)), (&one, &other, None)] {
            let seen = |nodes: [Vec<(Arc<str>, Record)>; 3]| {
                let sealed = Sealed::new(nodes.map(|records| node(at(0), records)).into(), 2, SECOND);
                let decided = sealed.decide(Delivery::AtLeastOnce, &key, at(5));
                assert_eq!(decided.decision, Decision::Skip(SkipReason::Final));
                let ended: Vec<_> = sealed.ended("j").map(|(tick, record)| (tick, record.clone())).collect();
                let [(tick, record)] = &ended[..] else { panic!("one end: {ended:?}") };
                assert_eq!(*tick, at(5));
                record.clone()
            };
            let (first, second, none) = (vec![first.clone()], vec![second.clone()], vec![]);
            let orders = [
                seen([first.clone(), second.clone(), none.clone()]),
                seen([second.clone(), first.clone(), none.clone()]),
                seen([none.clone(), second.clone(), first.clone()]),
                seen([first.clone(), first.clone(), second.clone()]),
                seen([second.clone(), first.clone(), first.clone()]),
            ];
            assert!(
                orders.iter().all(|record| *record == orders[0]),
                "every leader sees one end: {orders:?}"
            );
            assert!(wins.is_none_or(|wins| orders[0] == *wins), "{orders:?}");
        }
    }

    #[test]
    fn jobs_are_told_apart_and_the_last_known_tick_is_found() {
        let other = TickKey::new("j2", at(3)).key();
        let mut records = vec![tick_record(2, 1, false), tick_record(9, 1, true)];
        records.push((other, records[0].1.clone()));
        let sealed = Sealed::new(vec![node(at(0), records)], 1, SECOND);
        assert_eq!(sealed.open("j").map(|(tick, _)| tick).collect::<Vec<_>>(), [at(2)]);
        assert_eq!(sealed.last_before("j", at(9)), Some(at(2)));
        assert_eq!(sealed.last_before("j", at(10)), Some(at(9)));
        assert_eq!(sealed.last_before("j", at(2)), None);
    }

    #[test]
    fn what_a_node_that_was_away_still_has_below_the_mark_is_not_owed() {
        let mut pruned = node(at(0), vec![]);
        pruned.state.low_water = at(6).as_micros();
        let away = node(at(0), vec![tick_record(5, 1, false), tick_record(6, 1, false)]);
        let sealed = Sealed::new(vec![pruned, away], 2, SECOND);
        assert_eq!(sealed.open("j").map(|(tick, _)| tick).collect::<Vec<_>>(), [at(6)]);
    }

    #[test]
    fn a_new_job_begins_when_a_majority_can_answer_for_it() {
        let sealed = sealed(&[], &[]);
        assert_eq!(sealed.begins(at(0)), at(1));
        assert_eq!(sealed.begins(at(9)), at(9));
    }
}
