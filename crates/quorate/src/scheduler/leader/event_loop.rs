//! The shell around the plans: seals, sleeps, starts runs, and ends with the term.

use crate::scheduler::{
    control::IncomingRequest,
    leader::requests::Accepted,
    plan::{
        job_entry::{JobEntry, Known, Retired},
        job_plan::{ActiveRun, Looked, PendingRun, held, kept, low_water, window},
        requests::OpenRequest,
    },
    run::{
        cancel::Withdraw,
        on_leader::{Began, Run, RunEnd},
        opened::Opened,
    },
    store::{
        history_writer::{Ends, HistoryWriter},
        open_list::OpenList,
        row_writer::{RowWriter, highest},
        run_writer::RunWriter,
        snapshot::LedgerSnapshot,
    },
};
use crate::{
    claim::Slots,
    election::Term,
    env::{BootTime, Env, ScopedTask, WallTime},
    ledger::{Ledger, LedgerError},
    scheduler::{
        Job, JobResponse, RequestId, RunCause,
        registry::{JobRegistry, Phase},
        run::Cancel,
        store::retention::Retention,
    },
};
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, OptionFuture},
    stream::FuturesUnordered,
};
use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::sync::mpsc;

/// The wall clock may step: it is looked at again at least this often.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(500);
/// Between attempts to seal without a majority.
const SEAL_AGAIN: Duration = Duration::from_millis(50);
/// Between prunings of the ledger.
pub(in crate::scheduler) const PRUNE_EVERY: Duration = Duration::from_secs(15);
/// Between the marks that say up to when all ticks have been decided on.
const MARK_EVERY: Duration = Duration::from_secs(10);
/// The longest that the end of the grace is kept for writing what has ended.
const FLUSH: Duration = Duration::from_millis(100);
/// So many jobs are looked at before other tasks have their turn: the lease must be extended.
const AT_ONCE: usize = 100;
/// The key of that mark.
const LOOKED: &str = "looked";

/// What a leader is given.
pub(in crate::scheduler) struct Leading {
    pub(in crate::scheduler) registry: JobRegistry,
    pub(in crate::scheduler) ledger: Ledger,
    pub(in crate::scheduler) term: Term,
    /// How long a crashed leader blocks the others; runs are opened to workers two of these ahead.
    pub(in crate::scheduler) ttl: Duration,
    /// How many runs there may be at once.
    pub(in crate::scheduler) max_running: usize,
    /// How long a run that is cancelled has to end.
    pub(in crate::scheduler) grace: Duration,
}

/// Runs the registry's jobs under the term until it is told to stop and every run has ended.
pub(in crate::scheduler) async fn lead(leading: Leading, asked: mpsc::Receiver<IncomingRequest>) {
    let Leading { registry, ledger, term, .. } = &leading;
    // However this ends, also where it is dropped with the lease: who waits for the draining waits for no more.
    let Some(_lead) = registry.lead() else { return };
    let sealed = tokio::select! { biased;
        // Nothing has been started yet, and nothing will be.
        () = registry.reached(Phase::Draining) => return,
        sealed = seal(ledger, term, term.env()) => sealed,
    };
    let Some(sealed) = sealed else { return };
    let (rows, mut writing) = RowWriter::start(ledger, term, &sealed);
    let ends = registry.jobs().values().filter_map(|job| Ends::find(job, &sealed)).collect();
    let (history_writer, mut noting) = HistoryWriter::start(ledger, term, registry.counts().clone(), ends);
    let mut leader = Leader::new(&leading, sealed, rows, history_writer);
    leader.change();
    leader.serve(asked).await;
    // What has ended is written before the lease is let go of, if a majority answers in time.
    drop(leader);
    let written = async { tokio::join!(&mut writing, &mut noting) };
    if let Some(until) = term.work_until() {
        term.env().before(until, written).await;
    }
}

