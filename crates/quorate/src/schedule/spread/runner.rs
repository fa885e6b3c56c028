//! The shell around the plans of spread jobs: looks, sleeps, tries ticks, until it is told to stop.

mod survey;

use self::survey::{PRUNE_EVERY, Survey};
use super::{
    attempt::Attempt,
    names,
    plan::{Came, Plan, Try, kept},
    rows::Told,
    scribe::{self, scribe},
};
use crate::{
    claim::Claims,
    env::{BootTime, Env, ScopedTask, WallTime},
    ledger::Ledger,
    node::FencingToken,
    quorum::Quorum,
    schedule::{
        Job, Placement, RequestId, Skipped, TickCause, TickEnd, TickHistory,
        leader::tell,
        roster::{Phase, Roster},
        work::{Cancel, on_request},
    },
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, future::OptionFuture, stream::FuturesUnordered};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The wall clock may step: it is looked at again at least this often.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(500);
/// The reason of what did not run for a pause.
const PAUSED: &str = "the job was paused";
/// What is ready to be written at a shutdown has so long at least.
const WRITE_AT_LEAST: Duration = Duration::from_secs(1);

/// What it takes to run spread jobs.
#[derive(Clone, Debug)]
pub(in crate::schedule) struct Spreading {
    pub(in crate::schedule) roster: Roster,
    pub(in crate::schedule) quorum: Quorum,
    /// The group's ledger, which its leader seals.
    pub(in crate::schedule) main: Ledger,
    pub(in crate::schedule) group: Arc<str>,
    pub(in crate::schedule) max_running: usize,
    /// How long a crashed worker keeps a tick, at most.
    pub(in crate::schedule) ttl: Duration,
    /// How long a run that is told to stop has to end.
    pub(in crate::schedule) grace: Duration,
}

/// Runs this worker's share of the spread jobs until it is told to `stop`, or drained, and its runs have ended.
pub(in crate::schedule) async fn spread(with: Spreading, stop: CancellationToken) {
    let env = with.quorum.env().clone();
    let (entries, queue) = mpsc::channel(scribe::QUEUE);
    let (roster, grace) = (with.roster.clone(), with.grace);
    let writing = env.spawn_scoped(scribe(with.main.clone(), env.clone(), roster.clone(), queue));
    let mut worker = Worker {
        ledger: with.main.part("spread"),
        worker: Arc::clone(&with.quorum.config().worker),
        max_clock_offset: with.quorum.config().max_clock_offset,
        survey_at: env.now(),
        read_at: env.now(),
        prune_at: env.now() + PRUNE_EVERY + env.random_below(PRUNE_EVERY),
        with,
        entries,
        jobs: BTreeMap::new(),
        agenda: BTreeSet::new(),
        in_line: BTreeSet::new(),
        pauses: Vec::new(),
        told: None,
        heeded: BTreeSet::new(),
        kept: Duration::ZERO,
        missed: BTreeMap::new(),
        runs: FuturesUnordered::new(),
        begun: 0,
        running: BTreeMap::new(),
        surveying: None,
        pruning: None,
        registering: Vec::new(),
        env: env.clone(),
    };
    worker.serve(&stop).await;
    drop(worker);
    let until = env.now() + grace.max(WRITE_AT_LEAST);
    if env.before(until, writing).await.is_none() {
        roster.counts().not_written();
        tracing::warn!("too few nodes answer: the histories of spread jobs lack their last entries");
    }
}

pub(super) struct Worker {
    with: Spreading,
    env: Env,
    ledger: Ledger,
    worker: Arc<str>,
    max_clock_offset: Duration,
    entries: mpsc::Sender<scribe::Entry>,
    /// The spread jobs; their plans sleep until it is known from when on they are due.
    jobs: BTreeMap<Arc<str>, Entry>,
    /// When there is something to do for which job.
    agenda: BTreeSet<(WallTime, Arc<str>)>,
    /// The jobs for which there is, by priority; those that wait for others to end stay here.
    in_line: BTreeSet<(Reverse<i32>, Arc<str>)>,
    pauses: Vec<(Arc<Job>, (WallTime, WallTime))>,
    /// What the group's own ledger says of its jobs, once it is known.
    told: Option<BTreeMap<Arc<str>, Told>>,
    /// The requests to cancel that stand there, and have been heeded here.
    heeded: BTreeSet<RequestId>,
    /// For how long any worker's jobs need their records, by what was last read.
    kept: Duration,
    /// Spans that the misfire rule leaves out, until it is known what others have run of them.
    missed: BTreeMap<Arc<str>, Vec<Skipped>>,
    runs: FuturesUnordered<BoxFuture<'static, Ended>>,
    /// How many there have been, which numbers them.
    begun: u64,
    running: BTreeMap<u64, Running>,
    surveying: Option<ScopedTask<Survey>>,
    survey_at: BootTime,
    read_at: BootTime,
    pruning: Option<ScopedTask<()>>,
    prune_at: BootTime,
    registering: Vec<ScopedTask<()>>,
}

