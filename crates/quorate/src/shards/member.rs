//! A worker of a set: holds a session, reads the plan, and starts and ends the tasks of its shards.

use super::{
    Shard,
    assignment::{Assignment, KEY},
    owner::{Known, Owner, Report},
    set::Set,
};
use crate::{
    env::{BootTime, ScopedTask},
    lease::{AcquireError, Lease, Shown},
    session::announcement,
};
use futures_util::{FutureExt, future::join_all};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    sync::Arc,
    time::Duration,
};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// The pause after a failed attempt to begin a session or to read the plan.
const AGAIN: Duration = Duration::from_millis(500);
/// The pause between two announcements of a worker that is not in the plan.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(1);
/// The time after which the leases of new shards are extended together with all others.
const ALIGN_AFTER: Duration = Duration::from_millis(500);

/// A worker.
pub(super) struct Member<W> {
    set: Arc<Set>,
    work: Arc<W>,
    session: Option<Session>,
    shards: BTreeMap<usize, Task>,
    known: Arc<Shown<Known>>,
    /// The task of a shard asks for a new look.
    look: Arc<Notify>,
    reports: (mpsc::UnboundedSender<Report>, mpsc::UnboundedReceiver<Report>),
    /// The time at which all leases are to be extended at once.
    align_at: Option<BootTime>,
    /// True if it was logged that this worker waits.
    waits: bool,
}

struct Session {
    name: Arc<str>,
    lease: Lease,
    announce_at: BootTime,
}

struct Task {
    revoked: CancellationToken,
    _task: ScopedTask<()>,
}