/// Seals the ledger; `None` if the term is told to stop before it could.
async fn seal(ledger: &Ledger, term: &Term, env: &Env) -> Option<LedgerSnapshot> {
    let config = term.quorum().config();
    let mut told = false;
    loop {
        let sealed = tokio::select! { biased;
            () = term.step_down_token().cancelled() => return None,
            sealed = ledger.seal(term.token()) => sealed,
        };
        match sealed {
            Ok(answers) => {
                let quorum = term.quorum().pool().majority();
                return Some(LedgerSnapshot::take(answers, quorum, config.max_clock_offset).await);
            }
            // A later leader has been here. If this term is over, it will hear of it; if it is not, tokens went
            // backwards, and only a new term can help.
            Err(error @ LedgerError::Superseded { .. }) => {
                tracing::error!(group = &**term.group(), term = term.token().get(), "resigning: {error}");
                term.resign();
                return None;
            }
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(group = &**term.group(), "cannot seal the ledger yet: {error}");
                }
                env.sleep(SEAL_AGAIN).await;
            }
        }
    }
}

pub(in crate::scheduler) struct Leader<'a> {
    pub(in crate::scheduler) leading: &'a Leading,
    pub(in crate::scheduler) env: &'a Env,
    pub(in crate::scheduler) term: &'a Term,
    pub(in crate::scheduler) sealed: LedgerSnapshot,
    pub(in crate::scheduler) rows: RowWriter,
    pub(in crate::scheduler) history_writer: HistoryWriter,
    pub(in crate::scheduler) writer: RunWriter,
    slots: Slots,
    list: OpenList,
    /// How many runs this worker executes.
    executing: usize,
    pub(in crate::scheduler) entries: Vec<Option<JobEntry>>,
    /// Which places of it are free.
    pub(in crate::scheduler) vacant: Vec<usize>,
    pub(in crate::scheduler) names: BTreeMap<Arc<str>, usize>,
    /// Jobs that are to be taken over, or as they are from now on.
    pub(in crate::scheduler) to_take: VecDeque<Arc<Job>>,
    /// The jobs that were removed in this term: what the seal found of them is no longer so.
    pub(in crate::scheduler) retired: BTreeMap<Arc<str>, Retired>,
    /// When a job is to be looked at: the heart of it, for the cost grows with what is due only.
    pub(in crate::scheduler) agenda: BTreeSet<(WallTime, usize)>,
    /// What may start, in order.
    pub(in crate::scheduler) line: BTreeSet<crate::scheduler::plan::job_entry::ReadyOrder>,
    pub(in crate::scheduler) asks: BTreeMap<RequestId, OpenRequest>,
    pub(in crate::scheduler) answers: BTreeMap<RequestId, JobResponse>,
    runs: FuturesUnordered<BoxFuture<'static, Completion>>,
    /// What each run has come to so far.
    pub(in crate::scheduler) began: BTreeMap<Arc<str>, (usize, WallTime, RunCause, Began)>,
    pub(in crate::scheduler) registering: FuturesUnordered<BoxFuture<'static, usize>>,
    pub(in crate::scheduler) accepting: FuturesUnordered<BoxFuture<'static, Accepted>>,
    pub(in crate::scheduler) looked: Option<WallTime>,
    /// Up to when this one has decided on all ticks.
    decided: Option<WallTime>,
    pub(in crate::scheduler) known: Known,
    /// It has been said that the ledger forgets what has not ended.
    told_held: bool,
    prune_at: BootTime,
    mark_at: BootTime,
    pruning: Option<ScopedTask<Option<WallTime>>>,
    /// What tells which jobs have ended that this leader does not have, and when next.
    pub(in crate::scheduler) retention: Retention,
    pub(in crate::scheduler) ending: Option<ScopedTask<Vec<Arc<str>>>>,
    pub(in crate::scheduler) end_at: BootTime,
    /// A later term has sealed the ledger: nothing can be started any more.
    pub(in crate::scheduler) superseded: bool,
}

