//! The worker's side of the runs for any worker: the worker holds a session, finds the runs that the leader has assigned to
//! it, and executes them.
//!
//! # What is not guaranteed
//!
//! If a worker is paused between its last check of the session and the start of the handler, the handler starts late. So
//! the handler must pass the fencing token with its writes. A worker reads about once a second which of its runs are
//! cancelled. A run that ends before the next such read is not cancelled.
//!
//! # The search for runs
//!
//! The leader writes a row for each session that it knows ([`WorkRow`]). A worker whose session has no row announces itself.
//! While the row has new runs, the worker reads it up to twenty times a second, and later more rarely, down to once a second
//! ([`pace`]). It reads the record of a new run ahead of the time at which the run is due. At that time, it needs one
//! round of requests before the handler starts (see [`assign`](super::assign)).

use crate::{
    env::{BootTime, Env, ScopedTask},
    lease::Lease,
    ledger::{LedgerError, LedgerView},
    node::{FencingToken, copy::AssignmentId},
    scheduler::{
        job::{Job, JobDefinition, whole_of},
        policy::Placement,
        registry::{JobMap, Phase},
        run::{
            assignment::{ASK_AGAIN, Assignment, Tried, WorkerParts},
            pace,
            worklist::{Due, Worklist, job_of},
        },
        store::{Announcement, OpenRun, RunRecord, WorkRow},
    },
    session::{Sessions, announcement},
};
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, OptionFuture},
    stream::FuturesUnordered,
};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// The pause between two announcements of a worker that has no row.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(1);

/// Executes the runs that leaders assign to this worker, until `stop` is cancelled or the scheduler is being drained. Then
/// waits until the runs that it executes have ended.
pub(in crate::scheduler) async fn take_runs(with: WorkerParts, stop: CancellationToken) {
    let env = with.quorum.env().clone();
    let mut worker = Worker {
        sessions: Sessions::new(&with.quorum, &with.group, with.ttl, with.grace),
        takes: false,
        jobs: 0,
        session: None,
        beginning: None,
        list: Worklist::default(),
        runs: FuturesUnordered::new(),
        reading: None,
        announcing: None,
        read_began: env.now(),
        read_at: env.now(),
        new_at: env.now(),
        env,
        with,
    };
    worker.serve(&stop).await;
}

/// The name of a session that has begun, and its lease.
type Begun = Option<(Arc<str>, Lease)>;
/// The end of an attempt to start an assignment. It has no result if its task panicked.
type AttemptEnd = (Arc<str>, AssignmentId, Option<Tried>);

struct Worker {
    with: WorkerParts,
    env: Env,
    sessions: Sessions,
    /// True if a job of this worker is for any worker, or if this worker has handlers for jobs on the nodes.
    takes: bool,
    /// The number of changes of the jobs.
    jobs: u64,
    session: Option<Session>,
    beginning: Option<ScopedTask<Begun>>,
    list: Worklist,
    runs: FuturesUnordered<BoxFuture<'static, AttemptEnd>>,
    reading: Option<ScopedTask<Result<LedgerView, LedgerError>>>,
    announcing: Option<ScopedTask<()>>,
    /// The time at which the last read began.
    read_began: BootTime,
    /// The time of the next read, or of the next attempt to begin a session.
    read_at: BootTime,
    /// The time at which the session began, or its row had a new run.
    new_at: BootTime,
}

struct Session {
    name: Arc<str>,
    lease: Arc<Lease>,
    /// The term of the leader that founded the ledger, once the ledger was read.
    founded: Option<FencingToken>,
    /// The time of the last read that a majority answered.
    read: BootTime,
    announce_at: BootTime,
    /// The last announcement. The worker announces itself again if the leader's row has another one.
    announced: Option<Announcement>,
}

