//! The task that carries out the decisions of the [`Dispatcher`] in one term.

use super::{
    dispatcher::{Action, Dispatcher, Now},
    roster::{LiveWorker, Roster},
};
use crate::{
    election::Term,
    env::{BootTime, Env, ScopedTask},
    ledger::{Answered, Ledger, LedgerError, Registered, TermLedger},
    measure::JobsMeasures,
    node::copy::{AssignmentId, Stamp, end_key},
    scheduler::{
        job::{Job, RunOutcome},
        store::{
            Announcement, AssignedTo, OpenRun, RunRecord, WorkEnd, WorkResult, WorkRow,
            snapshot::LedgerSnapshot,
        },
    },
    session::{Seen, Sessions, announced},
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot, watch};

/// The pause between two looks for new workers and for sessions that have ended.
const ROLL_CALL_EVERY: Duration = Duration::from_secs(1);
/// The leader looks at least so often, even if it is known that nothing has changed on the nodes.
const ROLL_CALL_AT_LEAST: Duration = Duration::from_secs(60);
/// The pause between two removals of old announcements.
const FORGET_EVERY: Duration = Duration::from_secs(3600);

/// A handle to the task.
#[derive(Debug)]
pub(in crate::scheduler) struct OpenRuns {
    orders: mpsc::UnboundedSender<Order>,
    workers: watch::Receiver<Option<Vec<LiveWorker>>>,
    _task: ScopedTask<()>,
}

/// The end of a run that workers executed, or that no worker started.
#[derive(Debug)]
pub(in crate::scheduler) struct OpenEnd {
    /// The record of the run as it was stored last.
    pub(in crate::scheduler) open: OpenRun,
    pub(in crate::scheduler) end: RunOutcome,
    pub(in crate::scheduler) result: WorkResult,
}

#[derive(Debug)]
enum Order {
    Open {
        key: Arc<str>,
        job: Arc<Job>,
        open: Box<OpenRun>,
        reopens: bool,
        stored: bool,
        end: oneshot::Sender<OpenEnd>,
    },
    Cancel {
        key: Arc<str>,
        why: Arc<str>,
    },
    Withdraw {
        key: Arc<str>,
        end: RunOutcome,
        why: Arc<str>,
    },
    Leave {
        key: Arc<str>,
    },
    WorkersNeeded(bool),
}

impl OpenRuns {
    /// Starts the task of a term. The ledger has the rows and the open runs of `sealed`.
    pub(in crate::scheduler) fn start(
        term: &Term,
        (ledger, led): (&Ledger, &TermLedger),
        sealed: &LedgerSnapshot,
        (sessions, measures): (Sessions, JobsMeasures),
    ) -> Self {
        let rows = sealed.rows(WorkRow::prefix()).filter_map(|(key, row)| {
            let session: Arc<str> = key.strip_prefix(WorkRow::prefix())?.into();
            let mut row = WorkRow::parse(row)?;
            row.runs.retain(|key, run| {
                sealed.assigned_to(key).is_some_and(|to| to.session == session && to.id() == run.id())
            });
            Some((session, row))
        });
        let (orders, inbox) = mpsc::unbounded_channel();
        let roster = Roster::new(rows, sessions.ttl());
        let me = &term.quorum().config().worker;
        let now = term.env().now();
        let (live, workers) = watch::channel(None);
        let task = AssignTask {
            env: term.env().clone(),
            term: term.clone(),
            ledger: ledger.clone(),
            led: led.clone(),
            sessions,
            measures,
            dispatcher: Dispatcher::new(me, led.term(), roster),
            owners: BTreeMap::new(),
            pending: FuturesUnordered::new(),
            live,
            noted: None,
            workers_needed: false,
            is_calling: false,
            called: now,
            call_at: now,
            forget_at: now + FORGET_EVERY,
        };
        Self { orders, workers, _task: term.spawn_scoped(task.serve(inbox)) }
    }

    /// Returns the workers that live. `None` until the leader has looked for them.
    pub(in crate::scheduler) fn workers(&self) -> watch::Receiver<Option<Vec<LiveWorker>>> {
        self.workers.clone()
    }

    /// Gives a run to the workers. `stored` is true if the ledger has the record `open` already. Returns the end of the run.
    /// Returns an error if the run is left to the next leader.
    pub(in crate::scheduler) fn open(
        &self,
        key: &Arc<str>,
        (job, open): (&Arc<Job>, OpenRun),
        reopens: bool,
        stored: bool,
    ) -> oneshot::Receiver<OpenEnd> {
        let (end, receiver) = oneshot::channel();
        let (key, job, open) = (Arc::clone(key), Arc::clone(job), Box::new(open));
        self.order(Order::Open { key, job, open, reopens, stored, end });
        receiver
    }

    /// Cancels a run.
    pub(in crate::scheduler) fn cancel(&self, key: &Arc<str>, why: &str) {
        self.order(Order::Cancel { key: Arc::clone(key), why: why.into() });
    }

