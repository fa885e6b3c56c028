use super::{Event, freeze_rows::FreezeRows};
use crate::sim::{
    Asked, Excuse, RunEnd, RunStart, Told,
    worker::{PoolSpec, VALID_FOR, pool_specs},
};
use quorate::{env::WallTime, internals::JobAction, scheduler::RequestId};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The largest difference between the true time and the wall clocks of a majority of the servers.
pub(super) const OFFSET: Duration = Duration::from_secs(1);
/// The time within which a worker must notice that a job is paused or resumed. A worker reads the job about
/// once a second. A run that the worker began to take before this read may still be written and claimed.
pub(super) const NOTICED_IN: Duration = Duration::from_secs(4);

/// A log of the runs and the operator's requests of the second group, made from the events of the simulation.
#[derive(Debug)]
pub(super) struct PoolLog {
    specs: BTreeMap<&'static str, &'static PoolSpec>,
    runs: BTreeMap<u64, Run>,
    of: BTreeMap<RunOf, Vec<u64>>,
    asks: BTreeMap<u64, Request>,
    freezes: FreezeRows,
}

/// The unit of work that a run executes: a tick of the job's schedule, or one of the ticks of a request.
/// Several runs may execute the same unit, for example after an interruption.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunOf {
    pub(super) job: Arc<str>,
    pub(super) tick: WallTime,
    pub(super) request: Option<RequestId>,
}

impl RunOf {
    pub(super) fn tick(job: &str, tick: WallTime) -> Self {
        Self { job: job.into(), tick, request: None }
    }

    pub(super) fn started(start: &RunStart) -> Self {
        Self { job: Arc::clone(&start.job), tick: start.at, request: start.cause.request() }
    }
}

/// One run of a handler.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) start: RunStart,
    /// The true wall time at which the run ended, and the way in which it ended. `None` while it is active.
    pub(super) end: Option<(WallTime, RunEnd)>,
}

impl Run {
    /// Returns `true` if the run must not be repeated, because its handler finished, failed or timed out.
    pub(super) fn ended_itself(&self) -> bool {
        self.end.is_some_and(|(_, end)| end.is_own())
    }
}

/// A request of the operator.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) asked: Asked,
    /// The true wall time at which the operator received the result, and the result. `None` before that.
    pub(super) told: Option<(WallTime, Told)>,
}

impl Request {
    /// Returns `true` if a leader may have carried out the request.
    pub(super) fn is_possible(&self) -> bool {
        !matches!(self.told, Some((_, Told::NotSent | Told::Refused { .. })))
    }

    /// Returns the end of the time in which the request can have had an effect, or `None` if it can have none. A
    /// leader acts on a request before a majority stores its answer. If that leader is replaced first, the next
    /// leader may refuse the request.
    fn acts_until(&self) -> Option<WallTime> {
        match self.told {
            Some((_, Told::NotSent)) => None,
            Some((at, Told::Refused { .. })) => Some(at + OFFSET),
            _ => Some(WallTime::from_micros(u64::MAX)),
        }
    }

    pub(super) fn is_accepted(&self) -> bool {
        matches!(self.told, Some((_, Told::Accepted { .. })))
    }

    /// Returns the latest true wall time at which the request can take effect.
    pub(super) fn latest(&self) -> WallTime {
        match self.told {
            Some((at, Told::Accepted { .. })) => at,
            _ => self.asked.at + VALID_FOR + OFFSET * 2,
        }
    }
}

impl Default for PoolLog {
    fn default() -> Self {
        let specs = pool_specs().iter().map(|spec| (spec.name, spec)).collect();
        Self {
            specs,
            runs: BTreeMap::new(),
            of: BTreeMap::new(),
            asks: BTreeMap::new(),
            freezes: FreezeRows::default(),
        }
    }
}

