//! The contents of the ledger at the seal. The leader uses them for the rest of its term.

use crate::{
    env::WallTime,
    ledger::Answered,
    node::{NodeTime, Record},
    scheduler::{
        policy::Delivery,
        store::{
            REQUESTED_PREFIX, RunKey, RunRecord, TICK_PREFIX, job_and_tick,
            rows_by_key::{RECORDS_PER_TURN, RowsByKey},
            verdict::{Decision, NodeAnswer, RunVerdict, SkipReason, rank, verdict},
        },
    },
};
use std::{
    collections::{BTreeMap, BTreeSet, btree_map},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

/// The prefixes of the keys of runs.
const RUN_PREFIXES: [&str; 2] = [TICK_PREFIX, REQUESTED_PREFIX];

/// The contents of the ledger, from the nodes' answers to the seal. If the nodes have several records of one
/// run, only the record of the highest [`rank`] is kept, because it decides on the run.
#[derive(Debug)]
pub(in crate::scheduler) struct LedgerSnapshot {
    nodes: Vec<Node>,
    quorum: usize,
    pub(in crate::scheduler) max_clock_offset: Duration,
    runs: BTreeMap<Arc<str>, SealedRun>,
    /// For each job, the spans of ticks that one closed record closes, by their last ticks.
    spans: BTreeMap<Arc<str>, BTreeMap<WallTime, Span>>,
    rows: SealedRows,
    /// The keys of the rows that the nodes have pruned since the seal.
    pruned: BTreeSet<Arc<str>>,
}

/// The records under all keys that are not those of runs, by key. Each list has one element for each node that
/// answered. The task that writes rows shares them.
pub(in crate::scheduler) type SealedRows = Arc<BTreeMap<Arc<str>, Vec<Option<Record>>>>;

#[derive(Debug)]
struct Node {
    since: NodeTime,
    low_water: u64,
}

/// The deciding record of a run, and the number of nodes that count for it.
#[derive(Debug)]
struct SealedRun {
    record: Record,
    closed: bool,
    /// For a closed record: a node counts only if its memory began before this time.
    memory: Option<WallTime>,
    /// For a record that closes several ticks: the first of them.
    from: Option<WallTime>,
    /// The number of nodes that store exactly this record and count for it.
    stored_on: usize,
}

/// Ticks in a row that one closed record closes.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: WallTime,
    is_settled: bool,
}

/// The leader's decision on a run, and the records on which the decision is based.
#[derive(Debug, PartialEq)]
pub(in crate::scheduler) struct Decided {
    pub(in crate::scheduler) decision: Decision,
    /// The deciding record of the run, if there is one and it is not closed.
    pub(in crate::scheduler) seen: Option<Record>,
    /// True if no node has a record of the run, but too few nodes would remember such a record.
    pub(in crate::scheduler) unknown: bool,
    /// True if a majority of the nodes remember the earliest time at which a record of the run may have been
    /// written.
    pub(in crate::scheduler) remembering: bool,
    /// The deciding record, if it is closed but may be stored on a minority of the nodes only.
    pub(in crate::scheduler) unsettled: Option<Record>,
}

impl SealedRun {
    fn new(record: Record) -> Self {
        let written = RunRecord::parse(&record.value).ok();
        let (memory, from) = match &written {
            Some(RunRecord::Closed { memory, from, .. }) => (*memory, *from),
            _ => (None, None),
        };
        Self {
            closed: written.is_some_and(|written| written.is_closed()),
            memory,
            from,
            record,
            stored_on: 0,
        }
    }

    /// Returns whether a majority stores this end. If so, every later leader finds the same end, and this
    /// leader need not write it again.
    fn is_settled(&self, quorum: usize) -> bool {
        self.closed && self.stored_on >= quorum
    }
}