    /// Ends a run with `end`, unless a worker has started it.
    pub(in crate::scheduler) fn withdraw(&self, key: &Arc<str>, end: RunOutcome, why: &str) {
        self.order(Order::Withdraw { key: Arc::clone(key), end, why: why.into() });
    }

    /// Leaves a run to the next leader that has its job.
    pub(in crate::scheduler) fn leave(&self, key: &Arc<str>) {
        self.order(Order::Leave { key: Arc::clone(key) });
    }

    /// Says whether the leader has jobs for any worker. If not, and without open runs, it looks for no workers.
    pub(in crate::scheduler) fn need_workers(&self, needed: bool) {
        self.order(Order::WorkersNeeded(needed));
    }

    fn order(&self, order: Order) {
        // The send fails only if the task has ended, and then the term has ended too.
        let _ = self.orders.send(order);
    }
}

struct AssignTask {
    env: Env,
    term: Term,
    ledger: Ledger,
    led: TermLedger,
    sessions: Sessions,
    measures: JobsMeasures,
    dispatcher: Dispatcher,
    owners: BTreeMap<Arc<str>, oneshot::Sender<OpenEnd>>,
    pending: FuturesUnordered<BoxFuture<'static, Event>>,
    live: watch::Sender<Option<Vec<LiveWorker>>>,
    /// The revision of the workers in `live`.
    noted: Option<u64>,
    workers_needed: bool,
    is_calling: bool,
    /// The times at which the last roll call began and the next one is due.
    called: BootTime,
    call_at: BootTime,
    forget_at: BootTime,
}

/// An answer of the nodes.
enum Event {
    Stored { key: Arc<str>, written: bool },
    Voided { key: Arc<str>, id: AssignmentId, answers: Registered },
    Fenced { session: Arc<str>, ended: bool },
    Looked(Vec<(Arc<str>, AssignmentId, Option<Option<WorkEnd>>)>),
    Called { announced: Vec<(Arc<str>, Announcement)>, seen: Vec<(Arc<str>, Seen)>, is_answered: bool },
}

impl AssignTask {
    async fn serve(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let step_down = self.term.step_down_token().clone();
        while !step_down.is_cancelled() && self.term.is_valid() {
            let now = self.now();
            let mut actions = Vec::new();
            self.dispatcher.step(now, &mut actions);
            let (of_handler, of_labels) = self.dispatcher.without_worker();
            self.measures.without_worker(of_handler, of_labels);
            self.carry_out(actions);
            self.look(now);
            self.call_roll(now.0);
            let wake = self.dispatcher.wake(now);
            let calls = !self.is_calling && self.calls();
            let (called, call_at) = (self.called, self.call_at);
            let wake = wake.unwrap_or(now.0 + ROLL_CALL_AT_LEAST);
            tokio::select! { biased;
                () = step_down.cancelled() => return,
                order = orders.recv() => match order {
                    Some(order) => {
                        self.take(order);
                        while let Ok(order) = orders.try_recv() {
                            self.take(order);
                        }
                    }
                    None => return,
                },
                Some(event) = self.pending.next() => {
                    self.note(event);
                    while let Some(Some(event)) = self.pending.next().now_or_never() {
                        self.note(event);
                    }
                }
                () = self.env.sleep_until(wake) => {}
                () = self.env.sleep_until_poll(called, call_at, called + ROLL_CALL_AT_LEAST), if calls => {
                    self.call_at = self.env.now();
                }
            }
        }
    }

    fn now(&self) -> Now {
        (self.env.now(), self.term.quorum().wall())
    }

