use crate::scheduler::{
    control::Asked,
    leader::{Leading, lead},
};
use crate::{
    election::{Election, ElectionError},
    env::{ScopedTask, WallTime},
    ledger::Ledger,
    node::MemoryNode,
    quorum::Quorum,
    scheduler::{Answer, Ask, Every, Job, Request, RequestId, TickEnd, TickHistory, every, registry::Roster},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub(in crate::scheduler) const SECOND: Duration = Duration::from_secs(1);
/// How often most jobs of these tests are due.
pub(in crate::scheduler) const PERIOD: Duration = Duration::from_millis(100);

pub(in crate::scheduler) fn often() -> Every {
    every(PERIOD).unwrap()
}

/// A schedule that is not due while a test runs.
pub(in crate::scheduler) fn never() -> Every {
    every(1_000_000 * SECOND).unwrap()
}

/// Five nodes, on which leaders follow each other.
pub(in crate::scheduler) struct Stage {
    nodes: Vec<MemoryNode>,
    pub(in crate::scheduler) quorum: Quorum,
    pub(in crate::scheduler) ledger: Ledger,
}

/// One that leads, or wants to.
pub(in crate::scheduler) struct Candidate {
    pub(in crate::scheduler) roster: Roster,
    pub(in crate::scheduler) quorum: Quorum,
    asks: Arc<Mutex<Option<mpsc::Sender<Asked>>>>,
    stop: CancellationToken,
    run: ScopedTask<Result<(), ElectionError<String>>>,
}

impl Stage {
    pub(in crate::scheduler) fn new() -> Self {
        let nodes: Vec<_> = (0..5).map(|i| MemoryNode::new(&format!("memory-{i}"))).collect();
        let quorum = quorum("looker", &nodes);
        let ledger = Ledger::new(&quorum, "g").unwrap();
        Self { nodes, quorum, ledger }
    }

    /// A candidate with these jobs, with no limit of runs.
    pub(in crate::scheduler) fn candidate(&self, worker: &str, jobs: &[Job]) -> Candidate {
        self.limited(worker, jobs, usize::MAX)
    }

    pub(in crate::scheduler) fn limited(&self, worker: &str, jobs: &[Job], max_running: usize) -> Candidate {
        let quorum = quorum(worker, &self.nodes);
        let election = Election::new(&quorum, "g").ttl(SECOND).step_down_grace(SECOND / 4);
        let (roster, asks) = (Roster::new(jobs), Arc::<Mutex<Option<mpsc::Sender<Asked>>>>::default());
        let stop = CancellationToken::new();
        let (mine, ledger, way) = (roster.clone(), Ledger::new(&quorum, "g").unwrap(), Arc::clone(&asks));
        let campaign = election.run(move |term| {
            let (sender, asked) = mpsc::channel(8);
            *way.lock().unwrap() = Some(sender);
            let (roster, ledger) = (mine.clone(), ledger.clone());
            async move {
                let (ttl, grace) = (SECOND, SECOND / 4);
                lead(Leading { roster, ledger, term, ttl, max_running, grace }, asked).await;
                Ok::<(), String>(())
            }
        });
        let run = quorum.env().spawn_scoped(campaign.until(stop.clone().cancelled_owned()));
        Candidate { roster, quorum, asks, stop, run }
    }

    /// A job's history, as anybody may read it.
    pub(in crate::scheduler) async fn history(&self, job: &str) -> Vec<TickHistory> {
        let answers = self.ledger.part(&TickHistory::part(job)).read().await.unwrap();
        let (history, unread) = TickHistory::merge(&answers);
        assert!(unread.is_empty(), "{unread:?}");
        history
    }

    /// The history once it is so.
    pub(in crate::scheduler) async fn history_when(
        &self,
        job: &str,
        enough: impl Fn(&[TickHistory]) -> bool,
    ) -> Vec<TickHistory> {
        let deadline = self.quorum.env().now() + 15 * SECOND;
        loop {
            let history = self.history(job).await;
            if enough(&history) {
                return history;
            }
            assert!(self.quorum.env().now() < deadline, "{job}: {history:#?}");
            self.quorum.env().sleep(PERIOD / 5).await;
        }
    }

    pub(in crate::scheduler) async fn when(&self, what: &str, is_so: impl Fn() -> bool) {
        self.within(15 * SECOND, what, is_so).await;
    }

    pub(in crate::scheduler) async fn within(&self, most: Duration, what: &str, is_so: impl Fn() -> bool) {
        let deadline = self.quorum.env().now() + most;
        while !is_so() {
            assert!(self.quorum.env().now() < deadline, "{what}");
            self.quorum.env().sleep(PERIOD / 10).await;
        }
    }

    pub(in crate::scheduler) fn request(&self, what: Ask) -> Request {
        let id = RequestId::random(self.quorum.env());
        Request { id, by: "me@here".into(), at: self.quorum.env().wall(), valid_for: 60 * SECOND, what }
    }
}

impl Candidate {
    /// Asks until a leader answers: one that has just begun or ended may not.
    pub(in crate::scheduler) async fn ask(&self, request: &Request) -> Answer {
        let env = self.quorum.env();
        let deadline = env.now() + 10 * SECOND;
        loop {
            let way = self.asks.lock().unwrap().clone();
            if let Some(way) = way {
                let (reply, answer) = oneshot::channel();
                let sent = way.send(Asked { request: request.clone(), reply }).await.is_ok();
                if sent && let Ok(answer) = answer.await {
                    return answer;
                }
            }
            assert!(env.now() < deadline, "nobody answers {request:?}");
            env.sleep(PERIOD / 10).await;
        }
    }

    /// In good order.
    pub(in crate::scheduler) async fn resigns(self) {
        self.stop.cancel();
        self.run.await.expect("no panic").expect("a shutdown is Ok");
        self.quorum.close().await;
        assert_eq!(self.quorum.env().tasks_alive(), 0);
    }

    /// As good as a crash: everything of it is dropped at once, and nothing is told.
    pub(in crate::scheduler) async fn crashes(self) {
        drop(self.run);
        self.quorum.close().await;
    }
}

fn quorum(worker: &str, nodes: &[MemoryNode]) -> Quorum {
    let builder = Quorum::builder().worker(worker).nodes(nodes.iter().cloned());
    builder.trust_new_nodes(true).build().expect("a sound setup")
}

pub(in crate::scheduler) fn accepted(answer: &Answer) -> u64 {
    match answer {
        Answer::Accepted { count, .. } => *count,
        other => panic!("{other:?}"),
    }
}

pub(in crate::scheduler) fn refused(answer: &Answer) -> &str {
    match answer {
        Answer::Refused { why } => why,
        other => panic!("{other:?}"),
    }
}

pub(in crate::scheduler) fn ends(history: &[TickHistory], end: TickEnd) -> Vec<&TickHistory> {
    history.iter().filter(|entry| entry.end == end).collect()
}

/// Which ticks have begun, in order.
pub(in crate::scheduler) type Begun = Arc<Mutex<Vec<WallTime>>>;