impl LedgerSnapshot {
    /// Builds the snapshot from the nodes' answers. The answers may be long, so the construction yields to
    /// other tasks from time to time.
    pub(in crate::scheduler) async fn take(
        answers: Vec<Answered>,
        quorum: usize,
        max_clock_offset: Duration,
    ) -> Self {
        let mut sealed = Self::empty(&answers, quorum, max_clock_offset);
        let mut rows = RowsByKey::new(answers.len());
        for (node, answer) in answers.into_iter().enumerate() {
            // A node may return a record twice. The later copy is the same or newer, so it replaces the earlier one.
            let mut runs = BTreeMap::new();
            for (number, (key, record)) in answer.state.records.into_iter().enumerate() {
                if RUN_PREFIXES.iter().any(|prefix| key.starts_with(prefix)) {
                    runs.insert(key, record);
                } else {
                    rows.add(node, key, record);
                }
                if number % RECORDS_PER_TURN == RECORDS_PER_TURN - 1 {
                    tokio::task::yield_now().await;
                }
            }
            for (number, (key, record)) in runs.into_iter().enumerate() {
                sealed.add_run(node, key, record);
                if number % RECORDS_PER_TURN == RECORDS_PER_TURN - 1 {
                    tokio::task::yield_now().await;
                }
            }
        }
        sealed.rows = Arc::new(rows.sort().await);
        sealed.find_spans();
        sealed
    }

    fn empty(answers: &[Answered], quorum: usize, max_clock_offset: Duration) -> Self {
        let nodes = answers
            .iter()
            .map(|answer| Node { since: answer.memory.since, low_water: answer.state.low_water })
            .collect();
        let (runs, spans) = (BTreeMap::new(), BTreeMap::new());
        let (rows, pruned) = (SealedRows::default(), BTreeSet::new());
        Self { nodes, quorum, max_clock_offset, runs, spans, rows, pruned }
    }

    /// Adds the record of a run that a node stores.
    fn add_run(&mut self, node: usize, key: Arc<str>, record: Record) {
        let since = self.nodes[node].since + self.max_clock_offset;
        let known = match self.runs.entry(key) {
            btree_map::Entry::Vacant(entry) => entry.insert(SealedRun::new(record)),
            btree_map::Entry::Occupied(known) => {
                let known = known.into_mut();
                if known.record != record {
                    if rank(&record) < rank(&known.record) {
                        return;
                    }
                    *known = SealedRun::new(record);
                }
                known
            }
        };
        known.stored_on += usize::from(known.memory.is_some_and(|memory| since <= memory));
    }

    /// Lists the spans of ticks that one record closes. Removes the records of earlier terms of these ticks: as for two
    /// records of one tick, the record of the higher term decides (rule R11b).
    fn find_spans(&mut self) {
        let mut replaced = Vec::new();
        for (key, known) in &self.runs {
            let Some(first) = known.from else { continue };
            let Ok(Some(RunKey { job, tick })) = RunKey::parse(key) else { continue };
            let before = self.between(&job, first, tick).filter(|(_, of)| of.record.term < known.record.term);
            replaced.extend(before.map(|(key, _)| Arc::clone(key)));
            let span = Span { first, is_settled: known.is_settled(self.quorum) };
            self.spans.entry(job).or_default().insert(tick, span);
        }
        for key in replaced {
            self.runs.remove(&key);
        }
    }

    #[cfg(test)]
    pub(in crate::scheduler) fn new(
        answers: Vec<Answered>,
        quorum: usize,
        max_clock_offset: Duration,
    ) -> Self {
        let taken = Self::take(answers, quorum, max_clock_offset);
        futures_util::FutureExt::now_or_never(taken).expect("few records")
    }