impl PoolLog {
    /// Records an event that happens at the true wall time `now`.
    pub(super) fn see(&mut self, now: WallTime, event: &Event<'_>) {
        self.freezes.see(now, event);
        match event {
            Event::RunStarted(start) => {
                self.of.entry(RunOf::started(start)).or_default().push(start.run);
                self.runs.insert(start.run, Run { start: (*start).clone(), end: None });
            }
            Event::RunEnded { run, end } => {
                if let Some(run) = self.runs.get_mut(run) {
                    run.end = Some((now, *end));
                }
            }
            Event::Asked(asked) => {
                self.asks.insert(asked.number, Request { asked: (*asked).clone(), told: None });
            }
            Event::Answered { number, told } => {
                if let Some(request) = self.asks.get_mut(number) {
                    request.told = Some((now, **told));
                }
            }
            _ => {}
        }
    }

    pub(super) fn spec(&self, job: &str) -> Option<&PoolSpec> {
        self.specs.get(job).copied()
    }

    pub(super) fn specs(&self) -> impl Iterator<Item = &PoolSpec> {
        self.specs.values().copied()
    }

    pub(super) fn run(&self, run: u64) -> Option<&Run> {
        self.runs.get(&run)
    }

    pub(super) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    /// Returns all runs of this unit of work, in the order of their starts.
    pub(super) fn of(&self, what: &RunOf) -> impl Iterator<Item = &Run> {
        self.of.get(what).into_iter().flatten().filter_map(|run| self.runs.get(run))
    }

    /// Returns the runs of a request, in the order of their starts.
    pub(super) fn of_request(&self, id: RequestId) -> impl Iterator<Item = &Run> {
        self.runs.values().filter(move |run| run.start.cause.request() == Some(id))
    }

    pub(super) fn requests<'a>(&'a self, job: &'a str) -> impl Iterator<Item = &'a Request> {
        self.asks.values().filter(move |request| **request.asked.ask.job() == *job)
    }

    pub(super) fn all_requests(&self) -> impl Iterator<Item = &Request> {
        self.asks.values()
    }

    /// Returns `true` if a tick may be skipped because its job was or may have been paused, or its group frozen.
    ///
    /// A pause may also skip a tick that was due before the pause began, if the tick had not ended. A pause
    /// that was lifted may come back, if servers have lost the record that it was lifted.
    pub(super) fn may_be_paused(&self, job: &str, tick: WallTime) -> bool {
        let pauses =
            || self.requests(job).filter(|request| matches!(request.asked.ask, JobAction::Pause { .. }));
        let resumes = |after: WallTime| {
            let of_job =
                self.requests(job).filter(|request| matches!(request.asked.ask, JobAction::Resume { .. }));
            of_job.filter(move |request| request.is_accepted() && request.asked.at > after)
        };
        let noticed = self.end_noticed_in(job);
        let reaches = |pause: &&Request| match &pause.asked.ask {
            JobAction::Pause { until: Some(until), .. } => tick < *until,
            _ => true,
        };
        let acts = |pause: &&Request| pause.acts_until().is_some_and(|until| tick <= until);
        let paused = pauses().filter(acts).filter(reaches).any(|pause| {
            // A later request to resume ends the pause if it was accepted, unless servers lost the record of
            // this end.
            !resumes(pause.latest()).any(|resume| {
                let is_over = resume.latest() + OFFSET + noticed < tick;
                let is_forgotten = || self.freezes.is_founded_since(resume.asked.at);
                is_over && !Excuse::PauseEndForgotten.excuses(is_forgotten())
            })
        });
        paused || self.may_be_frozen(job, tick)
    }

    /// Returns `true` if a tick of the job may be skipped because the group was or may have been frozen. This may also
    /// be a tick that was due before the freeze began.
    pub(super) fn may_be_frozen(&self, job: &str, tick: WallTime) -> bool {
        let noticed = self.end_noticed_in(job);
        self.freezes_ends().any(|(until, is_planned)| match is_planned {
            true => tick < until,
            false => tick <= until + OFFSET + noticed,
        })
    }

    /// Returns the end of the last freeze, and true if this end was planned. It was not if a request ended the freeze.
    /// Returns `None` if the group was never frozen.
    pub(super) fn last_freeze_end(&self) -> Option<(WallTime, bool)> {
        self.freezes_ends().max()
    }

