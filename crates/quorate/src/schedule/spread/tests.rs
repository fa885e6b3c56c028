//! Tries at ticks of which nodes have different records, on nodes in memory.

use super::{
    attempt::Attempt,
    plan::{Came, Plan, Try},
    record::SpreadRecord,
};
use crate::{
    claim::Claims,
    env::WallTime,
    ledger::Ledger,
    node::{Cause, FencingToken, Hello, MemoryNode, MemorySession, Node, Nudge, Record},
    quorum::Quorum,
    schedule::{
        Delivery, Job, Placement, RunAll, Tick, TickEnd, TickHistory, TickKey, counts::Counts, every,
        work::Cancel,
    },
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);
/// The tick is later than the nodes' birth, so that they can answer for it.
const AHEAD: Duration = Duration::from_secs(3600);

/// A node that may be away.
struct Reached {
    node: MemoryNode,
    away: bool,
}

impl Node for Reached {
    type Session = MemorySession;

    fn name(&self) -> &str {
        self.node.name()
    }

    fn ends_leases_by_wall_clock(&self) -> bool {
        self.node.ends_leases_by_wall_clock()
    }

    async fn open(&self, nudge: Nudge) -> Result<(MemorySession, Hello), Cause> {
        if self.away { Err(Cause::TimedOut) } else { self.node.open(nudge).await }
    }
}

struct Stage {
    nodes: Vec<MemoryNode>,
    tick: WallTime,
    runs: Arc<AtomicUsize>,
    /// Whether the handler marks its run as interrupted, and then returns so.
    marked: Option<Result<(), &'static str>>,
}

impl Stage {
    fn new() -> Self {
        let nodes: Vec<_> = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}"))).collect();
        let now = crate::env::Env::system().wall().as_micros() / 1_000_000 * 1_000_000;
        Self { nodes, tick: WallTime::from_micros(now) + AHEAD, runs: Arc::default(), marked: None }
    }

    /// As a worker has it that reaches those nodes alone.
    async fn quorum(&self, nodes: &[usize]) -> Quorum {
        let all = self.nodes.iter().enumerate();
        let all = all.map(|(i, node)| Reached { node: node.clone(), away: !nodes.contains(&i) });
        let quorum = Quorum::builder().worker("b").nodes(all).trust_new_nodes(true).build().unwrap();
        quorum.met(SECOND * 5).await;
        quorum
    }

    fn start(&self) -> SpreadRecord {
        SpreadRecord::started("a", FencingToken::new(3), [1, 2], self.tick)
    }

    /// Has the record stand at those nodes: at a majority first, then, where another has one, at a minority.
    async fn stands(&self, nodes: &[usize], record: SpreadRecord) {
        let all = [0, 1, 2];
        let quorum = self.quorum(if nodes.len() > 1 { nodes } else { &all }).await;
        let ledger = Ledger::new(&quorum, "g").unwrap().part("spread");
        let (key, record): (_, Record) = (TickKey::new("j", self.tick).key(), record.into_record(self.tick));
        let written = ledger.write(&key, None, &record).await;
        assert_eq!(written.is_ok(), nodes.len() > 1);
        let answers = ledger.read().await.unwrap();
        let at = answers
            .iter()
            .filter(|answer| answer.state.records.contains(&(Arc::clone(&key), record.clone())));
        assert_eq!(at.count(), nodes.len());
        quorum.close().await;
    }

    /// Tries the tick so long after its time, where those nodes can be reached.
    async fn tries(
        &self,
        nodes: &[usize],
        delivery: Delivery,
        late: Duration,
    ) -> (Came, Option<TickHistory>) {
        self.tries_unless(Cancel::default(), nodes, delivery, late).await
    }

    async fn tries_unless(
        &self,
        cancel: Cancel,
        nodes: &[usize],
        delivery: Delivery,
        late: Duration,
    ) -> (Came, Option<TickHistory>) {
        let quorum = self.quorum(nodes).await;
        let runs = Arc::clone(&self.runs);
        let marked = self.marked;
        let job = Job::new("j", every(SECOND).unwrap(), move |tick: Tick| {
            runs.fetch_add(1, Ordering::SeqCst);
            async move {
                if marked.is_some() {
                    tick.mark_interrupted();
                }
                marked.unwrap_or(Ok(()))
            }
        });
        let job = Arc::new(
            job.placement(Placement::Spread).delivery(delivery).misfire(RunAll::within(SECOND * 60)),
        );
        let attempt = Attempt {
            tried: tried(&job, self.tick, late),
            job,
            claims: Claims::new(&quorum, "spread:g").ttl(SECOND * 5),
            ledger: Ledger::new(&quorum, "g").unwrap().part("spread"),
            worker: "b".into(),
            quorum: quorum.clone(),
            cancel,
            grace: SECOND,
            ttl: SECOND * 5,
            counts: Counts::default(),
        };
        let came = attempt.run().await;
        quorum.close().await;
        came
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

/// The try at `tick` that a worker makes so `late`.
fn tried(job: &Arc<Job>, tick: WallTime, late: Duration) -> Try {
    let mut plan = Plan::new(Arc::clone(job), BTreeSet::new());
    plan.begin(tick - SECOND / 2);
    plan.look(tick, &BTreeSet::new());
    plan.take(tick + late).unwrap()
}

fn end(came: &(Came, Option<TickHistory>)) -> (Came, Option<(TickEnd, &str)>) {
    (came.0, came.1.as_ref().map(|entry| (entry.end, &*entry.worker)))
}

const IN_TIME: Duration = Duration::from_millis(10);
const TOO_LATE: Duration = Duration::from_secs(100);

#[tokio::test]
async fn what_nobody_has_started_is_skipped_past_its_window() {
    for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce] {
        let stage = Stage::new();
        let came = stage.tries(&[0, 1, 2], delivery, TOO_LATE).await;
        assert_eq!(end(&came), (Came::Ended, Some((TickEnd::SkippedMisfire, "b"))), "{delivery}");
        let again = stage.tries(&[0, 1, 2], delivery, TOO_LATE).await;
        assert_eq!((end(&again), stage.runs()), ((Came::Ended, None), 0), "{delivery}: the claim is done");
    }
}