    /// Decides on the run under `key`. `at` is the earliest time at which a record of the run may have been
    /// written.
    pub(in crate::scheduler) fn decide(&self, delivery: Delivery, key: &Arc<str>, at: WallTime) -> Decided {
        let (known, remembering) = (self.runs.get(key), self.remembers(at));
        if let Some(closed) = known.filter(|known| known.closed) {
            let unsettled = (!closed.is_settled(self.quorum)).then(|| closed.record.clone());
            let decision = Decision::Skip(SkipReason::Final);
            return Decided { decision, seen: None, unknown: false, remembering, unsettled };
        }
        // `verdict` expects one record for each node. The snapshot has only the deciding record, and not the
        // node that stores it. The verdict does not depend on the node that has the record, so the record is
        // passed as that of the first node.
        let seen = known.map(|known| &known.record);
        let records = seen.into_iter().map(Some).chain(std::iter::repeat(None));
        let views = self.nodes.iter().zip(records);
        let views: Vec<NodeAnswer<'_>> = views
            .map(|(node, record)| NodeAnswer { since: node.since, low_water: node.low_water, record })
            .collect();
        let verdict = verdict(&views, self.quorum, at, self.max_clock_offset);
        let decision = delivery.decide(&verdict);
        let unknown = verdict == RunVerdict::Unknown;
        Decided { decision, seen: seen.cloned(), unknown, remembering, unsettled: None }
    }

    /// Returns whether an earlier leader closed a tick that has no record of its own, with the record of a later
    /// tick. `at` is the earliest time at which a record of the tick may have been written. If the seal does not
    /// show that a majority stores the record of the later tick, a leader that did not find it may have started
    /// the tick. So that record then counts only if the nodes would remember such a start.
    pub(in crate::scheduler) fn is_closed_with_later(&self, job: &str, tick: WallTime, at: WallTime) -> bool {
        let later = self.spans.get(job).into_iter().flat_map(|spans| spans.range(tick..));
        later.filter(|(_, span)| span.first <= tick).any(|(_, span)| span.is_settled || self.remembers(at))
    }

    /// Returns whether a majority of the nodes that answered the seal would still have a record from the time
    /// `at`.
    pub(in crate::scheduler) fn remembers(&self, at: WallTime) -> bool {
        let remembers = |node: &&Node| node.since + self.max_clock_offset <= at;
        self.nodes.iter().filter(remembers).count() >= self.quorum
    }

