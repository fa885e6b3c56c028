//! Reads the nodes for the live view, and sends the actions. One future does all of that; its owner drops it.

use super::{news::News, sidecar::Sidecar};
use crate::{
    config::Config,
    connect::{self, PATIENCE},
    exit::{CONFIG, Failure},
    show,
};
use quorate::{Election, quorum::Quorum};
use quorate_operator::{
    Action, ActionError, Operator,
    state::{Key, Reader, Watched},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, watch};

/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 200;

/// The reader of the nodes.
#[derive(Debug)]
pub(super) struct Poller<'a> {
    config: &'a Config,
    /// A quorum that writes nothing.
    looking: Quorum,
    watched: Watched,
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
        let election = Election::new(&looking, group);
        election.observe().map_err(|error| invalid(&error))?;
        let watched = Watched { election, ttl: None, jobs: true, source: None };
        let Settings { every, wait, sidecar, by } = settings;
        Ok(Self { config, looking, watched, by, every, wait, sidecar, news })
    }

    /// Reads and acts until the receiver of the news is dropped.
    pub(super) async fn run(
        &self,
        actions: mpsc::Receiver<Action>,
        followed: watch::Receiver<Option<Arc<str>>>,
    ) {
        futures_util::join!(self.rounds(followed), self.leases(), self.act(actions));
    }

    /// Closes the connections.
    pub(super) async fn close(&self) {
        self.looking.close().await;
    }

    /// Reads the state of the group, with the details of the job that is open. Another job is read at once.
    async fn rounds(&self, mut followed: watch::Receiver<Option<Arc<str>>>) {
        let env = self.looking.env();
        let mut reader = Reader::new(&self.watched);
        loop {
            let job = followed.borrow_and_update().clone();
            let keys: Vec<Key> =
                job.into_iter().map(|name| Key::Job { name: name.to_string(), at: None }).collect();
            let began = env.now();
            let round = tokio::select! { biased;
                changed = followed.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                round = reader.read(began, &keys) => round,
            };
            let took = began.until(env.now());
            if self.news.send(News::Round(Box::new(round))).await.is_err() {
                return;
            }
            // A group with many jobs is read less often.
            if let Some(Err(_)) = env.before(env.now() + self.every.max(took), followed.changed()).await {
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
        let group = self.watched.election.group();
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
