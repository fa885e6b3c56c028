//! The events of a simulation. The invariants judge a run by these events. The simulation has two groups with
//! jobs: the first runs its jobs on its leader, and the second, also called the pool, runs most of its jobs on
//! any worker.

use super::{Asked, AttemptStep, Excuse, NodeList, RunEnd, RunStart, Told};
use quorate::{
    env::WallTime,
    node::{
        Owner, Reply, Request, Resource,
        copy::{LeadAct, Put},
    },
    scheduler::HistoryEntry,
};
use std::{sync::Arc, time::Duration};

/// An event of a simulation run. The invariants judge these events.
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
    /// A server lost all or some of its data.
    Forgot {
        /// The server.
        node: &'a str,
    },
    /// A server wrote a snapshot of its data to disk, between two batches.
    Saved {
        /// The server.
        node: &'a str,
    },
    /// A server that lost all its data has the data of its last snapshot again. This event follows
    /// [`Event::Forgot`].
    Restored {
        /// The server.
        node: &'a str,
    },
    /// A worker's code received a *grant*. In this module, a grant is a lease, a term or a claim.
    Granted(&'a Belief),
    /// A worker that never leads the first group follows its leader.
    NeverLeads {
        /// The worker.
        worker: &'a str,
    },
    /// A worker received a grant. Work may still run under earlier grants of the same resource.
    Succeeded {
        /// The new grant.
        belief: &'a Belief,
        /// The work that still runs under the earlier grants.
        working: &'a [Working],
    },
    /// A worker's code received a reader's lease.
    Read {
        /// The lease. Its token is zero.
        belief: &'a Belief,
        /// The token of the writer's lease that the worker turned into this lease. `None` if the worker acquired
        /// the lock for reading.
        downgraded: Option<u64>,
    },
    /// The operator is about to release a lease by force.
    Forces {
        /// The owner token of the lease.
        owner: &'a Owner,
    },
    /// A worker transferred a lease, and a majority has reserved the lock for the successor.
    Transferred {
        /// The worker that held the lease.
        worker: &'a str,
        /// The lock.
        resource: &'a Resource,
        /// The token of the lease.
        token: u64,
    },
    /// A worker asked for any one of several numbered slots, and acquired one.
    SlotGranted {
        /// The worker.
        worker: &'a str,
        /// The lock that the worker holds.
        resource: &'a Resource,
        /// The number of the slot, as the worker received it.
        number: usize,
    },
    /// In the fault-free phase, a worker asked once for a slot, without waiting, while no other worker did.
    SlotSought {
        /// The worker.
        worker: &'a str,
        /// The number of slots that are held.
        held: usize,
        /// True if the worker acquired a slot.
        found: bool,
    },
    /// A worker begins to work on a shard.
    Sharded {
        /// The worker.
        worker: &'a str,
        /// The number of shards of the set, as the worker received it.
        count: usize,
        /// The same number of the other works on shards of the set whose workers own them at this moment.
        others: &'a [usize],
    },
    /// In the fault-free phase, a waiter has waited for so long that it has joined the queue of its lock.
    Queued(&'a Waiter),
    /// In the fault-free phase, a worker acquired a lock that has a queue.
    Served {
        /// The worker.
        worker: &'a str,
        /// The worker's wait. `None` if the worker did not wait.
        waiter: Option<&'a Waiter>,
    },
    /// The beliefs about all grants at this moment. The belief about a grant has the results that the worker
    /// would get if the worker checked the grant now.
    Looked(&'a [Belief]),
    /// A leader reports in its log that it founds the ledger of its group, because a majority of the servers has nothing of it.
    Founded {
        /// The group.
        group: &'a str,
        /// The leader's term.
        term: u64,
    },
    /// A leader reports in its log that it will not start a tick, because the tick is lost.
    TickLost {
        /// The name of the job.
        job: &'a str,
        /// The time at which the tick was due, as [`Schedule::format`](quorate::scheduler::Schedule::format)
        /// writes it.
        tick: &'a str,
        /// The term that the report names.
        term: u64,
        /// The reason.
        reason: &'a str,
    },
    /// The handler of a job of the first group is about to run for a tick.
    TickStarted(&'a TickStart),
    /// A run of a job of the first group has ended.
    TickEnded {
        /// The number of the run.
        run: u64,
        /// The way in which the run ended.
        end: RunOutcome,
    },
    /// The handler of a job of the second group, the pool, is about to run.
    RunStarted(&'a RunStart),
    /// A run of a job of the second group has ended.
    RunEnded {
        /// The number of the run.
        run: u64,
        /// The way in which the run ended.
        end: RunEnd,
    },
    /// A step of a run of the third group.
    Ruled(&'a RuleRun),
    /// A step of a job that is stored on the nodes.
    JobStep {
        /// The name of the job.
        job: &'a str,
        /// The step.
        step: StoredStep,
    },
    /// The operator has read in the history of a job that was stored on the nodes for a single run that a freeze of the group
    /// left it out.
    StoredFrozen {
        /// The name of the job.
        job: &'a str,
    },
    /// The handler of a job that is stored on the nodes runs.
    StoredRun {
        /// The name of the job.
        job: &'a str,
        /// The tick.
        tick: WallTime,
        /// True if the run has the payload of the job.
        is_own_payload: bool,
    },
    /// The operator is about to send a request.
    Asked(&'a Asked),
    /// The operator received the result of its request, or stopped waiting for it.
    Answered {
        /// The number of the request, unique in this simulation.
        number: u64,
        /// The result, as the operator received it.
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
    /// The workers of the second group were stopped, and its histories have been read. The invariants now check
    /// the whole history.
    Settled {
        /// The true wall time from which the group's workers have run its jobs without a fault.
        since: WallTime,
        /// The true wall time at which the observation of the group ended, just before the workers were
        /// stopped.
        until: WallTime,
    },
    /// A worker learned that a majority stores the done record of its claim.
    Completed {
        /// The worker.
        worker: &'a str,
        /// The claim.
        resource: &'a Resource,
        /// The token of the claim that the worker completed.
        token: u64,
    },
    /// A worker tried to claim a message, and learned that the message is already done.
    ToldDone {
        /// The worker.
        worker: &'a str,
        /// The claim.
        resource: &'a Resource,
        /// The recorded result of the message, as the worker received it.
        result: &'a str,
    },
    /// A step of a consumer of messages that have an attempt limit.
    Attempt(&'a AttemptStep<'a>),
    /// The command that replaces the node set has reported success.
    Replaced {
        /// The markers of the new set's servers at this moment. `None` for a server without a marker.
        markers: &'a [Option<Arc<str>>],
        /// The number of these servers that have no marker because they have lost their data since the command was first run.
        lost: usize,
        /// The node set that the markers must name, as a marker contains it.
        nodes: &'a str,
    },
    /// A write reached a simulated store outside of Quorate. There are two such stores: one compares fencing
    /// tokens, the other does not.
    Wrote(&'a Write),
    /// A worker read one of these stores.
    StoreRead(&'a StoreRead),
    /// The faults are over, and a leader has had enough time to run every missed tick. The invariants now check
    /// all ticks of the first group.
    Reckoned {
        /// The true wall time by which the leader must have caught up on all missed ticks.
        served_since: WallTime,
        /// The true wall time of the check.
        now: WallTime,
    },
    /// A wait in the fault-free phase has ended. Either a worker waited for a lease, or the simulation waited
    /// for a leader, for the messages or for the operator.
    Calm {
        /// The worker that waited, or the thing for which the simulation waited.
        worker: &'a str,
        /// The duration of the wait, in true time.
        took: Duration,
        /// The longest time that the wait may take.
        bound: Duration,
        /// On success, the token of the lease or of the term, or 0 if the wait was for something else. On
        /// failure, the reason why the wait failed.
        got: Result<u64, String>,
    },
    /// The leases that a server still stores after the faults, although no worker holds them any more.
    LeftoverLeases {
        /// The server.
        node: &'a str,
        /// The leases, each with its resource, its owner token, and the remaining time.
        leases: &'a [(Resource, String, Duration)],
    },
    /// A worker's process has crashed, or was asked to end.
    Ended {
        /// The worker.
        worker: &'a str,
        /// The number of the worker's tasks that have not ended.
        tasks: usize,
        /// The panic messages of its tasks.
        panics: &'a [String],
    },
    /// The run is over. No event follows.
    Over,
}

/// A record that a server stored in a ledger, or was asked to store and has a later one.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// The server.
    pub node: &'a str,
    /// The full name of the ledger.
    pub ledger: &'a str,
    /// The key of the record.
    pub key: &'a Arc<str>,
    /// The value.
    pub value: &'a Arc<str>,
    /// The term of the leader that wrote the record.
    pub term: u64,
    /// True if no later record may replace it.
    pub last: bool,
}

impl<'a> Event<'a> {
    /// Returns the records that a server has just stored, if this event is that.
    pub(super) fn stored(&self) -> Vec<Stored<'a>> {
        let Event::Ran { node, request, reply: Reply::Written } = *self else { return Vec::new() };
        match request {
            Request::Write { ledger, key, record, .. } => {
                let (value, term, last) = (&record.value, record.term.get(), record.last);
                vec![Stored { node, ledger, key, value, term, last }]
            }
            Request::Lead { ledger, seal, act: LeadAct::Put { writes }, .. } => {
                let term = seal.term.get();
                let stored = |put: &'a Put| {
                    Some(Stored {
                        node,
                        ledger,
                        key: &put.key,
                        value: put.value.as_ref()?,
                        term,
                        last: false,
                    })
                };
                writes.iter().filter_map(stored).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The state of one lease, term or claim, as its worker believes it to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Belief {
    /// The number of the grant, unique in this simulation.
    pub lease: u64,
    /// The worker.
    pub worker: Arc<str>,
    /// The resource.
    pub resource: Resource,
    /// The fencing token of the grant.
    pub token: u64,
    /// True if the worker considers the grant valid.
    pub valid: bool,
    /// True if, by the worker's clock, the validity has ended or ends within the step-down grace.
    pub ending: bool,
    /// True if the work under the grant has been asked to stop.
    pub asked_to_stop: bool,
    /// The number of servers that cannot grant the lease to another owner now. A server counts if it stores
    /// the lease, or for one of the other reasons that `judged_server::Backer` names.
    pub backed_by: usize,
    /// For each of these servers that does not store the lease, the reason why it counts.
    pub without_lease: Vec<Excuse>,
    /// True if the worker's boot clock stood still after the worker had sent the requests on which the
    /// validity rests. In this case the validity may have ended without the worker's knowledge. The flag is
    /// false again once a majority has extended the grant by a request that was sent while the clock ran.
    pub clock_stood: bool,
    /// The owner token. `None` for terms and claims, whose owner token is not accessible.
    pub owner: Option<Owner>,
    /// The earliest true time at which the worker may have sent the requests on which the validity rests, unless its
    /// boot clock stood still.
    pub sent: Duration,
    /// The operator's forced release of the lease. Only locks are released by force.
    pub forced: Forced,
    /// True for a reader's lease, which other readers may hold too.
    pub reads: bool,
    /// The time for which the worker's process has run since its last pause. `None` while it is paused.
    pub awake_for: Option<Duration>,
    /// The node list of the worker's process.
    pub nodes: NodeList,
}

/// The forced release of a lease by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Forced {
    /// The last true time at which a server was asked to remove the lease.
    pub freed_at: Option<Duration>,
    /// The true time at which the operator learned that the release is final
    /// ([`ForcedRelease::is_final`](quorate::admin::ForcedRelease::is_final)).
    pub final_at: Option<Duration>,
}

impl Belief {
    /// Returns `true` if a server was asked by force to remove the lease after the worker had sent the requests on
    /// which the validity rests. Until its next extension, the worker need not know.
    pub fn is_freed_by_force(&self) -> bool {
        self.forced.freed_at.is_some_and(|at| self.sent <= at)
    }
}

/// A step of a run of the third group, whose jobs share a concurrency key or follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleRun {
    /// The worker.
    pub worker: Arc<str>,
    /// The job's name.
    pub job: &'static str,
    /// The tick of the run.
    pub tick: WallTime,
    /// The step.
    pub step: RuleStep,
}

/// The steps of a run of the third group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleStep {
    /// A run with the key begins. `beside` has the true times at which the active runs with the key began that are judged.
    Begins {
        /// The times.
        beside: Vec<Duration>,
    },
    /// A run that follows another one begins.
    Follows,
    /// A run begins that requires a label of its worker.
    NeedsLabel {
        /// True if the worker has the label.
        has_it: bool,
    },
    /// A run begins of a job whose runs all fail, and which is paused after some.
    Fails,
    /// A run begins of a job that runs on every worker. `job` is the worker's part of it.
    OnEvery {
        /// The name of the part.
        part: String,
    },
    /// The handler is about to return `Ok`.
    Done,
}

/// A worker that waits for a lock in its queue, in the fault-free phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The number of the waiter, unique in this simulation.
    pub number: u64,
    /// The worker.
    pub worker: Arc<str>,
    /// The time at which the wait began, on the worker's wall clock.
    pub began: WallTime,
}

/// Code that runs under a term or a claim. The library must end it before the next holder begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Working {
    /// The worker.
    pub worker: Arc<str>,
    /// The kind of work, as a report names it.
    pub what: Arc<str>,
    /// The fencing token under which the code works.
    pub token: u64,
    /// The time for which the worker's process has run since its last pause. `None` while it is paused or after
    /// it has crashed.
    pub awake_for: Option<Duration>,
    /// True if the worker's boot clock has stood still since the work began, or earlier under the same grant.
    /// The flag is false again once a majority has extended that grant by a request that was sent while the
    /// clock ran.
    pub clock_stood: bool,
}

/// The start of a run of a tick of the first group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickStart {
    /// The number of the run, unique in this simulation.
    pub run: u64,
    /// The worker.
    pub worker: Arc<str>,
    /// The job's name.
    pub job: Arc<str>,
    /// The time at which the tick was due.
    pub at: WallTime,
    /// The fencing token of the term under which the run starts.
    pub token: u64,
    /// True if the leader considers its term valid.
    pub valid: bool,
    /// The true wall time of the start.
    pub true_wall: WallTime,
    /// The largest amount by which the clocks of a majority of the servers were ahead of the true time within
    /// the last seconds. Because these clocks decide when a tick is due, the tick may start early by this
    /// amount.
    pub ahead: Duration,
    /// True if the worker's boot clock has stood still since the term was last extended. The worker then cannot
    /// know whether the term has ended.
    pub clock_stood: bool,
}

/// The way in which the run of a tick of the first group ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// The handler returned, panicked, or timed out. Such a run must not be repeated.
    Itself,
    /// The run was interrupted, and may be repeated. There are three causes: its term, its worker or its
    /// leader's work ended; the handler marked the run as interrupted; or the handler returned an error after
    /// it was asked to stop.
    Torn,
}

/// A write to a store outside of Quorate. The writer computed the new value from a version that it had read
/// before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The writer.
    pub worker: Arc<str>,
    /// True if the store compares fencing tokens.
    pub checked: bool,
    /// The register that is written.
    pub register: Arc<str>,
    /// The writer's fencing token.
    pub token: u64,
    /// The number of the writer's access, which the store compares if the tokens are equal.
    pub access: u64,
    /// The version that the writer had read.
    pub base: u64,
    /// The version that the store has when the write arrives.
    pub stands: u64,
    /// True if the store accepted the write.
    pub accepted: bool,
    /// The true time at which the writer sent the write.
    pub sent: Duration,
}

/// A step of a job that is stored on the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredStep {
    /// The job is about to be stored. It is due once at this time, or again and again.
    Putting {
        /// The time of a single run.
        due: Option<WallTime>,
    },
    /// It is confirmed that the job is stored.
    Put,
    /// The job is about to be removed.
    Removing,
    /// It is confirmed that the job is removed.
    Removed,
}

/// A read of a store outside of Quorate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRead {
    /// The reader.
    pub worker: Arc<str>,
    /// True if the store compares fencing tokens.
    pub checked: bool,
    /// The register that is read.
    pub register: Arc<str>,
    /// The reader's fencing token, and the number of its access.
    pub fence: (u64, u64),
    /// The version that the store has. `None` if the store refused the read.
    pub version: Option<u64>,
}