    /// Returns whether the leader needs to know the workers.
    fn calls(&self) -> bool {
        self.workers_needed || !self.dispatcher.is_idle()
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Open { key, job, open, reopens, stored, end } => {
                self.dispatcher.add(&key, (job, *open), reopens, stored, self.env.now());
                self.owners.insert(key, end);
            }
            Order::Cancel { key, why } => self.dispatcher.cancel(&key, &why),
            Order::Withdraw { key, end, why } => self.dispatcher.withdraw(&key, end, &why),
            Order::Leave { key } => {
                self.dispatcher.leave(&key);
                self.owners.remove(&key);
            }
            Order::WorkersNeeded(needed) => self.workers_needed = needed,
        }
    }

    fn note(&mut self, event: Event) {
        let now = self.now();
        let mut actions = Vec::new();
        let is_call = matches!(event, Event::Called { is_answered: true, .. });
        match event {
            Event::Stored { key, written: true } => self.dispatcher.stored(&key, now.0),
            // The term has ended. The next leader decides on the run.
            Event::Stored { key, written: false } => {
                self.dispatcher.leave(&key);
                self.owners.remove(&key);
            }
            Event::Voided { key, id, answers } => self.dispatcher.voided(&key, id, answers, now.0),
            Event::Fenced { session, ended } => self.dispatcher.fenced(&session, ended),
            Event::Looked(looks) => {
                for (key, id, end) in looks {
                    self.dispatcher.looked(&key, id, end, now, &mut actions);
                }
            }
            Event::Called { announced, seen, .. } => {
                self.is_calling = false;
                for (session, who) in announced {
                    self.dispatcher.announce(&session, who);
                }
                for (session, seen) in seen {
                    self.dispatcher.see(&session, seen, &mut actions);
                }
            }
        }
        self.carry_out(actions);
        self.note_workers(is_call);
    }

    /// Notes the workers that live, once the leader has looked for them.
    fn note_workers(&mut self, is_known: bool) {
        let (revision, live) = self.dispatcher.live();
        if self.noted == Some(revision) || !is_known && self.noted.is_none() {
            return;
        }
        let live = live();
        self.noted = Some(revision);
        self.measures.workers(&LiveWorker::by_label(&live));
        self.live.send_replace(Some(live));
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Store { key, open } => self.store(key, open),
                Action::Void { key, id } => {
                    let led = self.led.clone();
                    self.pending.push(
                        async move { Event::Voided { answers: led.void(&key, id).await, key, id } }.boxed(),
                    );
                }
                Action::Row { key, row } => self.led.put(&key, row.map(|row| row.to_value())),
                Action::Fence { session } => {
                    let sessions = self.sessions.clone();
                    self.pending.push(
                        async move { Event::Fenced { ended: sessions.end(&session).await, session } }.boxed(),
                    );
                }
                Action::End { key, open, end, result } => {
                    if let Some(owner) = self.owners.remove(&key) {
                        // The owner is gone only if the term has ended.
                        let _ = owner.send(OpenEnd { open, end, result });
                    }
                }
                Action::Reopen { job, key, generation, why } => {
                    tracing::warn!(job = &*job, run = &*key, generation, "opened again: {why}");
                }
            }
        }
    }

    fn store(&mut self, key: Arc<str>, open: OpenRun) {
        let id = open.to.as_ref().map(AssignedTo::id);
        let value = RunRecord::Open(open).to_value();
        let written = match id {
            Some(id) => self.led.assign(&key, value, id).boxed(),
            None => self.led.write(&key, value).boxed(),
        };
        self.pending.push(
            written
                .map(|written: Result<(), LedgerError>| Event::Stored { key, written: written.is_ok() })
                .boxed(),
        );
    }

    /// Looks for the ends of the runs that may have ended.
    fn look(&mut self, now: Now) {
        let looks = self.dispatcher.looks(now);
        if looks.is_empty() {
            return;
        }
        let ledger = self.ledger.clone();
        let look = async move {
            let keys: Vec<Arc<str>> = looks.iter().map(|(key, _)| end_key(key)).collect();
            let answers = ledger.read_keys(&keys).await.ok();
            let ends = looks.into_iter().zip(keys).map(|((key, id), end_key)| {
                let end = answers.as_ref().map(|answers| end_of(answers, &end_key, id));
                (key, id, end)
            });
            Event::Looked(ends.collect())
        };
        self.pending.push(look.boxed());
    }

    /// Looks for workers that have announced themselves, and for sessions that have ended.
    fn call_roll(&mut self, now: BootTime) {
        if self.is_calling || !self.calls() || now < self.call_at {
            return;
        }
        (self.is_calling, self.called, self.call_at) = (true, now, now + ROLL_CALL_EVERY);
        let (known, sessions, part) =
            (self.dispatcher.sessions(), self.sessions.clone(), self.ledger.part(WorkRow::PART));
        let forgets = now >= self.forget_at;
        if forgets {
            self.forget_at = now + FORGET_EVERY;
        }
        let call = async move {
            let read = part.read().await;
            let is_read = read.is_ok();
            let announced = announced::<Announcement>(&read.unwrap_or_default());
            let mut all = known;
            all.extend(announced.iter().map(|(session, _)| Arc::clone(session)));
            all.sort_unstable();
            all.dedup();
            let seen = sessions.look_at(&all).await;
            if forgets {
                let below = (part.wall() - FORGET_EVERY).as_micros();
                if let Err(error) = part.prune(below).await {
                    tracing::debug!("old announcements of workers are not removed yet: {error}");
                }
            }
            let is_answered = is_read && (all.is_empty() || !seen.is_empty());
            Event::Called { announced, seen, is_answered }
        };
        self.pending.push(call.boxed());
    }
}

/// Returns the end of the assignment `id` that a node has.
fn end_of(answers: &[Answered], key: &str, id: AssignmentId) -> Option<WorkEnd> {
    let records = answers.iter().filter_map(|answer| answer.record(key));
    let of_id = records.filter(|record| Stamp::of(record) == id);
    of_id.filter_map(|record| WorkEnd::parse(&record.value)).next()
}
