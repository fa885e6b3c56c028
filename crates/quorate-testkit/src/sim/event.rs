use quorate::{
    env::WallTime,
    node::{Owner, Reply, Request, Resource},
};
use std::{sync::Arc, time::Duration};

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
    /// A worker's code received a lease, a term or a claim.
    Granted(&'a Belief),
    /// The same moment: what still works under earlier grants of the same resource.
    Succeeded {
        /// The new grant.
        belief: &'a Belief,
        /// The work of the earlier ones.
        working: &'a [Working],
    },
    /// What every worker would say of its leases, terms and claims at this moment, if it looked.
    Looked(&'a [Belief]),
    /// A leader has sealed the ledger, by its own log.
    Sealed {
        /// The term.
        term: u64,
        /// The servers whose answers it goes by.
        nodes: &'a [&'a str],
    },
    /// A leader reports in its log that a tick will not be started.
    TickLost {
        /// The job's name.
        job: &'a str,
        /// When the tick was due, as [`Schedule::show`](quorate::schedule::Schedule::show) writes it.
        tick: &'a str,
        /// The term that the report names.
        term: u64,
        /// The reason.
        reason: &'a str,
    },
    /// The handler of a job's tick is called.
    TickStarted(&'a TickStart),
    /// That run is over.
    TickEnded {
        /// Which run.
        run: u64,
        /// How it ended.
        end: TickEnd,
    },
    /// A worker was told that its done record stands at a majority.
    Completed {
        /// Which worker.
        worker: &'a str,
        /// The claim.
        resource: &'a Resource,
        /// The token under which it was completed.
        token: u64,
    },
    /// A worker that claimed was told that the message is done.
    ToldDone {
        /// Which worker.
        worker: &'a str,
        /// The claim.
        resource: &'a Resource,
        /// What is said to have come of it.
        result: &'a str,
    },
    /// A write reached a store outside, which either compares fencing tokens or does not.
    Wrote(&'a Write),
    /// After the faults, with a leader that has had the time to make up for what was missed.
    Reckoned {
        /// The true wall time from which on the leader has served without a break.
        served_since: WallTime,
        /// The true wall time.
        now: WallTime,
    },
    /// After the faults: what came of waiting for something, and how long it took.
    Calm {
        /// Who waited.
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

/// What one worker believes of one lease, term or claim.
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
    /// Whether the worker's boot clock has stood still since the requests left on which the validity rests, so
    /// that it may have ended without the worker's knowing. No longer once a majority has extended it at the
    /// request of a clock that runs.
    pub clock_stood: bool,
    /// The token that signs it, where its holder tells.
    pub owner: Option<Owner>,
    /// For how long the worker's process has run without a pause; `None` while it is paused.
    pub awake_for: Option<Duration>,
}

/// Code that runs under a term or a claim and that the shipped code must end in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Working {
    /// Whose it is.
    pub worker: Arc<str>,
    /// What it does.
    pub what: Arc<str>,
    /// The fencing token under which it works.
    pub token: u64,
    /// For how long the worker's process has run without a pause; `None` while it is paused or gone.
    pub awake_for: Option<Duration>,
    /// Whether the worker's boot clock has stood still since the work began, or before under the same grant, and
    /// no majority has extended that grant since at the request of a clock that runs.
    pub clock_stood: bool,
}

/// One start of one tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickStart {
    /// The run, of all in this history.
    pub run: u64,
    /// Which worker.
    pub worker: Arc<str>,
    /// The job's name.
    pub job: Arc<str>,
    /// When it was due.
    pub at: WallTime,
    /// The term.
    pub token: u64,
    /// Whether the leader takes its term for valid.
    pub valid: bool,
    /// The true wall time.
    pub true_wall: WallTime,
    /// By how much the clocks of a majority of the servers were ahead of the truth within the last seconds: a tick is
    /// due by them.
    pub ahead: Duration,
    /// Whether the worker's boot clock has stood still since the term was last extended: it cannot know whether
    /// the term has ended.
    pub clock_stood: bool,
}

/// How one run of a tick ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickEnd {
    /// Its handler returned, panicked, or ran into its timeout.
    Itself,
    /// It was dropped: its term, its worker or its leader's work ended, or it was told to stop and said so.
    Torn,
}

/// A write to a store outside: of a value that was made from what had been read before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Whether the store compares fencing tokens.
    pub checked: bool,
    /// What is written to.
    pub register: Arc<str>,
    /// The writer's fencing token.
    pub token: u64,
    /// The version that the writer had read.
    pub base: u64,
    /// The version that stood.
    pub stands: u64,
    /// Whether the store took it.
    pub accepted: bool,
}