struct Entry {
    job: Arc<Job>,
    plan: Plan,
    on_agenda: Option<WallTime>,
    /// Ticks that had ended when this worker came.
    ended: BTreeSet<WallTime>,
}

/// A tick that is tried or runs here.
struct Running {
    job: Arc<str>,
    tick: WallTime,
    began: WallTime,
    cancel: Cancel,
}

struct Ended {
    number: u64,
    job: Arc<Job>,
    tried: Try,
    came: Came,
    history: Option<TickHistory>,
}

impl Worker {
    async fn serve(&mut self, stop: &CancellationToken) {
        let (mut jobs, mut phase) = self.with.roster.watch();
        self.change();
        while !stop.is_cancelled() && self.with.roster.phase() == Phase::Open {
            self.look();
            self.survey();
            self.prune();
            let wake = self.wake();
            tokio::select! { biased;
                () = stop.cancelled() => break,
                Some(ended) = self.runs.next() => self.ended(ended),
                Some(survey) = OptionFuture::from(self.surveying.as_mut()) => {
                    self.surveying = None;
                    // One that was torn down is made again.
                    if let Ok(survey) = survey {
                        self.surveyed(survey);
                    }
                }
                Some(_) = OptionFuture::from(self.pruning.as_mut()) => self.pruning = None,
                _ = jobs.changed() => self.change(),
                _ = phase.changed() => {}
                () = self.env.sleep_until(wake) => {}
            }
        }
        if stop.is_cancelled() {
            self.cancel();
        }
        loop {
            self.survey_at_the_end();
            let look_at = self.survey_at;
            tokio::select! { biased;
                ended = self.runs.next() => match ended {
                    Some(ended) => self.ended(ended),
                    None => return,
                },
                Some(survey) = OptionFuture::from(self.surveying.as_mut()) => {
                    self.surveying = None;
                    if let Ok(survey) = survey {
                        self.surveyed_at_the_end(survey);
                    }
                }
                () = self.env.sleep_until(look_at), if self.surveying.is_none() => {}
                () = stop.cancelled(), if self.running.values().any(|run| !run.cancel.is_cancelled()) => {
                    self.cancel();
                }
            }
        }
    }

    fn cancel(&self) {
        self.running.values().for_each(|run| run.cancel.interrupt("the worker was told to stop"));
    }

    /// Takes the jobs as they are now. What has not changed goes on.
    fn change(&mut self) {
        let mut now = self.with.roster.jobs();
        now.retain(|_, job| job.placement == Placement::Spread);
        self.jobs.retain(|name, _| now.contains_key(name));
        for (name, job) in now {
            let entry = self.jobs.entry(Arc::clone(&name)).or_insert_with(|| {
                // It may have been here before, and have left a run.
                let left = self.running.values().filter(|run| run.job == name).map(|run| run.tick);
                let plan = Plan::new(Arc::clone(&job), left.collect());
                Entry { job: Arc::clone(&job), plan, on_agenda: None, ended: BTreeSet::new() }
            });
            if entry.job.schedule != job.schedule {
                self.missed.remove(&name);
            }
            entry.plan.renew(Arc::clone(&job));
            entry.job = job;
            if !entry.plan.is_awake() {
                (self.survey_at, self.read_at) = (self.env.now(), self.env.now());
            }
            self.arrange(&name);
        }
        self.missed.retain(|name, _| self.jobs.contains_key(name));
    }

    /// Decides on what has come due, and tries what may be tried.
    fn look(&mut self) {
        let now = self.now();
        while let Some((_, name)) = self.agenda.first().filter(|(at, _)| *at <= now).cloned() {
            self.agenda.pop_first();
            if let Some(entry) = self.jobs.get_mut(&name) {
                entry.on_agenda = None;
                self.in_line.insert((Reverse(entry.job.priority), name));
            }
        }
        for (_, name) in &self.in_line {
            let Some(entry) = self.jobs.get_mut(name) else { continue };
            let plan = &mut entry.plan;
            if self.told.as_ref().and_then(|told| told.get(name)).is_some_and(|told| told.paused) {
                let span = plan.look_paused(now);
                self.pauses.extend(span.map(|span| (Arc::clone(&entry.job), span)));
            } else {
                let skipped = plan.look(now, &entry.ended);
                if !skipped.is_empty() {
                    self.missed.entry(Arc::clone(name)).or_default().extend(skipped);
                    (self.survey_at, self.read_at) = (self.env.now(), self.env.now());
                }
            }
        }
        for (job, (first, last)) in std::mem::take(&mut self.pauses) {
            self.skipped(&job, first, last, TickEnd::SkippedPaused, PAUSED);
        }
        self.take(now);
    }

