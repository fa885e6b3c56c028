use super::{
    attendance::{End, Phase},
    id::LeaseId,
    lease::{Held, Kind, New, Part},
    measures::{Asked, Measures},
    seats::{Limits, Refusal, Seat, Seats},
};
use quorate::env::Env;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// The time for which an ended lease is remembered, so that its client learns the reason.
const LINGER: Duration = Duration::from_secs(60);

/// The leases of all clients.
pub(crate) struct Leases {
    env: Env,
    seats: Arc<Seats>,
    stopping: CancellationToken,
    held: Mutex<BTreeMap<LeaseId, Arc<Held>>>,
    measures: Arc<Measures>,
}

impl Leases {
    pub(crate) fn new(env: &Env, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            env: env.clone(),
            seats: Seats::new(limits),
            stopping: CancellationToken::new(),
            held: Mutex::default(),
            measures: Arc::new(Measures::new()),
        })
    }

    /// Takes a place for `count` locks or messages of `client`, before it asks the nodes for them.
    pub(crate) fn seat(&self, client: &Arc<str>, count: usize) -> Result<Seat, Refusal> {
        if self.stopping.is_cancelled() {
            return Err(Refusal::Stopping);
        }
        self.seats.take(client, count)
    }

    /// Holds what was acquired for the client of `seat`, under the client's `name`.
    pub(crate) fn hold(
        self: &Arc<Self>,
        seat: Seat,
        name: Arc<str>,
        kind: Kind,
        (ttl, keep): (Duration, Duration),
        parts: Vec<Part>,
    ) -> Arc<Held> {
        let (id, measures) = (LeaseId::new(self.env.random_pair()), Arc::clone(&self.measures));
        let held = Held::new(&self.env, New { id, client: name, kind, keep, ttl, parts, seat, measures });
        self.held().insert(id, Arc::clone(&held));
        let (leases, watched) = (Arc::clone(self), Arc::clone(&held));
        self.env.spawn(async move {
            watched.watch(&leases.stopping).await;
            leases.forget_later(&watched).await;
        });
        held
    }

    /// Removes an ended lease. Unless the client itself ended it, this waits until the client has had the time to learn of it.
    async fn forget_later(&self, held: &Held) {
        if held.phase() != Phase::Ended(End::Released) {
            tokio::select! { biased;
                () = self.stopping.cancelled() => {}
                () = self.env.stopped().cancelled() => {}
                () = self.env.sleep(LINGER) => {}
            }
        }
        self.held().remove(&held.id);
    }

    /// Returns the lease of this id, which may have ended. Returns `None` for the id of no lease of this process.
    pub(crate) fn find(&self, id: LeaseId) -> Option<Arc<Held>> {
        self.held().get(&id).cloned()
    }

    /// Returns all leases that have not ended, by client and from the oldest.
    pub(crate) fn all(&self) -> Vec<Arc<Held>> {
        let mut all: Vec<_> = self.held().values().cloned().collect();
        all.retain(|held| !matches!(held.phase(), Phase::Ended(_)));
        all.sort_by(|a, b| (&a.client, a.since).cmp(&(&b.client, b.since)));
        all
    }

    /// Returns the client that holds the lock of this name, if a client of this process does.
    pub(crate) fn client_of(&self, lock: &str) -> Option<Arc<str>> {
        self.held().values().find(|held| held.has_lock(lock)).map(|held| Arc::clone(&held.client))
    }

    /// Counts a request of a client.
    pub(crate) fn asked(&self, outcome: Asked) {
        self.measures.asked(outcome);
    }

    /// Lets the clients know that the daemon stops, and waits until they have released what they hold, or until no answer that
    /// they got allows them to use it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the leases still end.
    pub(crate) async fn stop(&self) {
        self.stopping.cancel();
        let held = self.all();
        for held in held {
            while !matches!(held.phase(), Phase::Ended(_)) {
                held.leaves(held.phase()).await;
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Arc<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("seats", &self.seats).finish_non_exhaustive()
    }
}
