use crate::{
    election::{Election, ElectionError},
    env::{ScopedTask, WallTime},
    ledger::Ledger,
    node::MemoryNode,
    quorum::Quorum,
    scheduler::{
        control::IncomingRequest,
        job::{Job, RequestId, RunOutcome},
        leader::{Leading, lead},
        registry::{Handlers, JobRegistry},
        run::{assignment::WorkerParts, worker::take_runs},
        schedule::Schedule,
        store::{HistoryEntry, JobAction, JobRequest, JobResponse},
    },
};
use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub(in crate::scheduler) const SECOND: Duration = Duration::from_secs(1);
/// The period of most jobs of these tests.
pub(in crate::scheduler) const PERIOD: Duration = Duration::from_millis(100);

pub(in crate::scheduler) fn often() -> Schedule {
    Schedule::every(PERIOD).unwrap()
}

/// Returns a schedule that has no tick while a test runs.
pub(in crate::scheduler) fn never() -> Schedule {
    Schedule::every(1_000_000 * SECOND).unwrap()
}

/// Five memory nodes, on which the candidates of a test lead one after another.
pub(in crate::scheduler) struct Stage {
    nodes: Vec<MemoryNode>,
    pub(in crate::scheduler) quorum: Quorum,
    pub(in crate::scheduler) ledger: Ledger,
}

/// A worker that executes open runs and does not campaign.
pub(in crate::scheduler) struct OpenWorker {
    quorum: Quorum,
    stop: CancellationToken,
    run: ScopedTask<()>,
}

/// A worker that leads or campaigns.
pub(in crate::scheduler) struct Candidate {
    pub(in crate::scheduler) registry: JobRegistry,
    pub(in crate::scheduler) quorum: Quorum,
    requests: Arc<Mutex<Option<mpsc::Sender<IncomingRequest>>>>,
    stop: CancellationToken,
    run: ScopedTask<Result<(), ElectionError<String>>>,
}

impl Stage {
    pub(in crate::scheduler) fn new() -> Self {
        let nodes: Vec<_> = (0..5).map(|i| MemoryNode::new(&format!("memory-{i}"))).collect();
        let quorum = quorum("observer", &nodes);
        let ledger = Ledger::new(&quorum, "g").unwrap();
        Self { nodes, quorum, ledger }
    }

    /// Erases the data of these nodes. Then waits for a little more than 1 s, so that the nodes count for the slots of the
    /// runs that are opened after this call.
    pub(in crate::scheduler) async fn forget(&mut self, nodes: Range<usize>) {
        self.quorum.close().await;
        for node in nodes {
            self.nodes[node] = MemoryNode::new(&format!("memory-{node}"));
        }
        self.quorum = quorum("observer", &self.nodes);
        self.ledger = Ledger::new(&self.quorum, "g").unwrap();
        assert!(self.quorum.ready(5 * SECOND).await.unwrap().has_majority());
        self.quorum.env().sleep(SECOND + PERIOD).await;
    }

    /// Starts a candidate with these jobs and no limit of concurrent runs.
    pub(in crate::scheduler) fn candidate(&self, worker: &str, jobs: &[Job]) -> Candidate {
        self.limited(worker, jobs, usize::MAX)
    }

    /// Starts a candidate that executes at most `max_running` runs at once.
    pub(in crate::scheduler) fn limited(&self, worker: &str, jobs: &[Job], max_running: usize) -> Candidate {
        self.candidate_with(
            worker,
            &JobRegistry::new(&"g".into(), &[], jobs, Handlers::default()),
            max_running,
        )
    }

    /// Starts a candidate that has the registry of an earlier one, as a scheduler has over all its terms.
    pub(in crate::scheduler) fn candidate_with(
        &self,
        worker: &str,
        registry: &JobRegistry,
        max_running: usize,
    ) -> Candidate {
        let quorum = quorum(worker, &self.nodes);
        let election = Election::new(&quorum, "g").ttl(SECOND).step_down_grace(SECOND / 4);
        let (registry, requests) =
            (registry.clone(), Arc::<Mutex<Option<mpsc::Sender<IncomingRequest>>>>::default());
        let stop = CancellationToken::new();
        let (mine, ledger, senders) =
            (registry.clone(), Ledger::new(&quorum, "g").unwrap(), Arc::clone(&requests));
        let campaign = election.run(move |term| {
            let (sender, asked) = mpsc::channel(8);
            *senders.lock().unwrap() = Some(sender);
            let (registry, ledger) = (mine.clone(), ledger.clone());
            async move {
                let (ttl, grace) = (SECOND, SECOND / 4);
                lead(Leading { registry, ledger, term, ttl, max_running, grace }, asked).await;
                Ok::<(), String>(())
            }
        });
        let run = quorum.env().spawn_scoped(campaign.until(stop.clone().cancelled_owned()));
        Candidate { registry, quorum, requests, stop, run }
    }