    /// Returns, for each freeze on which a leader may have acted, its latest end, and true if this end was planned. A
    /// later request may have ended the freeze, or replaced its end, unless servers lost the record of that.
    fn freezes_ends(&self) -> impl Iterator<Item = (WallTime, bool)> {
        let planned = |request: &Request| match request.asked.ask {
            JobAction::Freeze { until, .. } => Some(until.min(request.acts_until()?)),
            _ => None,
        };
        self.asks.values().filter_map(move |freeze| Some((freeze, planned(freeze)?))).map(
            move |(freeze, until)| {
                let later = self.asks.values().filter(|later| later.asked.at > freeze.latest());
                let ends = later.filter_map(|later| match (&later.told, &later.asked.ask) {
                    (Some((at, Told::Accepted { id, .. })), _) if self.freezes.is_answer_lost(*id, *at) => {
                        None
                    }
                    (Some((at, Told::Accepted { .. })), JobAction::Unfreeze) => Some((*at, false)),
                    // A leader may have left out open runs because of the later end, so an earlier end acts as a
                    // request to end the freeze.
                    (Some((_, Told::Accepted { .. })), JobAction::Freeze { until: other, .. }) => {
                        Some((*other, *other >= until))
                    }
                    _ => None,
                });
                ends.chain([(until, true)]).min().unwrap_or((until, true))
            },
        )
    }

    /// Returns the time within which every worker notices the end of a pause of this job. For an any-worker job, a
    /// worker that does not lead may notice the end later than the leader.
    fn end_noticed_in(&self, job: &str) -> Duration {
        if self.spec(job).is_none_or(PoolSpec::is_any_worker) { NOTICED_IN } else { Duration::ZERO }
    }

    /// Returns the record of the freeze's rows.
    pub(super) fn freezes(&self) -> &FreezeRows {
        &self.freezes
    }

    /// Returns `true` if an operator may have cancelled runs of a job that were active or waiting between these true
    /// times.
    pub(super) fn may_be_cancelled(&self, job: &str, from: WallTime, until: WallTime) -> bool {
        self.cancels(job, from, until).any(Request::is_possible)
    }

    /// Returns `true` if a leader may have cancelled runs of a job between `from` and `until`. It may have ended before
    /// it answered, and a later leader may have refused the request.
    pub(super) fn may_have_been_cancelled(&self, job: &str, from: WallTime, until: WallTime) -> bool {
        self.cancels(job, from, until).any(|request| request.acts_until().is_some())
    }

    fn cancels<'a>(
        &'a self,
        job: &'a str,
        from: WallTime,
        until: WallTime,
    ) -> impl Iterator<Item = &'a Request> {
        let cancels =
            self.requests(job).filter(|request| matches!(request.asked.ask, JobAction::Cancel { .. }));
        cancels
            .filter(move |cancel| cancel.asked.at <= until + OFFSET && from <= cancel.latest() + OFFSET * 2)
    }
}

/// Functions that make events. Tests use them to write histories by hand.
#[cfg(test)]
pub(super) mod made {
    use crate::sim::{Asked, Event, HandlerEnd, RunEnd, RunStart, Told, invariant::Invariant};
    use quorate::{
        env::WallTime,
        internals::{JobAction, JobRow, Paused},
        node::{
            FencingToken, Incarnation, Record, Reply, Request,
            copy::{LeadAct, Put, Seal},
        },
        scheduler::{HistoryEntry, RequestId, RunCause, RunOutcome},
    };
    use std::{sync::Arc, time::Duration};

    /// Returns the true wall time `ms` milliseconds after the simulation began.
    pub(crate) fn at(ms: u64) -> WallTime {
        WallTime::from_micros(1_700_000_000_000_000 + ms * 1_000)
    }

    pub(crate) fn id(number: u128) -> RequestId {
        RequestId::from_u128(number)
    }

    pub(crate) fn see(invariant: &mut dyn Invariant, ms: u64, event: &Event<'_>) -> Result<(), String> {
        invariant.see(Duration::from_millis(ms), event)
    }

    /// Returns the request with which the leader of `term` marks a server's copy of the ledger.
    pub(crate) fn mark(ledger: &str, term: u64) -> Request {
        let (term, memory) = (FencingToken::new(term), Incarnation::default());
        let (seal, act) = (Seal { term, leader: 1 }, LeadAct::Mark { founded: term });
        Request::Lead { ledger: ledger.into(), seal, memory, act }
    }

