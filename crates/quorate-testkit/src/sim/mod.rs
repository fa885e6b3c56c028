//! A seeded simulation of the shipped code.
//!
//! # What is not guaranteed
//!
//! A seed produces one of very many possible histories. Time passes in whole milliseconds, so a fault that
//! needs two events within one millisecond is not tried. Lost, doubled or reordered bytes inside a connection
//! are not tried either. The Lua scripts of Redis nodes do not run here. [`differential`](crate::differential) compares
//! their replies with those of the engine, on real servers.
//!
//! Quorate gives no guarantee in the following cases, and the invariants do not judge them:
//!
//! - **A worker's boot clock that stood still.** A lease, a term or a claim is excused while its validity rests
//!   on requests that the worker sent before the clock continued ([`Belief::clock_stood`]). An excused grant is
//!   judged again from the first extension that a majority granted after that. *Exclusion* and *backing* do not
//!   judge an excused grant. *Fencing* treats it as a grant that had ended before the worker saw it. *Claims*
//!   does not check whether the message of an excused claim is already done. *Succession* does not judge the
//!   beginning of an excused grant, and the work under it may continue beside the work of the next holder
//!   ([`Working::clock_stood`]). *Ticks* permits that an excused term starts a tick that is done
//!   ([`TickStart::clock_stood`]). *Step-down*, *finality* and *order* excuse no clock.
//! - **A worker that is paused**, or was resumed only some milliseconds ago, is excused by two invariants. It need
//!   not have asked its work to stop (*step-down*), and the work need not have ended (*succession*). A grant may
//!   be over, by the worker's own clock, when the worker's code first sees it. *Fencing* only checks that the
//!   token of such a grant is unique, and *succession* does not count the grant as the beginning of a new holder.
//! - **Data that servers forgot.** A server that forgot no longer counts for stored data. If a majority has
//!   lost the *done* record of a message or a final record of a ledger in this way, that record may be written
//!   again. If a majority has lost a registration, the ticks before the next registration are not judged. A tick
//!   of an at-most-once job that was never started must have been reported as lost by a leader, for a true
//!   reason: *a majority of the nodes has forgotten* is true only if the ledger was founded since the tick.
//!   *Backing* counts a server that forgot less than `max_ttl` ago. *Backing* also counts a server that is down,
//!   unless that server keeps all its data.
//! - **Outside of the fault-free phase**, which follows the faults, a leader need not start a missed tick for
//!   which the misfire rule requires no catch-up run. *Liveness* is required in the fault-free phase only.
//! - **Servers' clocks that step further than `clock_step_allowance`, or stand still**, occur in two plans
//!   only. In the plan `wild-clocks` no server forgets, and only the invariants that are
//!   [timeless](invariant::Invariant::is_timeless) are judged. In the plan `far-steps` the clocks of one or two
//!   servers are set far forward. No worker may count the grants of such a server for `max_ttl` after the step,
//!   and *backing* counts the server for this time.
//! - **The second group** has any-worker jobs, an operator's requests, freezes, and histories. The invariants *run
//!   history*, *runs*, *requests*, *freezes* and *histories* judge it. In the plans `wild-clocks` and `far-steps`, where
//!   servers' clocks step far, only *run history* of these five is judged. If a majority of the servers forgot a tick or a request, there may be neither a run nor a history
//!   entry. A run that was started then waits for the end of its worker's session. The operator sends one request
//!   for a job at a time, and in some seeds beside it one request to freeze the group. No job of the group is removed or changed.
//! - **The third group**, which the workers of some seeds run, has jobs that share a concurrency key and a job that follows
//!   another. The invariant *rules* judges it. Runs of before the founding of its ledger do not count: the leader does not know
//!   them.
//! - **Balanced shards**, which the workers of some seeds divide among themselves, are judged by the invariant *shards* and those
//!   of all leases; in the fault-free phase every shard must soon have an owner, and shares must be equal.
//! - **Locks with readers, queues, slots and transfers**, for which the workers compete in some seeds, are judged
//!   by the invariants *readers*, *fair*, *slots*, *transfers* and *reservations*, beside those of all leases. The
//!   order of a queue and the search for a free slot are judged in the fault-free phase only. The waiters' wall
//!   clocks determine the order of a queue. A reservation is judged for its length less the largest step of a
//!   server's clock, and not in the plan `far-steps`.
//! - **Messages with an attempt limit.** A server that forgot, or was reset, has lost the counts of attempts. Then more
//!   attempts may begin than the limit says. An attempt that did not begin may leave its count behind, and such a count
//!   counts toward the limit. That the count of a cancelled attempt is withdrawn is required in the fault-free phase only.
//! - **Seeds in which the node set is replaced.** Their workers only compete for leases, since the records on a server
//!   that leaves are lost. No server forgets, except one that joins: a marker that closes a server is lost with the
//!   server's data. A worker starts with the new list too early only if every majority of that list has a server of the
//!   old set. Otherwise it could lead beside the old set.
//! - **Locks that an operator releases by force** occur in the plan `forced` only: plain locks, no leadership, no claim
//!   and no reservation. The holder works on beside the next one until it has extended its lease, or until its validity
//!   ends. Until then *exclusion*, *backing*, *fencing* and the history of locks do not judge it
//!   ([`Belief::is_freed_by_force`]). *Finality* requires that it does not extend its lease once the operator has
//!   learned that the release is final.
//! - **Workers that have another node list by mistake, or another `max_ttl`,** occur in the plan `mistaken` only, in which one
//!   server may forget. The nodes must refuse these workers with an error that names the mistake. In the plan
//!   `mistaken-and-forgotten`, a majority of the nodes in a wrong list may forget while the rest of the list is
//!   unreachable. Then such a worker may mark these nodes as its own and lead with their votes. That plan runs
//!   only when it is named.
//!
//! # What runs
//!
//! Everything above the [`Node`](quorate::node::Node) trait is the shipped code: drivers, trust, tally,
//! renewer, leases. Below it are five simulated [`Server`]s, which run the shipped engine over a store in memory, as memory nodes and file
//! nodes do. A simulated link connects each of three workers with each server. Every worker and every server has clocks of
//! its own. Only the [`Referee`] sees the true time ([`Truth`]).
//!
//! All workers compete for leases. Depending on the seed, some also handle messages, with or without an attempt limit.
//! In some seeds an operator replaces the node set, and there are servers that join. Some workers elect a leader of the
//! first group, which runs that group's jobs; in some seeds one of them never leads, and another is preferred. Some take part in the second group, also called the pool. Most of
//! its jobs may run on any worker, and an operator sends requests to it. In nearly half of the seeds all workers
//! also compete for locks of one more kind: a lock with readers and writers, a lock with a queue of waiters,
//! numbered slots, or a lock that its holders transfer to each other.
//!
//! | event | cause |
//! | --- | --- |
//! | messages late, later than the node timeout, lost either way | [`NetworkConditions`], drawn for each message |
//! | connections break, with requests that run afterwards | [`NetworkConditions`] |
//! | connections break at both ends, with requests that are lost | [`Fault::Tear`] |
//! | links cut in one direction or both; the network in halves | [`Fault::Road`], [`Fault::Partition`] |
//! | servers stop, crash, come back empty, with an old snapshot or with all their data, are flushed, are replaced by new ones, step their clocks | [`Fault`] |
//! | workers pause, crash (the network goes before the futures are dropped) and start again | [`Fault`] |
//! | workers' machines sleep (timers stand still, clocks do not; see [`Machine`]), stand still with all clocks, or with the boot clock alone | [`Fault`] |
//! | the command that replaces the node set crashes, and is run again; workers start with the new list before, during and after the replacement | [`NodeChange`] |
//! | an operator releases locks by force | [`Plan::forces`] |
//! | an operator stores jobs on the nodes | [`Plan::stores`] |
//! | workers' wall clocks step by seconds or hours | [`Fault::StepWorker`] |
//!
//! A seed decides all these events ([`Scenario`]), and two runs of a seed write the same [`Trace`]. The module
//! [`invariant`] contains the conditions that must hold, one file for each invariant. Servers with a
//! [`NodeFault`], and workers that leave out a safety mechanism, show that the invariants detect violations.
//! The same seeds have no violation without the fault ([`SabotageCheck`]). A [`Sweep`] runs many seeds of one
//! of the [`PLANS`], and [`shrink`] reduces a failing seed to the faults that its violation needs. The program
//! `simulate` runs both from a shell.