impl Worker {
    async fn serve(&mut self, stop: &CancellationToken) {
        let (mut changed, mut phase) = self.with.registry.watch();
        self.jobs_changed();
        while !stop.is_cancelled() && self.with.registry.phase() == Phase::Open {
            self.check_session();
            self.read();
            self.start();
            let due = self.list.wake(self.now()).filter(|_| self.runs.len() < self.with.max_running);
            let reads = self.next_read().map(|at| (at, self.read_latest()));
            let (began, env) = (self.read_began, self.env.clone());
            let due = due.map(|at| env.sleep_until(at));
            let reads = reads.map(|(at, latest)| env.sleep_until_poll(began, at, latest));
            let lost = self.session.as_ref().map(|session| session.lease.lost_token().clone());
            tokio::select! { biased;
                () = stop.cancelled() => break,
                Some((key, id, tried)) = self.runs.next() => self.tried(&key, id, tried),
                Some(begun) = OptionFuture::from(self.beginning.as_mut()) => {
                    self.beginning = None;
                    self.begun(begun.ok().flatten());
                }
                Some(ledger) = OptionFuture::from(self.reading.as_mut()) => {
                    self.reading = None;
                    self.on_read(ledger.ok().and_then(Result::ok));
                }
                Some(_) = OptionFuture::from(self.announcing.as_mut()) => self.announcing = None,
                Some(()) = OptionFuture::from(lost.as_ref().map(CancellationToken::cancelled)) => self.end_session(),
                _ = changed.changed() => self.jobs_changed(),
                _ = phase.changed() => {}
                Some(()) = OptionFuture::from(due) => {}
                Some(()) = OptionFuture::from(reads) => {}
            }
        }
        self.last_runs(stop).await;
    }

    /// Waits until the active runs have ended. Goes on reading which of them are cancelled. Then ends the session.
    async fn last_runs(&mut self, stop: &CancellationToken) {
        loop {
            if stop.is_cancelled() {
                self.list.interrupt("the worker is shutting down");
            }
            self.read();
            let read_at = self.read_at;
            tokio::select! { biased;
                ended = self.runs.next() => match ended {
                    Some((key, id, tried)) => self.tried(&key, id, tried),
                    None => break,
                },
                Some(ledger) = OptionFuture::from(self.reading.as_mut()) => {
                    self.reading = None;
                    self.on_read(ledger.ok().and_then(Result::ok));
                }
                // Without a session there is nothing to read.
                () = self.env.sleep_until(read_at), if self.session.is_some() && self.reading.is_none() => {}
                () = stop.cancelled(), if !stop.is_cancelled() => {}
            }
        }
        if let Some(session) = self.session.take() {
            // Other workers get the runs that are left once the session has ended, or a second after they were due.
            let _ = session.lease.end().await;
        }
    }

    fn now(&self) -> (BootTime, crate::env::WallTime) {
        (self.env.now(), self.with.quorum.wall())
    }

    fn jobs_changed(&mut self) {
        let jobs = self.with.registry.jobs();
        let has_handlers = !self.with.registry.handlers().functions.is_empty();
        self.takes = has_handlers || jobs.values().any(|job| job.rules.placement.needs_workers());
        self.jobs += 1;
        self.read_at = self.env.now();
    }

    /// Begins a session if one is needed, and ends it if it must not go on.
    fn check_session(&mut self) {
        let now = self.env.now();
        match &self.session {
            Some(session) => {
                let is_needed = self.takes || !self.runs.is_empty();
                let is_cut_off = session.read + self.with.ttl < now;
                if !is_needed || is_cut_off || !session.lease.is_valid() {
                    self.end_session();
                }
            }
            None if self.takes && self.beginning.is_none() && self.read_at <= now => {
                let sessions = self.sessions.clone();
                self.beginning = Some(self.env.spawn_scoped(async move { sessions.begin().await }));
            }
            None => {}
        }
    }

    fn begun(&mut self, begun: Begun) {
        let now = self.env.now();
        match begun {
            Some((name, lease)) => {
                let lease = Arc::new(lease);
                let session =
                    Session { name, lease, founded: None, read: now, announce_at: now, announced: None };
                (self.session, self.read_at, self.new_at) = (Some(session), now, now);
                self.announce();
            }
            None => self.read_at = now + pace::MOST,
        }
    }

    /// Ends the session, and with it what the worker executes: another worker may get the runs.
    fn end_session(&mut self) {
        if let Some(session) = self.session.take() {
            session.lease.post_release(None);
        }
        self.list.clear();
        self.reading = None;
        self.read_at = self.env.now();
    }

    fn next_read(&self) -> Option<BootTime> {
        let waits = if self.session.is_some() {
            self.reading.is_none()
        } else {
            self.takes && self.beginning.is_none()
        };
        waits.then_some(self.read_at)
    }

    /// Returns the latest time of the next read if it is known that nothing has changed on the nodes.
    fn read_latest(&self) -> BootTime {
        self.read_at.max(self.read_began + self.with.ttl / 2)
    }

    /// Reads the row of this worker, and the records that it needs, if it is time.
    fn read(&mut self) {
        let Some(session) = &self.session else { return };
        let now = self.env.now();
        if self.reading.is_some() || now < self.read_at {
            return;
        }
        self.read_began = now;
        let mut keys = self.list.unread();
        keys.push(WorkRow::key(&session.name));
        let ledger = self.with.ledger.clone();
        self.reading =
            Some(self.env.spawn_scoped(async move { LedgerView::read_keys(&ledger, &keys).await }));
    }

