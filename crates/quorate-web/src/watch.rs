//! Reads the nodes for all viewers of a router. One task does this, and only while a viewer looks.

use crate::page::Page;
use quorate::{
    env::{Env, ScopedTask},
    quorum::Quorum,
};
use quorate_operator::state::{Key, Reader, Round};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// The time between two rounds.
const EVERY: Duration = Duration::from_millis(500);
/// The shortest pause between two rounds, also if a viewer waits.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause between two rounds, in durations of a round: a group with many jobs is read less often.
const PAUSE_ROUNDS: u32 = 3;
/// The age up to which a round is new enough for a page.
const MAX_AGE: Duration = Duration::from_millis(700);
/// The longest time for which a page waits for a round.
const PATIENCE: Duration = Duration::from_secs(4);

/// The reader of the nodes, with the viewers that wait for it. Dropping it ends its task.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) shared: Arc<Shared>,
    _task: ScopedTask<()>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    env: Env,
    latest: watch::Sender<Option<Arc<Round>>>,
    viewers: Mutex<Viewers>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Viewers {
    count: usize,
    keys: BTreeMap<Key, usize>,
}

/// A page that a viewer has open. While it exists, the nodes are read.
#[derive(Debug)]
pub(crate) struct OpenView {
    shared: Arc<Shared>,
    key: Option<Key>,
}

impl Watch {
    pub(crate) fn start(page: &Page, quorum: &Quorum) -> Self {
        let env = quorum.env().clone();
        let shared = Arc::new(Shared {
            env: env.clone(),
            latest: watch::Sender::new(None),
            viewers: Mutex::default(),
            wake: Notify::new(),
        });
        let task = env.spawn_scoped(read_rounds(Arc::clone(&shared), Reader::new(&page.watched)));
        Self { shared, _task: task }
    }

    /// Counts a viewer of the page that shows `key`.
    pub(crate) fn look(&self, key: Option<Key>) -> OpenView {
        let mut viewers = self.shared.viewers();
        viewers.count += 1;
        if let Some(key) = &key {
            *viewers.keys.entry(key.clone()).or_default() += 1;
        }
        drop(viewers);
        OpenView { shared: Arc::clone(&self.shared), key }
    }
}

impl OpenView {
    /// Returns a round that is new enough, with the part that the page shows. If the nodes are slow, it may be older
    /// or without that part; `None` if there is no round yet.
    pub(crate) async fn round(&self) -> Option<Arc<Round>> {
        let (shared, env) = (&self.shared, &self.shared.env);
        let asked = env.now();
        let mut rounds = shared.latest.subscribe();
        let is_new = |round: &Option<Arc<Round>>| {
            round.as_ref().is_some_and(|round| {
                round.began.until(asked) <= MAX_AGE
                    && self.key.as_ref().is_none_or(|key| round.details.contains_key(key))
            })
        };
        if !is_new(&rounds.borrow()) {
            shared.wake.notify_one();
            let found = rounds.wait_for(is_new);
            // After the deadline, the latest round is shown.
            env.before(asked + PATIENCE, async { found.await.map(drop) }).await;
        }
        shared.latest.borrow().clone()
    }

    /// Returns a receiver of all further rounds.
    pub(crate) fn rounds(&self) -> watch::Receiver<Option<Arc<Round>>> {
        self.shared.wake.notify_one();
        self.shared.latest.subscribe()
    }
}

impl Drop for OpenView {
    fn drop(&mut self) {
        let mut viewers = self.shared.viewers();
        viewers.count -= 1;
        if let Some(key) = &self.key
            && let Some(count) = viewers.keys.get_mut(key)
        {
            *count -= 1;
            if *count == 0 {
                viewers.keys.remove(key);
            }
        }
    }
}

impl Shared {
    fn viewers(&self) -> MutexGuard<'_, Viewers> {
        // No code panics while it holds the lock.
        self.viewers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the parts that viewers look at; `None` if there is no viewer.
    fn wanted(&self) -> Option<Vec<Key>> {
        let viewers = self.viewers();
        (viewers.count > 0).then(|| viewers.keys.keys().cloned().collect())
    }
}

/// Reads the nodes while a viewer looks, until it is dropped.
async fn read_rounds(shared: Arc<Shared>, mut reader: Reader) {
    let env = shared.env.clone();
    loop {
        let Some(keys) = shared.wanted() else {
            reader.rest();
            shared.wake.notified().await;
            continue;
        };
        let began = env.now();
        let round = reader.read(began, &keys).await;
        shared.latest.send_replace(Some(Arc::new(round)));
        let took = began.until(env.now());
        env.sleep(PAUSE).await;
        let next = env.now() + EVERY.max(took * PAUSE_ROUNDS).saturating_sub(PAUSE);
        env.before(next, shared.wake.notified()).await;
    }
}