/// That a run has ended.
pub(in crate::scheduler) struct Completion {
    pub(in crate::scheduler) job: usize,
    /// Whether this worker executed it.
    here: bool,
    pub(in crate::scheduler) key: Arc<str>,
    pub(in crate::scheduler) tick: WallTime,
    pub(in crate::scheduler) cause: RunCause,
    pub(in crate::scheduler) outcome: Result<RunEnd, Box<dyn Any + Send>>,
}

impl<'a> Leader<'a> {
    fn new(
        leading: &'a Leading,
        sealed: LedgerSnapshot,
        rows: RowWriter,
        history_writer: HistoryWriter,
    ) -> Self {
        let (env, term) = (leading.term.env(), &leading.term);
        let read = |record: &crate::node::Record| record.value.parse().ok().map(WallTime::from_micros);
        let looked = highest(sealed.row(LOOKED), read, |at| *at).map(|(at, _)| at);
        let known = Known::new(&sealed);
        let slots = Slots::new(term.quorum(), term.group(), leading.ttl, leading.grace);
        let list = OpenList::new(&rows, sealed.row(OpenList::KEY), &sealed.unfinished_keys());
        Self {
            writer: RunWriter::new(&leading.ledger, term),
            slots,
            list,
            executing: 0,
            leading,
            env,
            term,
            sealed,
            rows,
            history_writer,
            entries: Vec::new(),
            vacant: Vec::new(),
            names: BTreeMap::new(),
            to_take: VecDeque::new(),
            retired: BTreeMap::new(),
            agenda: BTreeSet::new(),
            line: BTreeSet::new(),
            asks: BTreeMap::new(),
            answers: BTreeMap::new(),
            runs: FuturesUnordered::new(),
            began: BTreeMap::new(),
            registering: FuturesUnordered::new(),
            accepting: FuturesUnordered::new(),
            looked,
            decided: None,
            known,
            told_held: false,
            prune_at: env.now(),
            mark_at: env.now() + MARK_EVERY,
            pruning: None,
            retention: Retention::new(&leading.ledger),
            ending: None,
            end_at: env.now(),
            superseded: false,
        }
    }

    /// By which every tick is due: the quorum's clock, whatever this worker's own wall clock shows. Where it steps
    /// back nothing is repeated, for each plan knows how far it has looked.
    pub(in crate::scheduler) fn now(&self) -> WallTime {
        self.term.quorum().wall()
    }

    async fn serve(&mut self, mut asked: mpsc::Receiver<IncomingRequest>) {
        let step_down = self.term.step_down_token().clone();
        let (mut changed, mut phase) = self.leading.registry.watch();
        let (mut listens, mut reopened) = (true, false);
        while !step_down.is_cancelled() && !self.superseded {
            self.take_over(&mut reopened);
            let mut more = !self.to_take.is_empty();
            if self.leading.registry.phase() != Phase::Open {
                // What is open to workers is the next leader's.
                if self.executing == 0 {
                    break;
                }
            } else {
                more |= self.look();
                self.start();
            }
            let wake = if more { self.env.now() } else { self.wake() };
            // What has not been taken over may need what would be forgotten.
            if reopened && !more {
                self.prune();
                self.mark();
                self.look_for_ended();
            }
            tokio::select! { biased;
                () = step_down.cancelled() => break,
                Some(ended) = self.runs.next() => self.run_ended(ended),
                Some(index) = self.registering.next() => self.registered(index),
                Some(accepted) = self.accepting.next() => self.accepted(accepted),
                // What is asked of a job must find it.
                request = asked.recv(), if listens && reopened => match request {
                    Some(request) => self.asked(request),
                    None => listens = false,
                },
                // The senders live as long as the registry.
                Ok(()) = changed.changed() => self.change(),
                Ok(()) = phase.changed() => {}
                Some(pruned) = OptionFuture::from(self.pruning.as_mut()) => {
                    self.pruning = None;
                    if let Ok(Some(mark)) = pruned {
                        self.forget_retired(mark);
                    }
                }
                Some(ended) = OptionFuture::from(self.ending.as_mut()) => {
                    self.ending = None;
                    ended.unwrap_or_default().iter().for_each(|job| self.end_unknown(job));
                }
                () = self.env.sleep_until(wake) => {}
            }
            self.all_ended();
            if more {
                tokio::task::yield_now().await;
            }
        }
        if self.superseded {
            // What runs is told to stop, and has the grace to: a run of hours must not keep the lease from a leader
            // that can start something.
            self.term.resign();
        } else {
            self.mark_at = self.env.now();
            self.mark();
        }
        self.last_runs().await;
    }

