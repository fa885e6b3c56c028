use super::{Asked, Promises, RunEnd, RunStart, Told};
use quorate::{
    env::WallTime,
    node::{Owner, Reply, Request, Resource},
    scheduler::HistoryEntry,
};
use std::{sync::Arc, time::Duration};

/// An event that an invariant may judge.
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
    /// A server lost its memory.
    Forgot {
        /// The server.
        node: &'a str,
    },
    /// A worker's code received a lease, a term or a claim.
    Granted(&'a Belief),
    /// The work that still runs under earlier grants of the same resource, at the moment of a new grant.
    Succeeded {
        /// The new grant.
        belief: &'a Belief,
        /// The work of the earlier ones.
        working: &'a [Working],
    },
    /// The beliefs that every worker would have of its leases, terms and claims at this moment, if it
    /// looked.
    Looked(&'a [Belief]),
    /// A leader has sealed the ledger, according to its log.
    Sealed {
        /// The term.
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
    /// The handler of a job's tick is called.
    TickStarted(&'a TickStart),
    /// A run of a tick has ended.
    TickEnded {
        /// The run.
        run: u64,
        /// Its end.
        end: RunOutcome,
    },
    /// The handler of a job of the second group is called.
    RunStarted(&'a RunStart),
    /// A run of such a job has ended.
    RunEnded {
        /// The run.
        run: u64,
        /// Its end.
        end: RunEnd,
    },
    /// The operator is about to send a request.
    Asked(&'a Asked),
    /// The operator received the answer to its request.
    Answered {
        /// The request, of all in this history.
        number: u64,
        /// The answer.
        told: &'a Told,
    },
    /// After the workers have stopped, the operator has read the history of a job of the second group.
    HistoryRead {
        /// The job.
        job: &'a str,
        /// All entries.
        entries: &'a [HistoryEntry],
        /// The answer to a request for the first few.
        page: &'a [HistoryEntry],
    },
    /// The histories have been read: the second group does nothing more.
    Settled {
        /// The true wall time since which its workers have run its jobs without a fault.
        since: WallTime,
        /// The true wall time at which the workers were stopped.
        until: WallTime,
    },
    /// The guarantees that this plan verifies beyond those of today.
    Promised(Promises),
    /// A worker received the result that its done record is stored on a majority.
    Completed {
        /// The worker.
        worker: &'a str,
        /// The claim.
        resource: &'a Resource,
        /// The token under which it was completed.
        token: u64,
    },
    /// A worker that tried to claim received the result that the message is done.
    ToldDone {
        /// The worker.
        worker: &'a str,
        /// The claim.
        resource: &'a Resource,
        /// The recorded result that the worker received.
        result: &'a str,
    },
    /// A write reached an external store, which either compares fencing tokens or does not.
    Wrote(&'a Write),
    /// The state after the faults, when a leader has had the time to run every missed tick.
    Reckoned {
        /// The true wall time since which the leader has led without a break.
        served_since: WallTime,
        /// The true wall time.
        now: WallTime,
    },
    /// The result of waiting for something after the faults, and the time that it took.
    Calm {
        /// The worker that waited.
        worker: &'a str,
        /// The time that the wait took, in true time.
        took: Duration,
        /// The longest time that it may take.
        bound: Duration,
        /// The token, or the reason for which there is none.
        got: Result<u64, String>,
    },
    /// Leases that are stored on a server after the faults, though no worker holds one any more.
    LeftoverLeases {
        /// The server.
        node: &'a str,
        /// The leases.
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
    /// The number of the lease, unique in this run.
    pub lease: u64,
    /// The worker.
    pub worker: Arc<str>,
    /// The resource.
    pub resource: Resource,
    /// Its fencing token.
    pub token: u64,
    /// Set if the worker takes it for valid.
    pub valid: bool,
    /// Set if by the worker's clock its validity has ended, or ends within the step-down grace.
    pub ending: bool,
    /// Set if its work has been asked to stop.
    pub asked_to_stop: bool,
    /// The number of servers that hold it, or that cannot vote for another owner because they forgot.
    pub backed_by: usize,
    /// Set if the worker's boot clock has stood still since the requests were sent on which the validity
    /// rests: it may then have ended without the worker's knowledge. Cleared once a majority has extended
    /// it by a request that was sent while the clock ran.
    pub clock_stood: bool,
    /// The owner token, if the holder reveals it.
    pub owner: Option<Owner>,
    /// The time for which the worker's process has run without a pause; `None` while it is paused.
    pub awake_for: Option<Duration>,
}

/// Code that runs under a term or a claim, and that the shipped code must end in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Working {
    /// The worker.
    pub worker: Arc<str>,
    /// The kind of work.
    pub what: Arc<str>,
    /// The fencing token under which it works.
    pub token: u64,
    /// The time for which the worker's process has run without a pause; `None` while it is paused or gone.
    pub awake_for: Option<Duration>,
    /// Set if the worker's boot clock has stood still since the work began, or earlier under the same
    /// grant. Cleared once a majority has extended that grant by a request that was sent while the clock
    /// ran.
    pub clock_stood: bool,
}

/// One start of one tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickStart {
    /// The number of the run, unique in this history.
    pub run: u64,
    /// The worker.
    pub worker: Arc<str>,
    /// The job's name.
    pub job: Arc<str>,
    /// The time when it was due.
    pub at: WallTime,
    /// The term.
    pub token: u64,
    /// Set if the leader takes its term for valid.
    pub valid: bool,
    /// The true wall time.
    pub true_wall: WallTime,
    /// The amount by which the clocks of a majority of the servers were ahead of the true time within the
    /// last seconds: their clocks decide when a tick is due.
    pub ahead: Duration,
    /// Set if the worker's boot clock has stood still since the term was last extended: the worker then
    /// cannot know whether the term has ended.
    pub clock_stood: bool,
}

/// The end of one run of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// Its handler returned, panicked, or timed out.
    Itself,
    /// It was interrupted: its term, its worker or its leader's work ended, or it returned early because it
    /// was asked to stop.
    Torn,
}

/// A write to an external store, of a value that was made from what the writer had read before.
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
    /// The version that is stored.
    pub stands: u64,
    /// Set if the store accepted the write.
    pub accepted: bool,
}
