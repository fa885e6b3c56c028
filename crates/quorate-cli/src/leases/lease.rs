use super::{
    attendance::{Attendance, Change, End, Event, Phase},
    id::LeaseId,
    measures::Measures,
    seats::Seat,
};
use futures_util::future::{join_all, select_all};
use quorate::{
    FencingToken,
    claim::Claim,
    env::{BootTime, Env, WallTime},
    lease::{Lease, ReadLease},
    quorum::NoMajority,
};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// One lock or message that a lease holds.
#[derive(Debug)]
pub(crate) enum Part {
    /// A lock, for writing.
    Lock(Lease),
    /// A lock, for reading.
    Reader(ReadLease),
    /// A message.
    Message(Claim),
}

/// The kind of a lease, for answers and for operators. It does not change while the lease is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Locks for writing.
    Exclusive,
    /// A lock for reading.
    Shared,
    /// Messages of this set.
    Messages(Arc<str>),
}

/// A lease that is held for a client.
pub(crate) struct Held {
    pub(crate) id: LeaseId,
    pub(crate) client: Arc<str>,
    pub(crate) kind: Kind,
    pub(crate) since: WallTime,
    pub(crate) ttl: Duration,
    began: BootTime,
    env: Env,
    attendance: watch::Sender<Attendance>,
    parts: Mutex<Vec<Part>>,
    /// The place within the limits, until the lease has ended.
    seat: Mutex<Option<Seat>>,
    measures: Arc<Measures>,
}

/// A lease at one moment.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) phase: Phase,
    /// The names with their fencing tokens; a reader's lease has none.
    pub(crate) names: Vec<(Arc<str>, Option<FencingToken>)>,
    /// The time for which the client may use the lease if it hears nothing more.
    pub(crate) remaining: Duration,
    pub(crate) keep: Duration,
    pub(crate) age: Duration,
    /// For how long the client has given no sign.
    pub(crate) quiet: Duration,
}

/// A request of the client about a lease. While it exists, it is a sign, and its end is one.
pub(crate) struct Sign(Arc<Held>);

/// The parameters of a new lease.
pub(super) struct New {
    pub(super) id: LeaseId,
    pub(super) client: Arc<str>,
    pub(super) kind: Kind,
    pub(super) keep: Duration,
    pub(super) ttl: Duration,
    pub(super) parts: Vec<Part>,
    pub(super) seat: Seat,
    pub(super) measures: Arc<Measures>,
}

impl Part {
    fn name(&self) -> Arc<str> {
        match self {
            Self::Lock(lease) => lease.resource().key().into(),
            Self::Reader(lease) => lease.resource().key().into(),
            Self::Message(claim) => Arc::clone(claim.id()),
        }
    }

    fn token(&self) -> Option<FencingToken> {
        match self {
            Self::Lock(lease) => Some(lease.unchecked_token()),
            Self::Reader(_) => None,
            Self::Message(claim) => Some(claim.unchecked_token()),
        }
    }

    fn remaining(&self) -> Duration {
        match self {
            Self::Lock(lease) => lease.remaining(),
            Self::Reader(lease) => lease.remaining(),
            Self::Message(claim) => claim.handle().remaining(),
        }
    }

    fn lost(&self) -> CancellationToken {
        match self {
            Self::Lock(lease) => lease.lost_token().clone(),
            Self::Reader(lease) => lease.lost_token().clone(),
            Self::Message(claim) => claim.handle().lost_token().clone(),
        }
    }

    fn step_down(&self) -> CancellationToken {
        match self {
            Self::Lock(lease) => lease.step_down_token().clone(),
            Self::Reader(lease) => lease.step_down_token().clone(),
            Self::Message(claim) => claim.handle().step_down_token().clone(),
        }
    }
}

impl Held {
    pub(super) fn new(env: &Env, new: New) -> Arc<Self> {
        let now = env.now();
        new.measures.began();
        Arc::new(Self {
            id: new.id,
            client: new.client,
            kind: new.kind,
            since: env.wall(),
            ttl: new.ttl,
            began: now,
            env: env.clone(),
            attendance: watch::Sender::new(Attendance::new(new.keep, new.ttl, now)),
            parts: Mutex::new(new.parts),
            seat: Mutex::new(Some(new.seat)),
            measures: new.measures,
        })
    }

    /// Begins a request of the client.
    pub(crate) fn sign(self: &Arc<Self>) -> Sign {
        drop(self.apply(Event::Arrives));
        Sign(Arc::clone(self))
    }

    /// Returns the lease at this moment.
    pub(crate) fn view(&self) -> View {
        let attendance = self.attendance.borrow().clone();
        let parts = self.parts();
        let valid = parts.iter().map(Part::remaining).min().unwrap_or_default();
        let names = parts.iter().map(|part| (part.name(), part.token())).collect();
        drop(parts);
        let now = self.env.now();
        View {
            phase: attendance.phase(),
            names,
            remaining: if attendance.is_ended() { Duration::ZERO } else { valid.min(attendance.kept(now)) },
            keep: attendance.keep(),
            age: self.began.until(now),
            quiet: attendance.quiet(now),
        }
    }

