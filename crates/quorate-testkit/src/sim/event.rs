//! The events of a simulation, from which the invariants judge it. The simulation has two groups with jobs:
//! the first runs its jobs on its leader, and the second, also called the pool, runs most of its jobs on any
//! worker.

use super::{Asked, Promises, RunEnd, RunStart, Told};
use quorate::{
    env::WallTime,
    node::{Owner, Reply, Request, Resource},
    scheduler::HistoryEntry,
};
use std::{sync::Arc, time::Duration};

/// An event of a run, which the invariants judge.
#[derive(Debug)]
pub enum Event<'a> {
    /// A server ran a request.
    Ran {
        /// The server.
        node: &'a str,
        /// The request.
        request: &'a Request,
        /// The reply.
        reply: &'a Reply,
    },
    /// A server lost its memory, or a part of it.
    Forgot {
        /// The server.
        node: &'a str,
    },
    /// A worker's code received a lease, a term or a claim.
    Granted(&'a Belief),
    /// A worker received a grant. Some work may still run under earlier grants of the same resource.
    Succeeded {
        /// The new grant.
        belief: &'a Belief,
        /// The work that still runs under the earlier grants.
        working: &'a [Working],
    },
    /// The beliefs of all workers at this moment: for each lease, term and claim, the result that its worker would get
    /// if it checked now.
    Looked(&'a [Belief]),
    /// A leader has sealed the ledger. The event comes from the leader's log.
    Sealed {
        /// The leader's term.
        term: u64,
        /// The servers whose answers the leader counted.
        nodes: &'a [&'a str],
    },
    /// A leader reports in its log that a tick will not be started.
    TickLost {
        /// The job's name.
        job: &'a str,
        /// The time when the tick was due, as [`Schedule::format`](quorate::scheduler::Schedule::format) writes
        /// it.
        tick: &'a str,
        /// The term that the report names.
        term: u64,
        /// The reason.
        reason: &'a str,
    },
    /// The handler of a job of the first group is called for a tick.
    TickStarted(&'a TickStart),
    /// A run of a job of the first group has ended.
    TickEnded {
        /// The number of the run.
        run: u64,
        /// The way in which the run ended.
        end: RunOutcome,
    },
    /// The handler of a job of the second group, the pool, is called.
    RunStarted(&'a RunStart),
    /// A run of a job of the second group has ended.
    RunEnded {
        /// The number of the run.
        run: u64,
        /// The way in which the run ended.
        end: RunEnd,
    },
    /// The operator is about to send a request.
    Asked(&'a Asked),
    /// The operator received the answer to its request.
    Answered {
        /// The number of the request, unique in this history.
        number: u64,
        /// The answer.
        told: &'a Told,
    },
    /// The operator has read the history of a job of the second group, after the workers stopped.
    HistoryRead {
        /// The job's name.
        job: &'a str,
        /// All entries.
        entries: &'a [HistoryEntry],
        /// The answer to a read of only the first few entries.
        page: &'a [HistoryEntry],
    },
    /// The second group is no longer active, and its histories have been read.
    Settled {
        /// The true wall time since which the group's workers have run its jobs without a fault.
        since: WallTime,
        /// The true wall time at which the observation of the group ended. The workers were stopped after
        /// that.
        until: WallTime,
    },
    /// The guarantees that the plan of this run requires, in addition to those that every plan requires.
    Promised(Promises),
    /// A worker learned that a majority stores the done record of its claim.
    Completed {
        /// The worker.
        worker: &'a str,
        /// The claim.
        resource: &'a Resource,
        /// The token of the claim under which the worker completed it.
        token: u64,
    },
    /// A worker that tried to claim a message learned that it is already done.
    ToldDone {
        /// The worker.
        worker: &'a str,
        /// The claim.
        resource: &'a Resource,
        /// The recorded result of the message, as the worker received it.
        result: &'a str,
    },
    /// A write reached an external store. There are two stores: one compares fencing tokens, the other does
    /// not.
    Wrote(&'a Write),
    /// The check of all ticks, after the faults. By now a leader has had enough time to run every missed
    /// tick.
    Reckoned {
        /// The true wall time by which the leader must have caught up on all missed ticks.
        served_since: WallTime,
        /// The true wall time of the check.
        now: WallTime,
    },
    /// A worker's wait for a lease after the faults has ended.
    Calm {
        /// The worker that waited.
        worker: &'a str,
        /// The time that the wait took, in true time.
        took: Duration,
        /// The longest time that it may take.
        bound: Duration,
        /// The token of the lease, or the reason why the worker got none.
        got: Result<u64, String>,
    },
    /// The leases that a server stores after the faults, although no worker holds them any more.
    LeftoverLeases {
        /// The server.
        node: &'a str,
        /// The leases, each with its resource, its owner token, and the remaining time.
        leases: &'a [(Resource, String, Duration)],
    },
    /// A worker's process has been asked to end.
    Ended {
        /// The worker.
        worker: &'a str,
        /// The number of its tasks that have not ended.
        tasks: usize,
        /// The panic messages of its tasks.
        panics: &'a [String],
    },
}

/// One worker's belief about one lease, term or claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Belief {
    /// The number of the lease, unique in this history.
    pub lease: u64,
    /// The worker.
    pub worker: Arc<str>,
    /// The resource.
    pub resource: Resource,
    /// The fencing token of the grant.
    pub token: u64,
    /// Set if the worker considers the grant valid.
    pub valid: bool,
    /// Set if, by the worker's clock, the validity has ended or ends within the step-down grace.
    pub ending: bool,
    /// Set if the work under the grant has been asked to stop.
    pub asked_to_stop: bool,
    /// The number of servers that store the lease, or that cannot vote for another owner now
    /// ([`Server::backs`](super::Server::backs)).
    pub backed_by: usize,
    /// Set if the worker's boot clock stood still after the worker had sent the requests on which the
    /// validity rests. Then the validity may have ended without the worker's knowledge. Cleared once a
    /// majority has extended the grant by a request that was sent while the clock ran.
    pub clock_stood: bool,
    /// The owner token; `None` for terms and claims, which do not reveal it.
    pub owner: Option<Owner>,
    /// The time for which the worker's process has run without a pause; `None` while it is paused.
    pub awake_for: Option<Duration>,
}

/// Code that runs under a term or a claim, and that the library must end in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Working {
    /// The worker.
    pub worker: Arc<str>,
    /// The kind of work, as a report names it.
    pub what: Arc<str>,
    /// The fencing token under which the code works.
    pub token: u64,
    /// The time for which the worker's process has run without a pause; `None` while it is paused or gone.
    pub awake_for: Option<Duration>,
    /// Set if the worker's boot clock stood still since the work began, or earlier under the same grant.
    /// Cleared once a majority has extended that grant by a request that was sent while the clock ran.
    pub clock_stood: bool,
}

/// The start of a run of a tick, by a job of the first group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickStart {
    /// The number of the run, unique in this history.
    pub run: u64,
    /// The worker.
    pub worker: Arc<str>,
    /// The job's name.
    pub job: Arc<str>,
    /// The time when the tick was due.
    pub at: WallTime,
    /// The fencing token of the term.
    pub token: u64,
    /// Set if the leader considers its term valid.
    pub valid: bool,
    /// The true wall time of the start.
    pub true_wall: WallTime,
    /// The largest amount by which the clocks of a majority of the servers were ahead of the true time within
    /// the last seconds. These clocks decide when a tick is due.
    pub ahead: Duration,
    /// Set if the worker's boot clock stood still since the term was last extended. The worker then cannot
    /// know whether the term has ended.
    pub clock_stood: bool,
}

/// The end of a run of a tick, of a job of the first group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// The handler of the run returned, panicked, or timed out.
    Itself,
    /// The run was interrupted: its term, its worker or its leader's work ended, or its handler returned
    /// early because it was asked to stop.
    Torn,
}

/// A write to an external store. The writer computed the value from a version that it had read before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Set if the store compares fencing tokens.
    pub checked: bool,
    /// The register that is written.
    pub register: Arc<str>,
    /// The writer's fencing token.
    pub token: u64,
    /// The version that the writer had read.
    pub base: u64,
    /// The version that the store has when the write arrives.
    pub stands: u64,
    /// Set if the store accepted the write.
    pub accepted: bool,
}