impl<W, F, E> Member<W>
where
    W: Fn(Shard) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send + 'static,
{
    pub(super) fn new(set: &Arc<Set>, work: Arc<W>) -> Self {
        Self {
            set: Arc::clone(set),
            work,
            session: None,
            shards: BTreeMap::new(),
            known: Arc::default(),
            look: Arc::default(),
            reports: mpsc::unbounded_channel(),
            align_at: None,
            waits: false,
        }
    }

    /// Works until the future is dropped. Returns an error that no later attempt can avoid.
    pub(super) async fn serve(&mut self) -> AcquireError {
        loop {
            let rings = self.set.bell.rings();
            let asked = self.set.env().now();
            self.check_session().await;
            let pause = self.read().await;
            if let Err(error) = self.rest(asked, pause, rings).await {
                return error;
            }
        }
    }

    /// Hands every shard over, and leaves the set.
    ///
    /// # Cancel safety
    /// If the future is dropped, the works are dropped with this value.
    pub(super) async fn leave(&mut self) {
        self.shards.values().for_each(|task| task.revoked.cancel());
        let (env, session) = (self.set.env().clone(), self.session.take());
        let timeout = self.set.quorum.config().node_timeout;
        let until = env.now() + self.set.grace + timeout * 4;
        let bell = &self.set.bell;
        let leave = async {
            if let Some(session) = session {
                // The others get the shards at once if the session ends now, and not with its TTL.
                let _ = session.lease.release().await;
            }
            bell.ring().await;
        };
        let (shards, reports) = (&mut self.shards, &mut self.reports.1);
        let works = async {
            while !shards.is_empty() {
                if let Some(Report::Ended(number, _)) = reports.recv().await {
                    shards.remove(&number);
                }
            }
        };
        env.before(until, async { tokio::join!(leave, works) }).await;
        self.shards.clear();
    }

    /// Begins a session if there is none.
    async fn check_session(&mut self) {
        if self.session.as_ref().is_some_and(|session| session.lease.is_valid()) {
            return;
        }
        self.session = None;
        let Some((name, lease)) = self.set.sessions.begin().await else { return };
        if let Some(health) = self.set.options.health() {
            // A worker that is stuck must not count as one that lives.
            lease.limit(None, Some(health.clone()));
        }
        self.session = Some(Session { name, lease, announce_at: BootTime::default() });
    }

    /// Reads the plan, and acts by it. Returns the pause before the next look.
    async fn read(&mut self) -> Duration {
        let read = self.set.begin_read();
        let Ok(answers) = self.set.ledger.read_keys(&[KEY.into()]).await else { return AGAIN };
        let plan = Assignment::latest(&answers).map(|(_, plan)| plan);
        let Some(session) = &mut self.session else { return AGAIN };
        let mine = plan.as_ref().and_then(|plan| plan.of(&session.name)).cloned();
        let is_known = mine.is_some();
        if let Some(plan) = plan {
            let others = plan.count != self.set.who.count;
            let (count, mine) = (plan.count, mine.filter(|_| !others).unwrap_or_default());
            self.apply(&mine);
            self.known.change(|known| *known = Known { read, count, mine });
            let waits = is_known && others;
            if waits && !self.waits {
                self.warn(&plan);
            }
            self.waits = waits;
        }
        if !is_known {
            self.announce().await;
            return ANNOUNCE_EVERY.min(self.set.look_every());
        }
        self.set.look_every()
    }

    /// Logs that this worker waits, because it was given another number of shards.
    fn warn(&self, plan: &Assignment) {
        let others = plan.workers.values().filter(|other| other.who.count == plan.count);
        let others: BTreeSet<&str> = others.map(|other| &*other.who.worker).collect();
        let others = others.into_iter().collect::<Vec<_>>().join(", ");
        let (set, given, count) = (&*self.set.name, self.set.who.count, plan.count);
        tracing::warn!(
            set,
            "count is {given}, and the other workers of the set ({others}) have {count}; this worker owns no shard until they \
             have ended: give it {count}, or end them"
        );
    }

    /// Starts the tasks of the shards in `mine`, and asks those of others to hand over.
    fn apply(&mut self, mine: &BTreeSet<usize>) {
        for (number, task) in &self.shards {
            if !mine.contains(number) {
                task.revoked.cancel();
            }
        }
        for &number in mine.iter().filter(|number| **number < self.set.who.count) {
            if self.shards.contains_key(&number) {
                continue;
            }
            let revoked = CancellationToken::new();
            let owner = Owner {
                set: Arc::clone(&self.set),
                number,
                work: Arc::clone(&self.work),
                revoked: revoked.clone(),
                known: Arc::clone(&self.known),
                look: Arc::clone(&self.look),
                reports: self.reports.0.clone(),
            };
            let task = self.set.env().spawn_scoped(owner.own());
            self.shards.insert(number, Task { revoked, _task: task });
        }
    }

    /// Announces this worker to the leader.
    async fn announce(&mut self) {
        let (now, wall) = (self.set.env().now(), self.set.quorum.wall());
        let Some(session) = &mut self.session else { return };
        if now < session.announce_at {
            return;
        }
        session.announce_at = now + ANNOUNCE_EVERY;
        let record = announcement(&self.set.who, wall);
        match self.set.workers.write_over(&session.name, None, &record).await {
            Ok(()) => self.set.bell.ring().await,
            Err(error) => tracing::debug!(set = &*self.set.name, "this worker is not announced yet: {error}"),
        }
    }

    /// Waits until it is time to look at the plan again.
    async fn rest(&mut self, asked: BootTime, pause: Duration, rings: u64) -> Result<(), AcquireError> {
        let (env, set) = (self.set.env().clone(), Arc::clone(&self.set));
        let (at, ttl) = (env.now() + pause, self.set.ttl);
        loop {
            let align_at = self.align_at.unwrap_or(BootTime::from_nanos(u64::MAX));
            let lost = self.session.as_ref().map(|session| session.lease.lost_token().clone());
            let is_held = lost.is_some();
            tokio::select! { biased;
                Some(report) = self.reports.1.recv() => match report {
                    Report::Begun => {
                        self.align_at.get_or_insert(env.now() + ALIGN_AFTER);
                    }
                    Report::Ended(_, Err(error)) => return Err(error),
                    Report::Ended(number, Ok(())) => {
                        self.shards.remove(&number);
                        let mine = self.known.get().mine;
                        self.apply(&mine);
                    }
                },
                () = lost.unwrap_or_default().cancelled_owned(), if is_held => return Ok(()),
                () = set.bell.rung_after(rings) => return Ok(()),
                () = self.look.notified() => return Ok(()),
                () = env.sleep_until(align_at) => self.align(),
                () = env.sleep_until_poll(asked, at, at + ttl) => return Ok(()),
            }
        }
    }

    /// Extends all leases at once. From then on they are due at the same time, and share their requests.
    fn align(&mut self) {
        self.align_at = None;
        let held = self.set.held.all();
        let leases = held.iter().map(Shard::lease).chain(self.session.iter().map(|session| &session.lease));
        // The extensions go on without this future.
        let _ = join_all(leases.map(Lease::extend)).now_or_never();
    }
}