    /// What has ended beside the first is dealt with in the same turn.
    fn all_ended(&mut self) {
        while let Some(Some(ended)) = self.runs.next().now_or_never() {
            self.run_ended(ended);
        }
    }

    fn run_ended(&mut self, ended: Completion) {
        self.executing -= usize::from(ended.here);
        self.ended(ended);
    }

    /// They have been told to stop. What is still here near the end of the grace is dropped, so that there is time
    /// to write what has ended; and what is here when validity ends, with this future.
    async fn last_runs(&mut self) {
        let margin = FLUSH.min(self.leading.grace / 5);
        // What is open to workers is the next leader's.
        while self.executing > 0 {
            let Some(until) = self.term.work_until() else { break };
            let until = until - margin;
            let Some(Some(ended)) = self.env.before(until, self.runs.next()).await else {
                // It may have been extended meanwhile.
                if self.term.work_until().is_none_or(|until| until - margin <= self.env.now()) {
                    break;
                }
                continue;
            };
            self.run_ended(ended);
        }
        self.runs.clear();
        self.torn();
    }

    /// Decides on what has come due; says whether there is more of it.
    fn look(&mut self) -> bool {
        let now = self.now();
        let mut looked = 0;
        while let Some(&(at, index)) = self.agenda.first()
            && at <= now
        {
            looked += 1;
            if looked > AT_ONCE {
                return true;
            }
            self.agenda.pop_first();
            let Some(entry) = self.entries[index].as_mut() else { continue };
            entry.on_agenda = None;
            let Looked { not_run, stop_for } = entry.plan.look(&self.sealed, now);
            let job = Arc::clone(&entry.plan.job);
            if let Some(tick) = stop_for {
                let why = format!("for the tick {}", job.schedule.format(tick));
                entry.plan.running.iter().for_each(|going| going.cancel.cancel(&why));
            }
            let left_out = !not_run.is_empty();
            for not in not_run {
                self.not_run(&job, not);
            }
            if left_out {
                self.link(index);
            }
            self.settle(index);
        }
        if self.to_take.is_empty() {
            self.decided = self.decided.max(Some(now));
        }
        false
    }

    /// Starts what may start, in order.
    fn start(&mut self) {
        while let Some(turn) = self.line.pop_first() {
            let (here, _, _, index) = turn;
            if here && self.executing >= self.leading.max_running {
                self.line.insert(turn);
                return;
            }
            let now = self.now();
            let Some(entry) = self.entries[index].as_mut() else { continue };
            entry.in_line = None;
            let (start, too_late) = entry.plan.start(now);
            let job = Arc::clone(&entry.plan.job);
            if let Some(start) = start {
                self.begin(index, start);
            }
            for not in too_late {
                self.not_run(&job, not);
            }
            self.settle(index);
        }
    }