    /// Returns the ticks of a job for which a new leader must do something. Such a tick has a record. Either
    /// the record has no end, or a minority of the nodes only may store the end. Runs below the low-water mark
    /// of any node are left out: an earlier leader has closed them, or has let the ledger prune them.
    pub(in crate::scheduler) fn unfinished(
        &self,
        job: &str,
    ) -> impl Iterator<Item = (WallTime, Record)> + '_ {
        let low_water = self.nodes.iter().map(|node| node.low_water).max().unwrap_or_default();
        let open = self
            .of_job(job)
            .filter(move |(_, known)| !known.is_settled(self.quorum) && known.record.at >= low_water);
        open.filter_map(|(key, known)| Some((RunKey::parse(key).ok()??.tick, known.record.clone())))
    }

    /// Returns the keys of all runs that have not ended, including runs of jobs that this leader does not have.
    pub(in crate::scheduler) fn unfinished_keys(&self) -> BTreeSet<Arc<str>> {
        let open = self.runs.iter().filter(|(_, known)| !known.closed);
        open.map(|(key, _)| Arc::clone(key)).collect()
    }

    /// Returns those ended ticks of a job whose end a majority stores, the newest first, each with its record.
    pub(in crate::scheduler) fn ended(&self, job: &str) -> impl Iterator<Item = (WallTime, &Record)> + '_ {
        let ended = self.of_job(job).rev().filter(|(_, known)| known.is_settled(self.quorum));
        ended.filter_map(|(key, known)| Some((RunKey::parse(key).ok()??.tick, &known.record)))
    }

    /// Returns those ended requested runs of all jobs whose end a majority stores, each with its key and its record.
    pub(in crate::scheduler) fn ended_on_request(&self) -> impl Iterator<Item = (&Arc<str>, &Record)> {
        let from = (Bound::Included(REQUESTED_PREFIX), Bound::Unbounded);
        let requested =
            self.runs.range::<str, _>(from).take_while(|(key, _)| key.starts_with(REQUESTED_PREFIX));
        requested.filter(|(_, known)| known.is_settled(self.quorum)).map(|(key, known)| (key, &known.record))
    }

    fn of_job(&self, job: &str) -> btree_map::Range<'_, Arc<str>, SealedRun> {
        self.between(job, WallTime::default(), WallTime::from_micros(u64::MAX))
    }

    fn between(
        &self,
        job: &str,
        first: WallTime,
        last: WallTime,
    ) -> btree_map::Range<'_, Arc<str>, SealedRun> {
        let (first, last) = (RunKey::new(job, first).key(), RunKey::new(job, last).key());
        self.runs.range::<str, _>((Bound::Included(&*first), Bound::Included(&*last)))
    }

    /// Returns the spans of a job's ticks between `first` and `last`, both included, that have a record, or that
    /// the record of a later tick closes. They are sorted by their first ticks, and may overlap.
    pub(in crate::scheduler) fn recorded(
        &self,
        job: &str,
        first: WallTime,
        last: WallTime,
    ) -> Vec<(WallTime, WallTime)> {
        let ticks = self.between(job, first, last);
        let ticks =
            ticks.filter_map(|(key, _)| Some(RunKey::parse(key).ok()??.tick)).map(|tick| (tick, tick));
        let spans = self.spans.get(job).into_iter().flat_map(|spans| spans.range(first..));
        let spans = spans.map(|(until, span)| (span.first, *until)).filter(|(from, _)| *from <= last);
        let mut recorded: Vec<_> = ticks.chain(spans).collect();
        recorded.sort_unstable();
        recorded
    }

    /// Returns the last tick of a job before `before` that has a record.
    pub(in crate::scheduler) fn last_before(&self, job: &str, before: WallTime) -> Option<WallTime> {
        let first = RunKey::new(job, WallTime::default()).key();
        let end = RunKey::new(job, before).key();
        let mut of_job = self.runs.range::<str, _>((Bound::Included(&*first), Bound::Excluded(&*end)));
        RunKey::parse(of_job.next_back()?.0).ok()?.map(|key| key.tick)
    }

    /// Returns the records that the nodes have under `key`, one element for each node. The slice is empty if no
    /// node has such a record.
    pub(in crate::scheduler) fn row(&self, key: &str) -> &[Option<Record>] {
        self.rows.get(key).filter(|_| !self.pruned.contains(key)).map_or(&[], Vec::as_slice)
    }

    /// Returns all rows as the nodes stored them at the seal.
    pub(in crate::scheduler) fn sealed_rows(&self) -> &SealedRows {
        &self.rows
    }

    /// Returns the names of the jobs that have records of runs.
    pub(in crate::scheduler) fn jobs_with_runs(&self) -> BTreeSet<&str> {
        let jobs = self.runs.keys().filter_map(|key| Some(job_and_tick(key)?.0));
        // The keys are sorted, so most repetitions follow one another.
        let mut last = None;
        jobs.filter(|job| last.replace(*job) != Some(*job)).collect()
    }

    /// Removes the records of a job's runs, and the rows under the keys `rows`, from the snapshot. The nodes
    /// have pruned them.
    pub(in crate::scheduler) fn forget(&mut self, job: &str, rows: &[Arc<str>]) {
        let ticks: Vec<Arc<str>> = self.of_job(job).map(|(key, _)| Arc::clone(key)).collect();
        ticks.iter().for_each(|key| drop(self.runs.remove(key)));
        self.spans.remove(job);
        self.pruned.extend(rows.iter().filter(|key| self.rows.contains_key(*key)).cloned());
    }

    /// Returns the runs of all jobs that have not ended, each with its deciding record. Runs below the
    /// low-water mark of any node are left out.
    pub(in crate::scheduler) fn open_runs(&self) -> impl Iterator<Item = (&Arc<str>, &Record)> {
        let low_water = self.nodes.iter().map(|node| node.low_water).max().unwrap_or_default();
        let open = self.runs.iter().filter(move |(_, known)| !known.closed && known.record.at >= low_water);
        open.map(|(key, known)| (key, &known.record))
    }

    /// Notes that this leader has closed a run at a majority, so that the leader makes no further decision on
    /// the run.
    pub(in crate::scheduler) fn settle(&mut self, key: &str) {
        if let Some(known) = self.runs.get_mut(key) {
            (known.closed, known.stored_on) = (true, self.quorum);
        }
    }

    /// Returns the rows whose keys begin with `prefix`.
    pub(in crate::scheduler) fn rows<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a [Option<Record>])> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let of_prefix = self.rows.range::<str, _>(from).take_while(move |(key, _)| key.starts_with(prefix));
        let of_prefix = of_prefix.filter(|(key, _)| !self.pruned.contains(*key));
        of_prefix.map(|(key, records)| (key, records.as_slice()))
    }

    /// Returns the time from which the ticks of a new job count. It is `now`, or the time from which a majority
    /// of the nodes remembers every tick, whichever is later. If the memories of further nodes began up to
    /// `max_clock_offset` after that time, the result is the latest of their beginnings.
    ///
    /// The reason for waiting for further nodes is this: a node counts for the slot of a run only if the node's
    /// memory began before the run. If only a bare majority of the nodes counted, a worker could take a slot
    /// only while all of these nodes answer.
    pub(in crate::scheduler) fn begins(&self, now: WallTime) -> WallTime {
        let mut since: Vec<WallTime> =
            self.nodes.iter().map(|node| node.since + self.max_clock_offset).collect();
        since.sort_unstable();
        let majority = since.get(self.quorum - 1).copied().unwrap_or(now).max(now);
        let soon = majority + self.max_clock_offset;
        since.into_iter().filter(|since| *since <= soon).max().unwrap_or(now).max(majority)
    }
}

