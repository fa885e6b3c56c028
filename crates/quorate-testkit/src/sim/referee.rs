mod forced;
mod locks;

use super::{
    Belief, Event, Forced, Held, Holder, Host, NodeList, RunOutcome, Server, TickStart, Trace, Truth,
    Working, Write,
    exchanges::{self, Exchanges},
    invariant::{Invariant, MAJORITY, all},
    job_run::{self, AllGoing},
    judged_server::{Backer, was_ahead},
    scenario::true_wall,
};
use quorate::{
    election::Term,
    env::WallTime,
    lease::Lease,
    node::{Batch, BatchReply, Owner, Resource},
    quorum::QuorumConfig,
    scheduler::RunContext,
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The age from which a reading of a server's clock no longer matters. A worker keeps its most precise reading of
/// a clock for up to ten seconds, unless a later reading contradicts it. If the clock steps back by less than a
/// reply takes to arrive, the later readings do not contradict the earlier one.
const RECENTLY: Duration = Duration::from_secs(11);

/// The true time after which the referee looks at all grants again, although no lease has changed. The workers' clocks
/// go on in this time, and nothing else that the invariants on grants judge.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The observer of the simulation. It sees the true time and every event, and reports violations of the
/// invariants.
#[derive(Debug)]
pub struct Referee {
    truth: Truth,
    trace: Trace,
    setup: QuorumConfig,
    excuses_none: AtomicBool,
    servers: Mutex<Vec<Weak<Server>>>,
    /// The node lists of processes, except of those that have the default list.
    lists: Mutex<Vec<(Weak<Host>, NodeList)>>,
    going: Mutex<AllGoing>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    invariants: Vec<Box<dyn Invariant>>,
    held: Vec<Arc<Held>>,
    work: BTreeMap<u64, Job>,
    /// The leases that the operator has released by force.
    forced: BTreeMap<Owner, Forced>,
    numbers: u64,
    last_leader: Option<Arc<str>>,
    calm: bool,
    /// The true time at which all grants were last judged.
    looked_at: Duration,
    violations: Vec<String>,
    coverage: BTreeMap<String, u64>,
    /// The requests that servers have run, counted by kind and kind of reply.
    exchanges: Exchanges,
}

/// Code that works under a lease that a majority granted.
#[derive(Debug)]
struct Job {
    host: Arc<Host>,
    resource: Resource,
    token: u64,
    what: Arc<str>,
    /// The number of the grant, unique in this simulation.
    held: u64,
    /// The result of `Machine::stood_at` for the worker's machine at the last moment at which the grant was
    /// judged without an exception. If the result is another one now, the clock has stood still since that
    /// moment. `None` if every check of the grant since the work began found such an exception.
    stood_before: Option<Option<u64>>,
}

impl State {
    /// Returns a number that is unique within the run.
    fn next(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

/// A guard of code that works under a grant. Dropping the guard reports that the work is over.
#[derive(Debug)]
pub struct Work {
    referee: Arc<Referee>,
    id: u64,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.referee.state().work.remove(&self.id);
    }
}

/// A guard of the run of a tick of the first group. Dropping the guard reports the end of the run.
#[derive(Debug)]
pub struct TickRun {
    work: Work,
    tick: RunContext,
    end: Option<RunOutcome>,
}

impl TickRun {
    /// Returns the number of the run, unique in this simulation.
    pub fn number(&self) -> u64 {
        self.work.id
    }

    /// Records how the handler ends. The handler calls this just before it returns or panics.
    pub fn ends(mut self, end: RunOutcome) {
        self.end = Some(end);
    }
}

impl Drop for TickRun {
    fn drop(&mut self) {
        // A run that is dropped may have no recorded end. If its term continues, the run was dropped because
        // of its timeout: when a term ends, its runs are asked to stop one grace period earlier.
        let goes_on = |term: &Term| term.is_valid() && !term.step_down_token().is_cancelled();
        let timed_out = self.tick.term().is_some_and(goes_on);
        let timed_out = timed_out.then_some(RunOutcome::Itself);
        let end = self.end.or(timed_out).unwrap_or(RunOutcome::Torn);
        let referee = &self.work.referee;
        referee.count(match (self.end, end) {
            (None, RunOutcome::Itself) => "tick timed out",
            (_, RunOutcome::Itself) => "tick ended",
            (_, RunOutcome::Torn) => "tick torn",
        });
        referee.judge(&Event::TickEnded { run: self.work.id, end });
    }
}

impl Referee {
    /// Creates a referee with every invariant. All workers of the simulation use the configuration `setup`.
    pub fn new(truth: Truth, trace: Trace, setup: QuorumConfig) -> Arc<Self> {
        let state = State {
            invariants: all(),
            held: Vec::new(),
            work: BTreeMap::new(),
            forced: BTreeMap::new(),
            numbers: 0,
            last_leader: None,
            calm: false,
            looked_at: Duration::ZERO,
            violations: Vec::new(),
            coverage: BTreeMap::new(),
            exchanges: Exchanges::default(),
        };
        Arc::new(Self {
            truth,
            trace,
            setup,
            excuses_none: AtomicBool::new(false),
            servers: Mutex::default(),
            lists: Mutex::default(),
            going: Mutex::default(),
            state: Mutex::new(state),
        })
    }

    /// Removes the invariants that rely on clocks. From now on only the timeless invariants are judged.
    pub fn judge_only_what_needs_no_time(&self) {
        self.state().invariants.retain(|invariant| invariant.is_timeless());
    }

    /// Stops judging what servers' clocks that step by up to an hour change. Of the jobs of the second group, only the
    /// invariant *run history* is judged: servers forget records and prune histories at other times than the invariants
    /// *runs*, *requests*, *freezes* and *histories* compute. A reservation may end early. A server whose clock differs
    /// from a waiter's by more than `max_clock_offset` refuses its entry in the queue, so there may be no order.
    pub(super) fn judge_nothing_that_far_steps_change(&self) {
        let names = ["runs", "requests", "freezes", "histories", "reservations", "fair"];
        self.state().invariants.retain(|invariant| !names.contains(&invariant.name()));
    }

    /// Stops making exceptions for workers whose boot clock stood still. A test uses this to show that the
    /// invariants detect the effects of such a clock.
    pub fn excuse_no_clock(&self) {
        self.excuses_none.store(true, Ordering::Relaxed);
    }

    /// Sets the servers of the simulation. The referee reads their leases and clocks.
    pub fn watch_servers(&self, servers: &[Arc<Server>]) {
        let servers = servers.iter().map(Arc::downgrade).collect();
        *self.servers.lock().unwrap_or_else(PoisonError::into_inner) = servers;
    }

    /// Records the node list of the process `host`. Other processes have the default list.
    pub(super) fn has_list(&self, host: &Arc<Host>, list: NodeList) {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner).push((Arc::downgrade(host), list));
    }

    fn list(&self, host: &Arc<Host>) -> NodeList {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lists.iter().find(|(other, _)| other.as_ptr() == Arc::as_ptr(host));
        known.map_or_else(NodeList::default, |(_, list)| list.clone())
    }

    /// Judges an event, and then the state of all grants at this moment.
    pub fn tell(&self, event: &Event<'_>) {
        self.judge(event);
        self.look();
    }

    /// Records that a server ran all requests of a batch at one moment. Judges the state of all grants if a request
    /// may have changed a lease, or if it was last judged 5 ms ago.
    pub fn ran(&self, node: &str, batch: &Batch, reply: &BatchReply) {
        let mut may_change_lease = false;
        for (request, reply) in batch.requests.iter().zip(&reply.replies) {
            self.judge(&Event::Ran { node, request, reply });
            self.state().exchanges.count(request, reply);
            may_change_lease |= exchanges::may_change_lease(request, reply);
        }
        let looked_at = self.state().looked_at;
        if may_change_lease || self.truth.now().saturating_sub(looked_at) >= LOOK_EVERY {
            self.look();
        }
    }

    /// Judges the state of all grants at this moment.
    pub fn look(&self) {
        let mut state = self.state();
        state.looked_at = self.truth.now();
        let held = state.held.clone();
        drop(state);
        let beliefs = self.beliefs(&held);
        self.restore(&beliefs);
        self.judge(&Event::Looked(&beliefs));
    }

    /// Ends the exception for work under a grant whose worker's clock stood still. The exception ends once a
    /// majority has extended the grant by a request that was sent after the clock continued.
    fn restore(&self, beliefs: &[Belief]) {
        let sound = |job: &Job| {
            let mut beliefs = beliefs.iter().filter(|belief| belief.lease == job.held);
            beliefs.any(|belief| belief.valid && !belief.clock_stood)
        };
        let mut restored = 0;
        for job in self.state().work.values_mut().filter(|job| sound(job)) {
            let stood_at = Some(job.host.machine().stood_at());
            restored += usize::from(std::mem::replace(&mut job.stood_before, stood_at) != stood_at);
        }
        (0..restored).for_each(|_| self.count("work judged again"));
    }

    /// Records that a worker's code has received `lease`.
    pub fn granted(&self, host: &Arc<Host>, lease: Lease) -> Arc<Held> {
        let (resource, token) = (lease.resource().clone(), lease.unchecked_token().get());
        // No simulated worker changes the step-down grace from its default, a fifth of the TTL.
        let grace = lease.ttl() / 5;
        self.holds(host, Holder::Lease(Arc::new(lease)), resource, token, grace)
    }

    /// Records that a worker's code has received `holder`.
    pub fn holds(
        &self,
        host: &Arc<Host>,
        holder: Holder,
        resource: Resource,
        token: u64,
        grace: Duration,
    ) -> Arc<Held> {
        let kind = match holder {
            Holder::Lease(_) => "lease",
            Holder::ReadLease(_) => "reader's lease",
            Holder::Term(_) => "term",
            Holder::Claim(_) => "claim",
            Holder::Shard(_) => "shard",
        };
        let nodes = self.list(host);
        let mut state = self.state();
        state.held.retain(|held| !held.is_over());
        let holder = Mutex::new(Some(holder));
        let (id, host) = (state.next(), Arc::clone(host));
        let held = Arc::new(Held { id, host, resource, token, grace, nodes, holder, seen: Mutex::default() });
        state.held.push(Arc::clone(&held));
        drop(state);
        if let Some(belief) = self.beliefs(std::slice::from_ref(&held)).pop() {
            self.trace.note(format_args!("{} holds {} under {token}", belief.worker, belief.resource));
            let late = if belief.valid { "" } else { " too late" };
            self.count(&format!("{kind} granted{late}"));
            self.judge(&Event::Granted(&belief));
            let working = self.working(&belief);
            self.judge(&Event::Succeeded { belief: &belief, working: &working });
            if kind == "term"
                && self.state().last_leader.replace(Arc::clone(&belief.worker)) != Some(belief.worker)
            {
                self.count("leader changed");
            }
        }
        self.look();
        held
    }

    /// Records that a worker's code begins to work under the grant `held`. When the returned guard is
    /// dropped, the referee records the end of this work.
    pub fn begin(self: &Arc<Self>, held: &Held, what: &str) -> Work {
        let belief = self.belief(held, self.truth.now(), &[]);
        let stale = belief.is_some_and(|belief| belief.clock_stood);
        let mut state = self.state();
        let id = state.next();
        let job = Job {
            host: Arc::clone(&held.host),
            resource: held.resource.clone(),
            token: held.token,
            what: what.into(),
            held: held.id,
            stood_before: (!stale).then_some(held.host.machine().stood_at()),
        };
        state.work.insert(id, job);
        Work { referee: Arc::clone(self), id }
    }

    /// Returns `true` if the worker considers the grant `held` valid, and its clock has not stood still.
    pub(super) fn is_sound(&self, held: &Held) -> bool {
        self.belief(held, self.truth.now(), &[]).is_some_and(|belief| belief.valid && !belief.clock_stood)
    }

    /// Returns the work that runs under other grants of the same resource.
    fn working(&self, belief: &Belief) -> Vec<Working> {
        let now = self.truth.now();
        let state = self.state();
        let others =
            state.work.values().filter(|job| job.resource == belief.resource && job.token != belief.token);
        let working = others.map(|job| Working {
            worker: Arc::clone(job.host.name()),
            what: Arc::clone(&job.what),
            token: job.token,
            awake_for: job.host.awake_since().map(|since| now.saturating_sub(since)),
            clock_stood: !self.excuses_none.load(Ordering::Relaxed)
                && job.stood_before != Some(job.host.machine().stood_at()),
        });
        working.collect()
    }

    /// Records that the handler of `tick` begins to work under `held`.
    pub fn tick_started(self: &Arc<Self>, held: &Held, tick: &RunContext) -> TickRun {
        let work = self.begin(held, tick.job());
        let belief = self.belief(held, self.truth.now(), &[]);
        let valid = tick.fencing_token().is_ok();
        let start = TickStart {
            run: work.id,
            worker: Arc::clone(held.host.name()),
            job: Arc::clone(tick.job()),
            at: tick.scheduled_at(),
            token: held.token,
            valid,
            true_wall: self.true_wall(),
            ahead: self.most_were_ahead(),
            clock_stood: belief.is_some_and(|belief| belief.clock_stood),
        };
        let again = if tick.is_catch_up() { " again" } else { "" };
        let text = format!("{} starts {}{again}, due at {:?}", start.worker, start.job, start.at);
        self.trace.note(format_args!("{text} under {}", start.token));
        self.judge(&Event::TickStarted(&start));
        TickRun { work, tick: tick.clone(), end: None }
    }

    /// Returns the largest amount by which the clocks of a majority of the servers were ahead of the true
    /// time, within the last [`RECENTLY`].
    fn most_were_ahead(&self) -> Duration {
        let mut ahead = self.servers_ahead();
        ahead.sort_unstable_by(|one, other| other.cmp(one));
        ahead.get(MAJORITY - 1).copied().unwrap_or_default()
    }

    /// Returns for each server the largest amount by which its clock was ahead of the true time, within the
    /// last [`RECENTLY`].
    pub(super) fn servers_ahead(&self) -> Vec<Duration> {
        self.servers().iter().map(|(_, server)| was_ahead(server, RECENTLY)).collect()
    }

    /// Locks and returns the active runs of the second group, the pool.
    pub(super) fn going(&self) -> MutexGuard<'_, AllGoing> {
        job_run::lock(&self.going)
    }

    /// Writes a line into the trace.
    pub(super) fn note(&self, line: fmt::Arguments<'_>) {
        self.trace.note(line);
    }

    /// Returns the true wall time.
    pub fn true_wall(&self) -> WallTime {
        true_wall(self.truth.now())
    }

    /// Records that a write has reached an external store.
    pub fn wrote(&self, write: &Write) {
        let lost = write.accepted && write.base != write.stands;
        self.count(match (write.checked, write.accepted) {
            (true, true) => "checked write taken",
            (true, false) => "checked write refused",
            (false, _) if lost => "unchecked write lost an update",
            (false, _) => "unchecked write taken",
        });
        self.judge(&Event::Wrote(write));
    }

    /// Returns the true time.
    pub fn truth(&self) -> Truth {
        self.truth
    }

    /// Returns a number that grows with each call.
    pub fn next_number(&self) -> u64 {
        self.state().next()
    }

    /// Records that the faults are over. From now on the simulated workers do not fail on purpose.
    pub fn end_faults(&self) {
        self.state().calm = true;
    }

    /// Returns `true` once the faults are over.
    pub fn is_calm(&self) -> bool {
        self.state().calm
    }

    /// Returns the fencing token of the worker that now considers itself the leader of `group`, or `None` if no
    /// worker does.
    pub fn leader(&self, group: &Resource) -> Option<u64> {
        self.leader_of(group).map(|(_, token)| token)
    }

    /// Returns the name of that worker, and its fencing token.
    pub fn leader_of(&self, group: &Resource) -> Option<(Arc<str>, u64)> {
        let now = self.truth.now();
        let held = self.state().held.clone();
        let leading = held.iter().filter(|held| held.resource == *group);
        leading
            .filter_map(|held| held.belief(now, &[], &self.setup))
            .find(|belief| belief.valid)
            .map(|belief| (belief.worker, belief.token))
    }

    /// Records that the process `host` has crashed or ended. From now on its worker no longer counts as a
    /// holder.
    pub fn process_gone(&self, host: &Arc<Host>) {
        let held = self.state().held.clone();
        for held in held.iter().filter(|held| Arc::ptr_eq(&held.host, host)) {
            drop(held.take());
        }
        self.state().held.retain(|held| !held.is_over());
    }

    /// Counts an event under the name `what`. The counts show which events a run has reached.
    pub fn count(&self, what: &str) {
        let mut state = self.state();
        match state.coverage.get_mut(what) {
            Some(count) => *count += 1,
            None => drop(state.coverage.insert(what.to_owned(), 1)),
        }
    }

    /// Records a failure that violates no invariant, such as a panic.
    pub fn fail(&self, what: &str) {
        self.violate(what.to_owned());
    }

    /// Returns the violations, and the number of times that each counted event happened.
    pub fn verdict(&self) -> (Vec<String>, BTreeMap<String, u64>) {
        let state = self.state();
        let mut coverage = state.coverage.clone();
        for (what, count) in state.exchanges.counts() {
            *coverage.entry(what.to_owned()).or_default() += count;
        }
        for (what, count) in state.invariants.iter().flat_map(|invariant| invariant.judged()) {
            *coverage.entry(what.to_owned()).or_default() += count;
        }
        (state.violations.clone(), coverage)
    }

    fn beliefs(&self, held: &[Arc<Held>]) -> Vec<Belief> {
        let now = self.truth.now();
        let servers = self.servers();
        let backers: Vec<Backer<'_>> =
            servers.iter().map(|(at, server)| Backer::of(*at, server, now)).collect();
        held.iter().filter_map(|held| self.belief(held, now, &backers)).collect()
    }

    fn belief(&self, held: &Held, now: Duration, servers: &[Backer<'_>]) -> Option<Belief> {
        let belief = held.belief(now, servers, &self.setup)?;
        let excused = belief.clock_stood && !self.excuses_none.load(Ordering::Relaxed);
        let forced = self.state().forced(belief.owner.as_ref());
        Some(Belief { clock_stood: excused, forced, ..belief })
    }

    /// Judges only `event`. [`tell`](Self::tell) also judges the state of all grants at this moment.
    pub(super) fn judge(&self, event: &Event<'_>) {
        let now = self.truth.now();
        let mut found = Vec::new();
        for invariant in &mut self.state().invariants {
            if let Err(why) = invariant.see(now, event) {
                found.push(format!("{}: {why}", invariant.name()));
            }
        }
        found.into_iter().for_each(|found| self.violate(found));
    }

    fn violate(&self, what: String) {
        self.trace.note(format_args!("VIOLATION {what}"));
        let at = self.truth.now();
        self.state().violations.push(format!("at {at:?}: {what}"));
    }

    /// Returns the servers that exist, each with its index.
    fn servers(&self) -> Vec<(usize, Arc<Server>)> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let existing = |(at, server): (usize, &Weak<Server>)| Some((at, server.upgrade()?));
        servers.iter().enumerate().filter_map(existing).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