/// Of the majority that has the start one node cannot be asked; the skip would be the last word at another.
#[tokio::test]
async fn a_start_that_one_node_remembers_is_not_ended_by_a_skip() {
    for (delivery, expect, runs) in
        [(Delivery::AtLeastOnce, (TickEnd::Done, "b"), 1), (Delivery::AtMostOnce, (TickEnd::Lost, "a"), 0)]
    {
        let stage = Stage::new();
        stage.stands(&[0, 1], stage.start()).await;
        let came = stage.tries(&[0, 2], delivery, TOO_LATE).await;
        assert_eq!((end(&came), stage.runs()), ((Came::Ended, Some(expect)), runs), "{delivery}");
    }
}

#[tokio::test]
async fn a_skip_that_stands_beside_a_start_is_overruled() {
    for (delivery, expect, runs) in
        [(Delivery::AtLeastOnce, (TickEnd::Done, "b"), 1), (Delivery::AtMostOnce, (TickEnd::Lost, "a"), 0)]
    {
        for (started, skipped) in [(vec![0, 1], vec![2]), (vec![0], vec![1, 2]), (vec![1], vec![0, 2])] {
            for late in [IN_TIME, TOO_LATE] {
                let stage = Stage::new();
                let skip = stage.start().ended(TickEnd::SkippedMisfire, "late");
                let mut records = [(&started, stage.start()), (&skipped, skip)];
                records.sort_by_key(|(nodes, _)| std::cmp::Reverse(nodes.len()));
                for (nodes, record) in records {
                    stage.stands(nodes, record).await;
                }
                let came = stage.tries(&[0, 1, 2], delivery, late).await;
                let what = format!("{delivery}, started at {started:?}, {late:?} late");
                assert_eq!((end(&came), stage.runs()), ((Came::Ended, Some(expect)), runs), "{what}");
            }
        }
    }
}

/// Whoever gave it up died before it had said so in the history.
#[tokio::test]
async fn a_skip_that_nobody_has_entered_is_entered() {
    for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce] {
        for skipped in [vec![0, 1], vec![0, 1, 2]] {
            let stage = Stage::new();
            stage.stands(&skipped, stage.start().ended(TickEnd::SkippedMisfire, "late")).await;
            let came = stage.tries(&[0, 1, 2], delivery, TOO_LATE).await;
            let expect = (Came::Ended, Some((TickEnd::SkippedMisfire, "a")));
            assert_eq!((end(&came), stage.runs()), (expect, 0), "{delivery} {skipped:?}");
        }
    }
}

/// Whoever ran it has crashed, and somebody has asked for the run of that tick to stop.
#[tokio::test]
async fn a_tick_that_is_cancelled_before_it_runs_again_ends_so() {
    let stage = Stage::new();
    stage.stands(&[0, 1, 2], stage.start()).await;
    let cancel = Cancel::default();
    cancel.cancel("on request");
    let came = stage.tries_unless(cancel, &[0, 1, 2], Delivery::AtLeastOnce, IN_TIME).await;
    assert_eq!((end(&came), stage.runs()), ((Came::Ended, Some((TickEnd::Cancelled, "b"))), 0));
    let again = stage.tries(&[0, 1, 2], Delivery::AtLeastOnce, IN_TIME).await;
    assert_eq!((end(&again), stage.runs()), ((Came::Ended, None), 0), "for good");
}

#[tokio::test]
async fn a_spread_run_that_is_marked_as_interrupted_is_so_whatever_its_handler_returns() {
    for result in [Ok(()), Err("cut short")] {
        let mut stage = Stage { marked: Some(result), ..Stage::new() };
        let all = [0, 1, 2];
        let came = stage.tries(&all, Delivery::AtLeastOnce, IN_TIME).await;
        assert_eq!((end(&came), stage.runs()), ((Came::Interrupted, None), 1), "{result:?}");
        stage.marked = None;
        let again = stage.tries(&all, Delivery::AtLeastOnce, IN_TIME).await;
        assert_eq!((end(&again), stage.runs()), ((Came::Ended, Some((TickEnd::Done, "b"))), 2), "{result:?}");

        let stage = Stage { marked: Some(result), ..Stage::new() };
        let came = stage.tries(&all, Delivery::AtMostOnce, IN_TIME).await;
        assert_eq!(end(&came), (Came::Ended, Some((TickEnd::Cancelled, "b"))), "{result:?}");
        let again = stage.tries(&all, Delivery::AtMostOnce, IN_TIME).await;
        assert_eq!((end(&again), stage.runs()), ((Came::Ended, None), 1), "{result:?}: it has ended");
    }
}
