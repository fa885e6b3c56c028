//! Reads the nodes for the live view, and sends the actions. One future does all of that; its owner drops it.

use super::{
    news::{Detail, Leader, News},
    sidecar::Sidecar,
};
use crate::{
    config::Config,
    connect::{self, PATIENCE},
    exit::{CONFIG, Failure},
    jobs, show, status,
};
use quorate::{ledger::LedgerCopies, node::Resource, quorum::Quorum, scheduler::Jobs, shards::ShardSet};
use quorate_operator::{
    Action, ActionError, Operator,
    view::{ShardSetView, WorkerView},
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{mpsc, watch};

/// The number of outcomes in the details of a job.
const HISTORY: u32 = 50;
/// The longest time between two looks at the states of the nodes.
const NODES_EVERY: Duration = Duration::from_millis(500);
/// The shortest time between two looks at the workers and the sets of shards.
const SHARDS_EVERY: Duration = Duration::from_secs(5);
/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 200;

/// The reader of the nodes.
#[derive(Debug)]
pub(super) struct Poller<'a> {
    config: &'a Config,
    /// A quorum that writes nothing.
    looking: Quorum,
    jobs: Jobs,
    election: Resource,
    /// The copies of the group's ledger, as they were last read with the leader.
    copies: Mutex<Option<LedgerCopies>>,
    by: Operator,
    every: Duration,
    wait: Duration,
    sidecar: Option<Sidecar>,
    news: mpsc::Sender<News>,
}

/// The times and names that the poller uses.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) every: Duration,
    pub(super) wait: Duration,
    /// The sidecar whose leases are shown.
    pub(super) sidecar: Option<Sidecar>,
    pub(super) by: Operator,
}

impl<'a> Poller<'a> {
    /// Returns a poller, which sends what it reads to `news`.
    pub(super) fn new(
        config: &'a Config,
        group: &str,
        settings: Settings,
        news: mpsc::Sender<News>,
    ) -> Result<Self, Failure> {
        let invalid = |error: &dyn std::fmt::Display| Failure::new(CONFIG, format!("--group: {error}"));
        let looking = connect::only_looking(config)?;
        let jobs = Jobs::new(&looking, group).map_err(|error| invalid(&error))?;
        let election = Resource::election(group).map_err(|error| invalid(&error))?;
        let Settings { every, wait, sidecar, by } = settings;
        let copies = Mutex::default();
        Ok(Self { config, looking, jobs, election, copies, by, every, wait, sidecar, news })
    }

    /// Reads and acts until the receiver of the news is dropped.
    pub(super) async fn run(
        &self,
        actions: mpsc::Receiver<Action>,
        followed: watch::Receiver<Option<Arc<str>>>,
    ) {
        futures_util::join!(
            self.nodes(),
            self.leader(),
            self.list(),
            self.leases(),
            self.workers_and_shards(),
            self.details(followed),
            self.act(actions)
        );
    }

    /// Closes the connections.
    pub(super) async fn close(&self) {
        self.looking.close().await;
    }

    async fn nodes(&self) {
        loop {
            // This asks no node: the quorum itself keeps the states up to date.
            let mut nodes = status::nodes(&self.looking);
            if let Some(copies) = &*self.copies() {
                let copies = nodes.iter_mut().zip(copies.nodes());
                copies.for_each(|(node, copy)| node.note_copy(&self.election.name(), copy));
            }
            if self.news.send(News::Nodes(nodes)).await.is_err() {
                return;
            }
            self.looking.env().sleep(self.every.min(NODES_EVERY)).await;
        }
    }

    async fn leader(&self) {
        self.looking.met(PATIENCE).await;
        loop {
            let mut found = status::look(&self.looking, &self.election).await;
            let waiting = found.ledger.as_ref().and_then(LedgerCopies::waiting).map(|waiting| waiting.why);
            *self.copies() = found.ledger.take();
            let leader = match found {
                status::ResourceLine { error: Some(error), .. } => Err(error),
                // During a reservation, no worker leads yet.
                status::ResourceLine {
                    holder: Some(worker),
                    reserved_for: None,
                    fencing_token,
                    remaining_ms,
                    ..
                } => Ok(Some(Leader {
                    worker: show::line(&worker, NAME_MAX),
                    term: fencing_token,
                    remaining: remaining_ms.map(Duration::from_millis),
                    waiting: waiting.map(|why| show::line(&why, NAME_MAX * 2)),
                })),
                _ => Ok(None),
            };
            if !self.tell(News::Leader(leader)).await {
                return;
            }
        }
    }