    /// Returns the history entry of a scheduled tick that one worker ran or left out.
    pub(crate) fn entry(job: &str, due: u64, term: u64, end: RunOutcome) -> HistoryEntry {
        HistoryEntry {
            job: job.into(),
            tick: at(due),
            until: None,
            cause: RunCause::Scheduled,
            end,
            reason: "".into(),
            worker: "w0".into(),
            term: FencingToken::new(term),
            started: None,
            took: None,
            attempts: 0,
            attempt_error: None,
            output: None,
        }
    }

    /// Returns a correct start of a tick, at the time at which the tick is due.
    pub(crate) fn start(run: u64, job: &str, due: u64) -> RunStart {
        RunStart {
            run,
            worker: "w0".into(),
            job: job.into(),
            at: at(due),
            cause: RunCause::Scheduled,
            token: run,
            valid: true,
            true_wall: at(due),
            ahead: Duration::ZERO,
            clock_stood: false,
            beside: Vec::new(),
        }
    }

    pub(crate) fn started(invariant: &mut dyn Invariant, ms: u64, start: &RunStart) -> Result<(), String> {
        see(invariant, ms, &Event::RunStarted(start))
    }

    pub(crate) fn ended(
        invariant: &mut dyn Invariant,
        ms: u64,
        run: u64,
        end: HandlerEnd,
    ) -> Result<(), String> {
        let end = RunEnd { end, took: Duration::ZERO, stopped: false, overdue: false };
        see(invariant, ms, &Event::RunEnded { run, end })
    }

    /// Reports a successful run to the invariant, from its start to its end.
    pub(crate) fn ran(invariant: &mut dyn Invariant, start: &RunStart) -> Result<(), String> {
        let ms = (start.true_wall.as_micros() - at(0).as_micros()) / 1_000;
        started(invariant, ms, start)?;
        ended(invariant, ms, start.run, HandlerEnd::Done)
    }

    /// Reports to the invariant that the operator sends a request and receives its result at once.
    pub(crate) fn asks(
        invariant: &mut dyn Invariant,
        ms: u64,
        ask: JobAction,
        told: Told,
    ) -> Result<(), String> {
        see(invariant, ms, &Event::Asked(&Asked { number: ms, ask, at: at(ms) }))?;
        see(invariant, ms, &Event::Answered { number: ms, told: &told })
    }

    /// Returns the request with which the leader of `term` stores a record in a ledger that it leads.
    pub(crate) fn put(ledger: &str, term: u64, key: &str, value: Arc<str>) -> Request {
        let put = Put { key: key.into(), seq: 1, assignment: None, value: Some(value) };
        let act = LeadAct::Put { writes: [put].into() };
        let seal = Seal { term: FencingToken::new(term), leader: 1 };
        Request::Lead { ledger: ledger.into(), seal, memory: Incarnation::default(), act }
    }

    /// Reports to the invariant that the leader of `term` founds the ledger of `group`.
    pub(crate) fn founded(
        invariant: &mut dyn Invariant,
        ms: u64,
        group: &str,
        term: u64,
    ) -> Result<(), String> {
        see(invariant, ms, &Event::Founded { group, term })
    }

    /// Reports to the invariant that the first `servers` servers store a record.
    pub(crate) fn written(
        invariant: &mut dyn Invariant,
        ledger: &str,
        key: &str,
        value: &str,
        servers: usize,
    ) -> Result<(), String> {
        let term = FencingToken::new(1);
        let record = Record { at: at(0).as_micros(), term, last: false, value: value.into() };
        let (ledger, key) = (ledger.into(), key.into());
        let request = Request::Write { ledger, key, seen: None, record };
        ["n0", "n1", "n2", "n3", "n4"][..servers].iter().try_for_each(|node| {
            see(invariant, 0, &Event::Ran { node, request: &request, reply: &Reply::Written })
        })
    }

    pub(crate) fn row(since: u64, paused: bool) -> String {
        let by = Paused { by: "me".into(), at: at(since), ..Paused::default() };
        let row = JobRow { since: at(since), paused: paused.then_some(by), ..JobRow::default() };
        row.to_value().to_string()
    }
}