    /// Executes a run, or opens it to workers.
    fn begin(&mut self, index: usize, start: PendingRun) {
        let Some(entry) = self.entries[index].as_mut() else { return };
        let (job, state) = (Arc::clone(&entry.plan.job), entry.state.clone());
        let (cancel, began) = (Cancel::default(), Began::default());
        let (tick, cause, key) = (start.tick, start.cause, Arc::clone(&start.key));
        let here = !start.is_for_workers(&job);
        let withdraw = (!here).then(Withdraw::default);
        entry.plan.running.push(ActiveRun {
            key: Arc::clone(&key),
            tick,
            at: start.at,
            request: start.request(),
            cancel: cancel.clone(),
            withdraw: withdraw.clone(),
        });
        let (writer, rows) = (self.writer.clone(), self.rows.clone());
        let running: ScopedTask<RunEnd> = match withdraw {
            Some(withdraw) => {
                let (slots, list) = (self.slots.clone(), self.list.clone());
                let opened = Opened { job, start, writer, slots, list, rows, state, cancel, withdraw };
                self.term.spawn_scoped(opened.run())
            }
            None => {
                self.executing += 1;
                self.began.insert(Arc::clone(&key), (index, tick, cause, Arc::clone(&began)));
                let (term, grace) = (self.term.clone(), self.leading.grace);
                let run = Run { job, start, writer, term, rows, state, cancel, began, grace };
                self.term.spawn_scoped(run.run())
            }
        };
        let ended = running.map(move |outcome| Completion { job: index, here, key, tick, cause, outcome });
        self.runs.push(ended.boxed());
    }

    fn registered(&mut self, index: usize) {
        if let Some(entry) = self.entries[index].as_mut() {
            entry.registering = false;
        }
        self.settle(index);
    }

    /// Has the ledger forget what is of no more use, now and then.
    fn prune(&mut self) {
        if self.pruning.is_some() || self.env.now() < self.prune_at {
            return;
        }
        self.prune_at = self.env.now() + PRUNE_EVERY;
        let below = self.low_water();
        let (ledger, term) = (self.leading.ledger.clone(), self.term.clone());
        self.pruning = Some(self.term.spawn_scoped(async move {
            match ledger.prune(term.token(), below.as_micros()).await {
                Ok(()) => Some(below),
                Err(error) => {
                    tracing::debug!(group = &**term.group(), "not pruned: {error}");
                    None
                }
            }
        }));
    }

    /// Before which time records are of no more use to any job.
    fn low_water(&mut self) -> WallTime {
        let now = self.now();
        let plans = || self.entries.iter().flatten().map(|entry| &entry.plan);
        let open = plans().filter_map(crate::scheduler::plan::job_plan::JobPlan::oldest);
        let asks = self.asks.values().map(OpenRequest::oldest);
        // What was removed in this term nobody needs; what this leader does not know another may.
        let mine = |job: &str| self.names.contains_key(job) || self.retired.contains_key(job);
        let theirs = self.known.open.iter().filter(|(job, _)| !mine(job)).map(|(_, at)| *at);
        let oldest = open.chain(asks).chain(theirs).min();
        let jobs = || plans().map(|plan| &*plan.job);
        let offset = self.sealed.max_clock_offset;
        let kept_here = kept(jobs().map(window).max().unwrap_or_default(), offset);
        let wanted = oldest.unwrap_or(now).min(now - kept(self.known.window, offset));
        let mark = low_water(now, kept_here, Some(wanted), held(jobs()));
        if oldest.is_some_and(|oldest| oldest < mark) && !std::mem::replace(&mut self.told_held, true) {
            tracing::warn!(
                group = &**self.term.group(),
                "the ledger forgets runs that have not ended for very long: a leader that follows will not make them up"
            );
        }
        mark
    }

    /// Leaves word up to when all ticks have been decided on.
    fn mark(&mut self) {
        if let Some(decided) = self.decided.filter(|_| self.env.now() >= self.mark_at) {
            self.mark_at = self.env.now() + MARK_EVERY;
            self.rows.put(&LOOKED.into(), decided.as_micros().to_string().into());
        }
    }

    fn wake(&self) -> BootTime {
        let now = self.now();
        // Where nothing more is started, nothing is looked at either.
        let open = self.leading.registry.phase() == Phase::Open;
        let next = self.agenda.first().map(|(at, _)| *at).filter(|_| open);
        let pause = next.map_or(LOOK_AT_LEAST_EVERY, |next| now.until(next));
        self.env.now() + pause.min(LOOK_AT_LEAST_EVERY)
    }
}