mod attempt_step;
mod event;
mod exchanges;
mod excuse;
mod fault;
mod holders;
pub mod invariant;
mod job_run;
mod judged_server;
mod log_capture;
mod node_change;
mod node_fault;
mod node_list;
mod plain_commands;
mod plans;
mod referee;
mod run;
mod sabotage_check;
mod scenario;
mod shrink;
mod sweep;
mod worker;

pub use attempt_step::{ATTEMPT_LIMIT, AttemptStep, AttemptStepKind, LIMITED_SET};
pub use event::{
    Belief, Event, Forced, RuleRun, RuleStep, RunOutcome, StoreRead, Stored, StoredStep, TickStart, Waiter,
    Working, Write,
};
pub use excuse::Excuse;
/// The parts of the simulated cluster, which `quorate-test` publishes for users' own tests.
pub use quorate_test::sim::{
    AdjustableClock, Directions, Gate, Host, Link, Machine, Memory, NAP, NetworkConditions, SeedRng, Server,
    SimClock, SimNode, SimSession, SimWorld, Trace, Truth,
};

use attempt_step::is_limited;
pub use fault::{Fault, Halves, Mistake, Parted};
pub use holders::{Held, Holder};
pub use job_run::{Asked, Beside, HandlerEnd, JobRun, RunEnd, RunStart, Told};
pub use node_change::NodeChange;
pub use node_fault::NodeFault;
pub use node_list::NodeList;
pub use plans::{OPEN_PLANS, PLANS};
pub use referee::{Referee, TickRun, Work};
pub use run::{Outcome, simulate, simulate_scenario, simulate_untraced};
pub use sabotage_check::{Difference, NoDifference, SabotageCheck};
pub use scenario::{NODES, OPERATOR, Plan, Scenario, WORKERS};
pub use shrink::{Shrunk, shrink};
pub use sweep::{Failure, Summary, Sweep, Uses};