    /// Tries what waits, in order of priority, while there is room; what there is no room for stays in line.
    fn take(&mut self, now: WallTime) {
        while let Some((turn, name)) = self.in_line.pop_first() {
            let Some(entry) = self.jobs.get_mut(&name) else { continue };
            let plan = &mut entry.plan;
            let mut tries = Vec::new();
            while self.runs.len() + tries.len() < self.with.max_running
                && let Some(tried) = plan.take(now)
            {
                tries.push(tried);
            }
            let job = Arc::clone(&entry.job);
            tries.into_iter().for_each(|tried| self.begin(Arc::clone(&job), tried));
            if self.runs.len() >= self.with.max_running {
                self.in_line.insert((turn, name));
                return;
            }
            self.arrange(&name);
        }
    }

    /// Puts the job on the agenda for when there is something to do for it.
    fn arrange(&mut self, name: &Arc<str>) {
        let Some(entry) = self.jobs.get_mut(name) else { return };
        let wake = entry.plan.wake();
        if entry.on_agenda != wake {
            if let Some(at) = entry.on_agenda {
                self.agenda.remove(&(at, Arc::clone(name)));
            }
            if let Some(at) = wake {
                self.agenda.insert((at, Arc::clone(name)));
            }
            entry.on_agenda = wake;
        }
    }

    fn begin(&mut self, job: Arc<Job>, tried: Try) {
        let cancel = Cancel::default();
        let told = self.told.as_ref().and_then(|told| told.get(&job.name));
        if let Some(by) = told.and_then(|told| told.cancelled(tried.tick)) {
            cancel.cancel(&on_request(by));
        }
        self.begun += 1;
        let number = self.begun;
        let (name, began) = (Arc::clone(&job.name), self.now());
        let run = Running { job: name, tick: tried.tick, began, cancel: cancel.clone() };
        self.running.insert(number, run);
        let claims = Claims::new(&self.with.quorum, names::set(&self.with.group))
            .ttl(self.with.ttl)
            .step_down_grace(self.with.grace)
            // No claim may be forgotten while it is held, however short the job's own times are.
            .retention(kept(&job, self.max_clock_offset).max(self.with.ttl));
        let attempt = Attempt {
            job: Arc::clone(&job),
            tried,
            claims,
            ledger: self.ledger.clone(),
            worker: Arc::clone(&self.worker),
            quorum: self.with.quorum.clone(),
            cancel,
            grace: self.with.grace,
            ttl: self.with.ttl,
            counts: self.with.roster.counts().clone(),
        };
        let running = self.env.spawn_scoped(attempt.run());
        let ended = running.map(move |done| {
            // Torn down by a panic of ours: whoever claims it next says what became of it.
            let (came, history) = done.unwrap_or((Came::NotNow, None));
            Ended { number, job, tried, came, history }
        });
        self.runs.push(ended.boxed());
    }

    fn ended(&mut self, ended: Ended) {
        let Ended { number, job, tried, came, history } = ended;
        self.running.remove(&number);
        if let Some(entry) = self.jobs.get_mut(&job.name) {
            entry.plan.came(tried, came, self.with.quorum.wall(), self.env.random());
        }
        self.arrange(&job.name);
        if let Some(history) = history {
            self.enter(&job, history);
        }
    }

    fn enter(&self, job: &Arc<Job>, history: TickHistory) {
        // Whoever finds a tick that nobody ran says the same of it.
        let shared = history.term == FencingToken::default();
        if !shared {
            tell(job, &history);
            self.with.roster.counts().ended(&history);
        }
        if let Err(error) = self.entries.try_send(scribe::Entry { job: Arc::clone(job), history, shared }) {
            self.with.roster.counts().not_written();
            tracing::warn!(job = &*job.name, "its history lacks an entry: {error}");
        }
    }

    /// Enters a span of ticks that nobody runs. Whichever worker says so first.
    fn skipped(&self, job: &Arc<Job>, first: WallTime, last: WallTime, end: TickEnd, reason: &str) {
        let history = TickHistory {
            job: Arc::clone(&job.name),
            tick: first,
            until: (last > first).then_some(last),
            cause: TickCause::Scheduled,
            end,
            reason: reason.into(),
            worker: Arc::clone(&self.worker),
            term: FencingToken::default(),
            started: None,
            took: None,
            attempts: 0,
            output: None,
        };
        self.enter(job, history);
    }

    /// The time by which ticks are due: the quorum's, not this worker's own.
    fn now(&self) -> WallTime {
        self.with.quorum.wall()
    }

    fn wake(&self) -> BootTime {
        let now = self.now();
        let next = self.agenda.first().map(|(at, _)| *at);
        let pause = next.map_or(LOOK_AT_LEAST_EVERY, |next| now.until(next)).min(LOOK_AT_LEAST_EVERY);
        let survey =
            if self.surveying.is_some() || self.jobs.is_empty() { None } else { Some(self.survey_at) };
        let at = self.env.now() + pause;
        survey.map_or(at, |survey| survey.min(at))
    }
}