    fn on_read(&mut self, ledger: Option<LedgerView>) {
        let now = self.env.now();
        let (Some(session), Some(ledger)) = (&mut self.session, ledger) else {
            self.read_at = now + ASK_AGAIN;
            return;
        };
        session.read = self.read_began;
        // The nodes have lost the ledger in which the runs were assigned. A new one may assign them again.
        if *session.founded.get_or_insert(ledger.founded) != ledger.founded {
            return self.end_session();
        }
        let row = ledger.records.get(&WorkRow::key(&session.name)).and_then(|row| WorkRow::parse(row));
        let is_known = row.as_ref().is_some_and(|row| Some(&row.who) == session.announced.as_ref());
        let is_new = row.is_some_and(|row| self.list.update(&row, now));
        for (key, value) in &ledger.records {
            if let Ok(RunRecord::Open(open)) = RunRecord::parse(value) {
                self.list.read(key, open);
            }
        }
        if is_new {
            self.new_at = now;
        }
        self.read_at = now
            + match (is_new, self.list.unread().is_empty()) {
                (true, _) => Duration::ZERO,
                (false, true) => pace::pause(self.new_at.until(now)),
                (false, false) => pace::LEAST,
            };
        if !is_known {
            self.announce();
        }
    }

    /// Announces this worker to the leader, at most once a second.
    fn announce(&mut self) {
        let (now, wall) = self.now();
        let Some(session) = &mut self.session else { return };
        if self.announcing.is_some() || now < session.announce_at {
            return;
        }
        session.announce_at = now + ANNOUNCE_EVERY;
        let who = Announcement {
            worker: Arc::clone(&self.with.quorum.config().worker),
            room: self.with.max_running,
            labels: self.with.labels.clone(),
            jobs: self.jobs,
            handlers: self.with.registry.handlers().names(),
        };
        session.announced = Some(who.clone());
        let (part, name) = (self.with.ledger.part(WorkRow::PART), Arc::clone(&session.name));
        let record = announcement(&who, wall);
        self.announcing = Some(self.env.spawn_scoped(async move {
            if let Err(error) = part.write_over(&name, None, &record).await {
                tracing::debug!(session = &*name, "this worker is not announced yet: {error}");
            }
        }));
    }

    /// Notes the end of a task. `tried` is `None` if it panicked.
    fn tried(&mut self, key: &str, id: AssignmentId, tried: Option<Tried>) {
        match tried {
            Some(tried) => self.list.tried(key, id, &tried, self.env.now()),
            // No end of the run is known. The leader decides on the run once the session has ended.
            None => self.end_session(),
        }
    }

    /// Starts the assignments that are due.
    fn start(&mut self) {
        let Some(session) = &self.session else { return };
        let (jobs, now) = (self.with.registry.jobs(), self.now());
        let room = self.with.max_running.saturating_sub(self.runs.len());
        for Due { key, id, open, tried, cancel } in self.list.due(&jobs, room, now) {
            let job = match &open.job {
                Some(stored) => self.stored_job(&key, stored, &open),
                None => job_of(&key).and_then(|job| self.own_job(&jobs, job)),
            };
            let (session, with) = (Arc::clone(&session.lease), self.with.clone());
            let assignment =
                Assignment { key: Arc::clone(&key), id, open, tried, job, session, with, cancel };
            let running = self.env.spawn_scoped(assignment.run());
            self.runs.push(running.map(move |tried| (key, id, tried.ok())).boxed());
        }
    }

    /// Returns a job of this process, or this worker's part of one that runs on every worker.
    fn own_job(&self, jobs: &JobMap, name: &str) -> Option<Arc<Job>> {
        if let Some(job) = jobs.get(name) {
            return Some(Arc::clone(job));
        }
        let job = jobs.get(whole_of(name)?).filter(|job| job.rules.placement == Placement::EveryWorker)?;
        let part = job.part(&self.with.quorum.config().worker);
        (*part.name == *name).then(|| Arc::new(part))
    }

    /// Returns the job of a run that is stored on the nodes. Returns `None` if this worker cannot run it.
    fn stored_job(&self, key: &str, stored: &JobDefinition, open: &OpenRun) -> Option<Arc<Job>> {
        match stored.job() {
            Ok(job) => {
                let job = self.with.registry.handlers().resolve(Job { stored: Some(open.at), ..job });
                job.handler().is_some().then(|| Arc::new(job))
            }
            Err(why) => {
                tracing::warn!(run = key, "given back to the leader: {why}");
                None
            }
        }
    }
}