    fn copies(&self) -> MutexGuard<'_, Option<LedgerCopies>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn list(&self) {
        self.looking.met(PATIENCE).await;
        loop {
            let jobs = jobs::all(&self.jobs).await.map_err(|failure| failure.to_string());
            if !self.tell(News::Jobs(jobs)).await {
                return;
            }
        }
    }

    async fn leases(&self) {
        let Some(sidecar) = &self.sidecar else { return };
        let env = self.looking.env();
        loop {
            let late = || Err(format!("{}: no answer within {PATIENCE:?}", sidecar.address));
            let read = env.before(env.now() + PATIENCE, sidecar.read()).await.unwrap_or_else(late);
            if !self.tell(News::Leases(read)).await {
                return;
            }
        }
    }

    /// Reads what changes seldom.
    async fn workers_and_shards(&self) {
        self.looking.met(PATIENCE).await;
        loop {
            // The lines stay as they are if too few nodes answer, which the leader's line says.
            if let Ok(workers) = self.jobs.workers().await {
                let workers = workers.iter().map(WorkerView::new).collect();
                if self.news.send(News::Workers(workers)).await.is_err() {
                    return;
                }
            }
            if let Ok(sets) = ShardSet::read_all(&self.looking).await {
                let sets = sets.iter().map(ShardSetView::new).collect();
                if self.news.send(News::Shards(sets)).await.is_err() {
                    return;
                }
            }
            self.looking.env().sleep(self.every.max(SHARDS_EVERY)).await;
        }
    }

    async fn details(&self, mut followed: watch::Receiver<Option<Arc<str>>>) {
        loop {
            let job = followed.borrow_and_update().clone();
            let Some(job) = job else {
                if followed.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let read = async {
                let (history, why) = futures_util::join!(
                    jobs::history(&self.jobs, &job, HISTORY),
                    jobs::why(&self.jobs, &job)
                );
                let detail = Detail {
                    job: job.clone(),
                    history: history.map_err(|failure| failure.to_string()),
                    why: why.map_err(|failure| failure.to_string()),
                };
                self.tell(News::Detail(Box::new(detail))).await
            };
            // Another job is read at once.
            tokio::select! { biased;
                changed = followed.changed() => if changed.is_err() { return },
                is_received = read => if !is_received { return },
            }
        }
    }

    async fn act(&self, mut actions: mpsc::Receiver<Action>) {
        // Without an action, nothing is written to the nodes. So the quorum that writes begins with the first one.
        let mut writing: Option<Quorum> = None;
        while let Some(request) = actions.recv().await {
            let answer = self.send(&mut writing, &request).await;
            if self.news.send(News::Answer(answer)).await.is_err() {
                break;
            }
        }
        if let Some(quorum) = writing {
            quorum.close().await;
        }
    }

    async fn send(&self, writing: &mut Option<Quorum>, action: &Action) -> Result<String, String> {
        let group = self.jobs.group();
        let failed = |error: &ActionError| {
            let error = show::line(&error.to_string(), NAME_MAX * 20);
            format!("{}: {}: {error}", action.verb().name(), action.target(group))
        };
        // The list of nodes may be mistyped. Then the target is not found, and no marker is written to these nodes.
        action.check(&self.looking, group).await.map_err(|error| failed(&error))?;
        let quorum = match writing.take() {
            Some(quorum) => quorum,
            None => {
                let settings = self.config.settings.clone();
                connect::quorum(self.config, settings).map_err(|failure| failure.to_string())?
            }
        };
        let quorum = writing.insert(quorum);
        // A missing quorum is reported by the action itself.
        let _ = quorum.ready(PATIENCE).await;
        let done = action.carry_out(quorum, group, &self.by, self.wait).await;
        done.error.as_ref().map_or_else(|| Ok(done.answer.text()), |error| Err(failed(error)))
    }

    /// Sends news, and waits until the next update is due. Returns false if the view has ended.
    async fn tell(&self, news: News) -> bool {
        let is_received = self.news.send(news).await.is_ok();
        self.looking.env().sleep(self.every).await;
        is_received
    }
}