#[cfg(test)]
pub(in crate::scheduler) mod tests {
    use super::*;
    use crate::{
        ledger::Memory,
        node::{FencingToken, LedgerState},
        scheduler::{job::RunOutcome, store::RunRecord},
    };

    pub(in crate::scheduler) const SECOND: Duration = Duration::from_secs(1);

    pub(in crate::scheduler) fn at(seconds: u64) -> WallTime {
        WallTime::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    /// Returns the answer of a node whose memory began at `since`, with these records.
    pub(in crate::scheduler) fn node(since: WallTime, mut records: Vec<(Arc<str>, Record)>) -> Answered {
        records.sort_by(|a, b| a.0.cmp(&b.0));
        let memory = Memory { since, max_clock_offset: SECOND };
        Answered { memory, state: LedgerState { records, ..LedgerState::default() } }
    }

    pub(in crate::scheduler) fn tick_record(tick: u64, term: u64, closed: bool) -> (Arc<str>, Record) {
        let (at, term) = (at(tick), FencingToken::new(term));
        let written = match closed {
            true => RunRecord::done("old", SECOND, "").remembered(at, term),
            false => RunRecord::started("old"),
        };
        (RunKey::new("j", at).key(), written.into_record(at, term))
    }

    /// Returns the snapshot of three nodes whose memories began at the time 0. Two of the nodes store a
    /// *started* record for each tick in `started`, and a closed record for each tick in `done`.
    pub(in crate::scheduler) fn sealed(started: &[u64], done: &[u64]) -> LedgerSnapshot {
        let open = started.iter().map(|&tick| tick_record(tick, 1, false));
        let records: Vec<_> = open.chain(done.iter().map(|&tick| tick_record(tick, 1, true))).collect();
        let answers = vec![node(at(0), records.clone()), node(at(0), records), node(at(0), vec![])];
        LedgerSnapshot::new(answers, 2, SECOND)
    }

    /// Returns the snapshot of nodes that each have one record of the tick 5. `records` has the term of each
    /// record, and a flag that is true if the record is closed.
    fn each(records: &[(u64, bool)]) -> LedgerSnapshot {
        let nodes = records.iter().map(|&(term, closed)| node(at(0), vec![tick_record(5, term, closed)]));
        LedgerSnapshot::new(nodes.collect(), 2, SECOND)
    }

    #[test]
    fn the_record_of_the_highest_term_decides() {
        let key = RunKey::new("j", at(5)).key();
        for all in [[(3, false), (7, false)], [(7, false), (3, false)], [(3, true), (7, false)]] {
            let decided = each(&all).decide(Delivery::AtLeastOnce, &key, at(5));
            assert_eq!((decided.decision, decided.remembering), (Decision::Run, true), "{all:?}");
            assert_eq!(decided.seen.map(|record| record.term.get()), Some(7));
            let open: Vec<_> =
                each(&all).unfinished("j").map(|(tick, record)| (tick, record.term.get())).collect();
            assert_eq!(open, [(at(5), 7)]);
            assert_eq!(each(&all).ended("j").count(), 0, "a deposed leader's end hides no later start");
        }
        for all in [[(3, false), (7, true)], [(7, true), (3, false)]] {
            let decided = each(&all).decide(Delivery::AtLeastOnce, &key, at(5));
            assert_eq!(decided.decision, Decision::Skip(SkipReason::Final));
            assert_eq!(decided.unsettled.map(|record| record.term.get()), Some(7), "one node is no majority");
        }
        let most = each(&[(3, false), (7, false)]).decide(Delivery::AtMostOnce, &key, at(5));
        assert_eq!(most.decision, Decision::Skip(SkipReason::Started));
    }

    /// Regression: a leader that found no record of a tick entered it in a span of missed ticks. The next leader found
    /// the record on one node, and entered the tick again.
    #[test]
    fn the_record_of_a_span_replaces_the_records_of_earlier_terms_within_it() {
        let of_terms = |span: u64, tick: u64| {
            let missed = RunRecord::closed("old", RunOutcome::SkippedMisfire, "").closing_from(Some(at(4)));
            let missed = missed.remembered(at(6), FencingToken::new(span));
            let missed = missed.into_record(at(6), FencingToken::new(span));
            let missed = || vec![(RunKey::new("j", at(6)).key(), missed.clone())];
            let records = [vec![tick_record(5, tick, true)], missed(), missed()];
            LedgerSnapshot::new(records.map(|records| node(at(0), records)).into(), 2, SECOND)
        };
        let unfinished = |sealed: &LedgerSnapshot| sealed.unfinished("j").map(|(tick, _)| tick).collect();
        let (replaced, kept): (Vec<_>, Vec<_>) = (unfinished(&of_terms(7, 3)), unfinished(&of_terms(3, 7)));
        assert_eq!((&*replaced, &*kept), (&[][..], &[at(5)][..]));
        let sealed = of_terms(7, 3);
        let key = RunKey::new("j", at(5)).key();
        assert!(sealed.decide(Delivery::AtLeastOnce, &key, at(5)).seen.is_none());
        assert!(sealed.is_closed_with_later("j", at(5), at(5)));
    }

    #[test]
    fn an_end_is_settled_if_a_majority_that_counts_stores_the_same_record() {
        let sealed = each(&[(7, true), (7, true)]);
        assert_eq!((sealed.unfinished("j").count(), sealed.ended("j").count()), (0, 1));
        let young = vec![
            node(at(0), vec![tick_record(5, 7, true)]),
            node(at(5), vec![tick_record(5, 7, true)]),
            node(at(0), vec![]),
        ];
        let sealed = LedgerSnapshot::new(young, 2, SECOND);
        assert_eq!((sealed.unfinished("j").count(), sealed.ended("j").count()), (1, 0), "a young node");
        let sealed = each(&[(6, true), (7, true)]);
        assert_eq!((sealed.unfinished("j").count(), sealed.ended("j").count()), (1, 0), "two terms");
    }

    #[test]
    fn every_leader_takes_the_same_of_two_ends_of_one_term() {
        let key = RunKey::new("j", at(5)).key();
        // A leader may write two different ends of a run in one term: it may drop the task of the run while the
        // task writes an end, and then write another end itself.
        let ended = |end| {
            let record = RunRecord::closed("w", end, "").into_record(at(5), FencingToken::new(7));
            vec![(Arc::clone(&key), record)]
        };
        let (one, other, none) = (ended(RunOutcome::Cancelled), ended(RunOutcome::TimedOut), vec![]);
        let orders =
            [[&one, &other, &none], [&other, &one, &none], [&none, &other, &one], [&one, &one, &other]];
        let seen = orders.map(|nodes| {
            let nodes = nodes.map(|records| node(at(0), records.clone()));
            let record = LedgerSnapshot::new(nodes.into(), 2, SECOND).unfinished("j").next();
            record.unwrap().1
        });
        assert!(seen.iter().all(|record| *record == seen[0]), "{seen:?}");
    }

    #[test]
    fn jobs_whose_names_share_a_prefix_are_distinguished_and_the_last_tick_is_found() {
        let other = RunKey::new("j2", at(3)).key();
        let mut records = vec![tick_record(2, 1, false), tick_record(9, 1, true)];
        records.push((other, records[0].1.clone()));
        let sealed = LedgerSnapshot::new(vec![node(at(0), records)], 1, SECOND);
        assert_eq!(sealed.unfinished("j").map(|(tick, _)| tick).collect::<Vec<_>>(), [at(2)]);
        assert_eq!(sealed.last_before("j", at(9)), Some(at(2)));
        assert_eq!(sealed.last_before("j", at(10)), Some(at(9)));
        assert_eq!(sealed.last_before("j", at(2)), None);
    }

    #[test]
    fn a_record_below_the_low_water_mark_of_any_node_is_not_unfinished() {
        let mut pruned = node(at(0), vec![]);
        pruned.state.low_water = at(6).as_micros();
        let unreachable = node(at(0), vec![tick_record(5, 1, false), tick_record(6, 1, false)]);
        let sealed = LedgerSnapshot::new(vec![pruned, unreachable], 2, SECOND);
        assert_eq!(sealed.unfinished("j").map(|(tick, _)| tick).collect::<Vec<_>>(), [at(6)]);
    }

    #[test]
    fn a_forgotten_job_loses_its_ticks_and_its_rows_and_no_others() {
        let row = |key: &str| (Arc::from(key), tick_record(5, 1, false).1);
        let records = vec![tick_record(5, 1, true), row("job/j"), row("job/other")];
        let mut sealed = LedgerSnapshot::new(vec![node(at(0), records)], 1, SECOND);
        sealed.forget("j", &["job/j".into()]);
        assert_eq!((sealed.last_before("j", at(9)), sealed.row("job/j").len()), (None, 0));
        assert_eq!(sealed.rows("").count(), 1);
    }

    #[test]
    fn a_record_that_a_node_returns_twice_counts_once_and_the_later_copy_counts() {
        let answer = |records: Vec<(Arc<str>, Record)>| {
            let state = LedgerState { records, ..LedgerState::default() };
            Answered { memory: Memory { since: at(0), max_clock_offset: SECOND }, state }
        };
        let (closed, open) = (tick_record(5, 7, true), tick_record(5, 3, false));
        let twice = vec![closed.clone(), closed.clone()];
        let sealed = LedgerSnapshot::new(vec![answer(twice), answer(vec![])], 2, SECOND);
        assert_eq!(
            (sealed.unfinished("j").count(), sealed.ended("j").count()),
            (1, 0),
            "one node is no majority"
        );
        let sealed = LedgerSnapshot::new(vec![answer(vec![closed, open]), answer(vec![])], 2, SECOND);
        let record = sealed.unfinished("j").next().map(|(_, record)| record.term.get());
        assert_eq!(record, Some(3));
        let row =
            |value: &str| (Arc::from("job/j"), Record { value: value.into(), ..tick_record(5, 1, false).1 });
        let sealed = LedgerSnapshot::new(vec![answer(vec![row("a"), row("b")])], 1, SECOND);
        assert_eq!(sealed.row("job/j").iter().flatten().map(|row| &*row.value).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_new_job_begins_when_a_majority_can_answer_for_it() {
        let sealed = sealed(&[], &[]);
        assert_eq!(sealed.begins(at(0)), at(1));
        assert_eq!(sealed.begins(at(9)), at(9));
    }
}
