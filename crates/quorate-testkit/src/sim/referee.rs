use super::{
    Host, Server, Trace, Truth,
    invariant::{Invariant, all},
    trace::short,
};
use quorate::{
    lease::Lease,
    node::{Owner, Reply, Request, Resource},
    round::Setup,
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

/// Something that an invariant may judge.
#[derive(Debug)]
pub enum Event<'a> {
    /// A server ran a request.
    Ran {
        /// Which server.
        node: &'a str,
        /// What was asked.
        request: &'a Request,
        /// What it said.
        reply: &'a Reply,
    },
    /// A server lost its memory.
    Forgot {
        /// Which server.
        node: &'a str,
    },
    /// A worker's code received a lease.
    Granted(&'a Belief),
    /// What every worker would say of its leases at this moment, if it looked.
    Looked(&'a [Belief]),
    /// After the faults: what came of an acquire, and how long it took.
    Calm {
        /// Who tried.
        worker: &'a str,
        /// How long it took, in true time.
        took: Duration,
        /// How long it may take.
        bound: Duration,
        /// The token, or why not.
        got: Result<u64, String>,
    },
    /// After the faults: leases that stand on a server though nobody holds one any more.
    Stands {
        /// Which server.
        node: &'a str,
        /// The leases.
        leases: &'a [(Resource, String, Duration)],
    },
    /// A worker's process has been told to end.
    Ended {
        /// Which worker.
        worker: &'a str,
        /// How many of its tasks have not ended.
        tasks: usize,
        /// What its tasks panicked with.
        panics: &'a [String],
    },
}

/// What one worker believes of one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Belief {
    /// The lease, of all in this run.
    pub lease: u64,
    /// Whose it is.
    pub worker: Arc<str>,
    /// What is held.
    pub resource: Resource,
    /// Its fencing token.
    pub token: u64,
    /// Whether the worker takes it for valid.
    pub valid: bool,
    /// Whether its validity ends within the step-down grace, or has ended, by the worker's clock.
    pub ending: bool,
    /// Whether its work has been told to stop.
    pub told: bool,
    /// How many servers hold it, or cannot vote for anyone else because they forgot.
    pub backed_by: usize,
    /// Whether the worker's boot clock has stood still since the requests left on which the lease's validity
    /// rests, so that it may have ended without the worker's knowing. No longer once a majority has extended
    /// it at the request of a clock that runs.
    pub clock_stood: bool,
    /// The token that signs it.
    pub owner: Owner,
    /// For how long the worker's process has run without a pause; `None` while it is paused.
    pub awake_for: Option<Duration>,
}

/// A lease that the referee can look at while its holder works.
#[derive(Debug)]
pub struct Held {
    id: u64,
    host: Arc<Host>,
    lease: Mutex<Option<Arc<Lease>>>,
}

impl Held {
    /// The lease, to work with.
    pub fn lease(&self) -> Option<Arc<Lease>> {
        self.slot().clone()
    }

    /// Takes the lease out: from here on its holder believes nothing.
    pub fn take(&self) -> Option<Arc<Lease>> {
        self.slot().take()
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Lease>>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn belief(&self, now: Duration, servers: &[Weak<Server>], setup: &Setup) -> Option<Belief> {
        let lease = self.lease()?;
        // The builder's default, which no worker changes.
        let grace = lease.ttl() / 5;
        let valid = lease.is_valid();
        let sent = lease.valid_until().map(|until| (until - setup.validity(lease.ttl())).as_nanos());
        let stood = self.host.machine().stood_at();
        let backs = |server: &Arc<Server>| valid && server.backs(lease.resource(), lease.owner());
        Some(Belief {
            lease: self.id,
            worker: Arc::clone(self.host.name()),
            resource: lease.resource().clone(),
            token: lease.token().get(),
            valid,
            ending: lease.remaining() <= grace,
            backed_by: servers.iter().filter_map(Weak::upgrade).filter(backs).count(),
            told: lease.step_down().is_cancelled(),
            clock_stood: sent.is_some_and(|sent| stood.is_some_and(|stood| sent <= stood)),
            owner: lease.owner().clone(),
            awake_for: self.host.awake_since().map(|since| now.saturating_sub(since)),
        })
    }
}

/// Sees true time and everything that happens, and holds it against the invariants.
#[derive(Debug)]
pub struct Referee {
    truth: Truth,
    trace: Trace,
    setup: Setup,
    excuses_none: AtomicBool,
    servers: Mutex<Vec<Weak<Server>>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    invariants: Vec<Box<dyn Invariant>>,
    held: Vec<Arc<Held>>,
    leases: u64,
    violation: Option<String>,
    coverage: BTreeMap<String, u64>,
}

impl Referee {
    /// A referee over every invariant, for workers that agree on `setup`.
    pub fn new(truth: Truth, trace: Trace, setup: Setup) -> Arc<Self> {
        let state = State {
            invariants: all(),
            held: Vec::new(),
            leases: 0,
            violation: None,
            coverage: BTreeMap::new(),
        };
        Arc::new(Self {
            truth,
            trace,
            setup,
            excuses_none: AtomicBool::new(false),
            servers: Mutex::default(),
            state: Mutex::new(state),
        })
    }

    /// From here on judges nothing that rests on an assumption about time.
    pub fn judge_only_what_needs_no_time(&self) {
        self.state().invariants.retain(|invariant| invariant.is_timeless());
    }

    /// From here on holds it against a worker that its clock stood still, to prove that it would be noticed.
    pub fn excuse_no_clock(&self) {
        self.excuses_none.store(true, Ordering::Relaxed);
    }

    /// The servers that leases stand on.
    pub fn watch_servers(&self, servers: &[Arc<Server>]) {
        let servers = servers.iter().map(Arc::downgrade).collect();
        *self.servers.lock().unwrap_or_else(PoisonError::into_inner) = servers;
    }

    /// Judges an event, and then what everybody believes at this moment.
    pub fn tell(&self, event: &Event<'_>) {
        self.judge(event);
        if let Event::Ran { request, reply, .. } = event {
            self.count(&outcome(request, reply));
        }
        self.look();
    }

    /// Judges what everybody believes at this moment.
    pub fn look(&self) {
        let now = self.truth.now();
        let held = self.state().held.clone();
        let servers = self.servers();
        let beliefs: Vec<Belief> = held.iter().filter_map(|held| self.belief(held, now, &servers)).collect();
        self.judge(&Event::Looked(&beliefs));
    }

    /// A worker's code has received `lease`.
    pub fn granted(&self, host: &Arc<Host>, lease: Lease) -> Arc<Held> {
        let (owner, resource, token): (Owner, _, _) =
            (lease.owner().clone(), lease.resource().clone(), lease.token());
        let mut state = self.state();
        state.leases += 1;
        let lease = Mutex::new(Some(Arc::new(lease)));
        let held = Arc::new(Held { id: state.leases, host: Arc::clone(host), lease });
        state.held.retain(|held| held.slot().is_some());
        state.held.push(Arc::clone(&held));
        drop(state);
        if let Some(belief) = self.belief(&held, self.truth.now(), &self.servers()) {
            self.trace.note(format_args!("{} holds {resource} under {token}", short(&owner)));
            self.count(if belief.valid { "lease granted" } else { "lease granted too late" });
            self.judge(&Event::Granted(&belief));
        }
        self.look();
        held
    }

    /// The process `host` is gone: what it believed is gone with it.
    pub fn bury(&self, host: &Arc<Host>) {
        let held = self.state().held.clone();
        for held in held.iter().filter(|held| Arc::ptr_eq(&held.host, host)) {
            drop(held.take());
        }
    }

    /// Counts something that the simulation is meant to reach.
    pub fn count(&self, what: &str) {
        let mut state = self.state();
        match state.coverage.get_mut(what) {
            Some(count) => *count += 1,
            None => drop(state.coverage.insert(what.to_owned(), 1)),
        }
    }

    /// Something went wrong that is no invariant's business.
    pub fn fail(&self, what: &str) {
        self.violate(what.to_owned());
    }

    /// The first violation, and what was reached how often.
    pub fn verdict(&self) -> (Option<String>, BTreeMap<String, u64>) {
        let state = self.state();
        (state.violation.clone(), state.coverage.clone())
    }

    fn belief(&self, held: &Held, now: Duration, servers: &[Weak<Server>]) -> Option<Belief> {
        let belief = held.belief(now, servers, &self.setup)?;
        let excused = belief.clock_stood && !self.excuses_none.load(Ordering::Relaxed);
        Some(Belief { clock_stood: excused, ..belief })
    }

    fn judge(&self, event: &Event<'_>) {
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
        self.state().violation.get_or_insert_with(|| format!("at {at:?}: {what}"));
    }

    fn servers(&self) -> Vec<Weak<Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What kind of request came to what.
fn outcome(request: &Request, reply: &Reply) -> String {
    let mut text = Name::of(request);
    text.push(' ');
    text += &Name::of(reply);
    if let Reply::Refused(why) = reply {
        text.push(' ');
        text += &Name::of(why);
    }
    text
}

/// The name of an enum's variant: its debug text up to the first delimiter.
struct Name(String);

impl Name {
    fn of(variant: &dyn fmt::Debug) -> String {
        let mut name = Self(String::new());
        // An error means that the name is complete.
        let _ = fmt::write(&mut name, format_args!("{variant:?}"));
        name.0
    }
}

impl fmt::Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let name = text.split([' ', '(', '{']).next().unwrap_or_default();
        self.0 += &name.to_lowercase();
        if name.len() == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