    /// Starts a worker that executes open runs of these jobs.
    pub(in crate::scheduler) fn worker(&self, name: &str, jobs: &[Job]) -> OpenWorker {
        let (quorum, group) = (quorum(name, &self.nodes), Arc::<str>::from("g"));
        let taking = WorkerParts {
            registry: JobRegistry::new(&group, &[], jobs, Handlers::default()),
            quorum: quorum.clone(),
            ledger: Ledger::new(&quorum, &group).unwrap(),
            group,
            labels: Default::default(),
            max_running: usize::MAX,
            ttl: SECOND,
            grace: SECOND / 4,
        };
        let stop = CancellationToken::new();
        let run = quorum.env().spawn_scoped(take_runs(taking, stop.clone()));
        OpenWorker { quorum, stop, run }
    }

    /// Reads a job's history.
    pub(in crate::scheduler) async fn history(&self, job: &str) -> Vec<HistoryEntry> {
        let answers = self.ledger.part(&HistoryEntry::part(job)).read().await.unwrap();
        let (history, unread) = HistoryEntry::merge(&answers);
        assert!(unread.is_empty(), "{unread:?}");
        history
    }

    /// Reads a job's history until `enough` returns true for it. Returns that history.
    pub(in crate::scheduler) async fn history_when(
        &self,
        job: &str,
        enough: impl Fn(&[HistoryEntry]) -> bool,
    ) -> Vec<HistoryEntry> {
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

    pub(in crate::scheduler) fn request(&self, what: JobAction) -> JobRequest {
        let id = RequestId::random(self.quorum.env());
        JobRequest { id, by: "me@here".into(), at: self.quorum.env().wall(), valid_for: 60 * SECOND, what }
    }
}

impl OpenWorker {
    /// Stops the worker, and waits until all its tasks have ended.
    pub(in crate::scheduler) async fn stops(self) {
        self.stop.cancel();
        self.run.await.expect("no panic");
        self.quorum.close().await;
        assert_eq!(self.quorum.env().tasks_alive(), 0);
    }

    /// Drops all tasks of the worker at once, as a crash would.
    pub(in crate::scheduler) async fn crashes(self) {
        drop(self.run);
        self.quorum.close().await;
    }
}

impl Candidate {
    /// Sends a request to this candidate, and repeats it until the candidate answers. The candidate may give no
    /// answer when its term has just begun or ended.
    pub(in crate::scheduler) async fn ask(&self, request: &JobRequest) -> JobResponse {
        let env = self.quorum.env();
        let deadline = env.now() + 10 * SECOND;
        loop {
            let way = self.requests.lock().unwrap().clone();
            if let Some(way) = way {
                let (reply, answer) = oneshot::channel();
                let sent = way.send(IncomingRequest { request: request.clone(), reply }).await.is_ok();
                if sent && let Ok(answer) = answer.await {
                    return answer;
                }
            }
            assert!(env.now() < deadline, "no leader answers {request:?}");
            env.sleep(PERIOD / 10).await;
        }
    }

    /// Resigns the candidate's term, and waits until all its tasks have ended.
    pub(in crate::scheduler) async fn resigns(self) {
        self.stop.cancel();
        self.run.await.expect("no panic").expect("a shutdown is Ok");
        self.quorum.close().await;
        assert_eq!(self.quorum.env().tasks_alive(), 0);
    }

    /// Drops all tasks of the candidate at once, as a crash would. The candidate then writes no further record.
    pub(in crate::scheduler) async fn crashes(self) {
        drop(self.run);
        self.quorum.close().await;
    }
}

fn quorum(worker: &str, nodes: &[MemoryNode]) -> Quorum {
    let builder = Quorum::builder().worker(worker).nodes(nodes.iter().cloned());
    builder.trust_new_nodes(true).build().expect("a valid configuration")
}

pub(in crate::scheduler) fn accepted(answer: &JobResponse) -> u64 {
    match answer {
        JobResponse::Accepted { count, .. } => *count,
        other => panic!("{other:?}"),
    }
}

pub(in crate::scheduler) fn refused(answer: &JobResponse) -> &str {
    match answer {
        JobResponse::Refused { why } => why,
        other => panic!("{other:?}"),
    }
}

pub(in crate::scheduler) fn ends(history: &[HistoryEntry], end: RunOutcome) -> Vec<&HistoryEntry> {
    history.iter().filter(|entry| entry.end == end).collect()
}

/// The ticks whose handlers have started, in the order of their starts.
pub(in crate::scheduler) type Begun = Arc<Mutex<Vec<WallTime>>>;