    /// Returns whether it holds the lock of this name.
    pub(super) fn has_lock(&self, name: &str) -> bool {
        self.parts().iter().any(|part| !matches!(part, Part::Message(_)) && *part.name() == *name)
    }

    pub(crate) fn phase(&self) -> Phase {
        self.attendance.borrow().phase()
    }

    /// Waits until the phase is another one than `known`.
    ///
    /// # Cancel safety
    /// Safe: the call only waits.
    pub(crate) async fn leaves(&self, known: Phase) {
        // The sender is `self`, so the wait never fails.
        let _ = self.attendance.subscribe().wait_for(|attendance| attendance.phase() != known).await;
    }

    /// Ends the lease at the client's wish. Waits until a majority of the nodes has confirmed it, and returns `None` if the
    /// lease had ended before.
    ///
    /// # Cancel safety
    /// Safe: the lease ends at the first poll, and what it holds is released even if the future is dropped.
    pub(crate) async fn release(&self) -> Option<Result<(), NoMajority>> {
        let parts = self.end(End::Released)?;
        let released = parts.into_iter().map(async |part| match part {
            Part::Lock(lease) => lease.release().await,
            Part::Reader(lease) => lease.release().await,
            Part::Message(claim) => {
                // Another worker that holds the message by now, or has completed it, is none of this client's business.
                let _ = claim.abandon().await;
                Ok(())
            }
        });
        Some(join_all(released).await.into_iter().collect())
    }

    /// Takes the claims of these messages out of the lease, or all of them. Names of other messages are returned.
    pub(crate) fn take_messages(&self, names: &[String]) -> (Vec<Claim>, Vec<String>) {
        let mut parts = self.parts();
        let mut unknown = Vec::new();
        let mut taken = Vec::new();
        for name in names {
            let is_named = |part: &Part| matches!(part, Part::Message(claim) if **claim.id() == **name);
            match parts.iter().position(is_named).map(|at| parts.swap_remove(at)) {
                Some(Part::Message(claim)) => taken.push(claim),
                _ => unknown.push(name.clone()),
            }
        }
        drop(parts);
        // The task of the lease ends it if no message is left.
        self.attendance.send_modify(|_| {});
        (taken, unknown)
    }

    /// Applies an event. Returns what the lease holds if the event ended it.
    fn apply(&self, event: Event) -> Option<Vec<Part>> {
        let mut change = Change::Nothing;
        let now = self.env.now();
        self.attendance.send_if_modified(|attendance| {
            change = attendance.apply(event, now);
            change != Change::Nothing
        });
        (change == Change::Ended).then(|| {
            let end = match self.phase() {
                Phase::Ended(end) => end,
                Phase::Held | Phase::StepDown => End::Lost,
            };
            self.measures.ended(end);
            drop(self.seat.lock().unwrap_or_else(PoisonError::into_inner).take());
            std::mem::take(&mut *self.parts())
        })
    }

    fn end(&self, end: End) -> Option<Vec<Part>> {
        self.apply(Event::Ends(end))
    }

    fn parts(&self) -> MutexGuard<'_, Vec<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_any(&self, signal: fn(&Part) -> CancellationToken) -> bool {
        self.parts().iter().any(|part| signal(part).is_cancelled())
    }

    /// Waits until the signal of one of the parts fires. The parts are those of the moment of the call.
    async fn any(&self, signal: fn(&Part) -> CancellationToken) {
        let signals: Vec<_> =
            self.parts().iter().map(|part| Box::pin(signal(part).cancelled_owned())).collect();
        if signals.is_empty() {
            std::future::pending::<()>().await;
        }
        select_all(signals).await;
    }

    /// Watches the lease until it has ended: the nodes, the client's signs, and the stop of the daemon.
    pub(super) async fn watch(&self, stopping: &CancellationToken) {
        let mut changes = self.attendance.subscribe();
        let mut is_stopping = false;
        loop {
            let (phase, due) = {
                let attendance = changes.borrow_and_update();
                (attendance.phase(), attendance.due())
            };
            if self.parts().is_empty() {
                drop(self.end(End::Released));
            }
            if matches!(phase, Phase::Ended(_)) {
                return;
            }
            let tick = async {
                match due {
                    Some(at) => self.env.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! { biased;
                () = self.any(Part::lost) => self.is_any(Part::lost).then_some(Event::Ends(End::Lost)),
                () = self.any(Part::step_down), if phase == Phase::Held => {
                    self.is_any(Part::step_down).then_some(Event::StepDown)
                }
                () = stopping.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    Some(Event::Stops)
                }
                _ = changes.changed() => None,
                () = tick => Some(Event::Tick),
            };
            if let Some(event) = event {
                // Dropping what an ended lease held releases it.
                drop(self.apply(event));
            }
        }
    }
}

impl Sign {
    /// Returns the lease.
    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.0
    }
}

impl Drop for Sign {
    fn drop(&mut self) {
        drop(self.0.apply(Event::Leaves));
    }
}

impl fmt::Debug for Held {
    /// The id is a secret of the client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("client", &self.client).field("kind", &self.kind).finish_non_exhaustive()
    }
}
