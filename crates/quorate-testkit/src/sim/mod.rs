//! A seeded simulation of the shipped code.
//!
//! # What is not guaranteed
//!
//! A seed is one history among very many, and time passes in whole milliseconds: what needs two events
//! within one is not tried, nor is a lost, doubled or reordered byte inside a connection. The scripts that
//! Redis runs are not simulated: the engine here is the Rust one, and the conformance suite holds the two
//! together.
//!
//! What Quorate does not promise is not judged:
//!
//! - **A worker's boot clock that stood still.** What is held (a lease, a term, a claim) is excused as long as its
//!   validity rests on requests that were sent while the clock stood or before ([`Belief::clock_stood`]): from
//!   the first extension that a majority granted after the clock went on, it is judged again. It is excused from
//!   *exclusion* and *backing*; in *fencing* a grant counts as one that had ended before it was seen, and *claims*
//!   does not ask whether a message that is granted so is done; to *succession* it succeeds nobody, and the work
//!   under it may go on beside the next holder's ([`Working::clock_stood`]); to *ticks* it may start what is done
//!   ([`TickStart::clock_stood`]). *Step-down*, *finality* and *order* excuse no clock.
//! - **A worker that is paused**, or went on no more than some milliseconds ago, need not have told its work
//!   (*step-down*) or ended it (*succession*). A grant that is over by the worker's own clock when its code first
//!   sees it has no place in the order of *fencing*, and is no new holder to *succession*.
//! - **What servers forgot.** Such a server counts no more for what is stored: a *done* of a claim, a final record or a
//!   registration that a majority has so lost may come again, or belong to no leader. A tick of an at-most-once job
//!   that was never started must have been reported as lost by a leader, for a reason that is true: *too few nodes
//!   remember* counts the servers whose answers that leader's seal went by, and holds only if fewer than a majority of
//!   all servers remember among them. *Backing* counts a server that is down, unless it keeps everything, or that
//!   forgot within `max_ttl`.
//! - **Outside of peace**, after the faults, a missed tick that its misfire rule does not make up belongs to no leader. A
//!   tick that was interrupted four times in the newest term may be put off beyond the end. *Liveness* is required in
//!   peace alone.
//! - **Servers' clocks that step further than `clock_step_allowance`, or stand still**, are in the plan
//!   `wild-clocks` alone, in which no server forgets, and only the invariants that are
//!   [timeless](invariant::Invariant::is_timeless) are judged.
//!   In the plan `far-steps` one or two servers' clocks are set far ahead: *backing* counts such a server for `max_ttl`
//!   after the step, in which no worker may count what it grants.
//! - **Workers with another node list or another `max_ttl`** are in the plan `mistaken` alone, in which one
//!   server may forget: they must be refused by name. Where a majority of a wrong list's nodes forget, and the rest
//!   of them is out of reach, such a worker may mark them as its own and lead by them
//!   (the plan `mistaken-and-forgotten`, which is run by nobody but who asks for it).
//!
//! # What runs
//!
//! Everything above the [`Node`](quorate::node::Node) seam is the code that ships: drivers, trust, tally,
//! keeper, leases. Below it are five [`Server`]s (the shipped engine over a store in memory) and a road from
//! each of three workers to each of them. Every worker and every server has clocks of its own; nobody but the
//! [`Referee`] sees the [`Truth`].
//!
//! | what happens | how |
//! | --- | --- |
//! | messages late, later than the node timeout, lost either way | [`NetworkConditions`], drawn a message |
//! | connections break, with requests that run afterwards | [`NetworkConditions`] |
//! | connections break at both ends, with requests that are lost | [`Fault::Tear`] |
//! | roads cut in one direction or both; the network in halves | [`Fault::Road`], [`Fault::Partition`] |
//! | servers stop, crash, come back empty, with an old snapshot or with all they had, are flushed, are replaced by new ones, step their clocks | [`Fault`] |
//! | workers pause, crash (the network goes before the futures are dropped) and start again | [`Fault`] |
//! | workers' machines sleep (timers stand still, clocks do not; see [`Machine`]), stand still clocks and all, or with the boot clock alone | [`Fault`] |
//! | workers' wall clocks step by seconds or hours | [`Fault::StepWorker`] |
//!
//! A seed decides all of it ([`Scenario`]), and two runs of a seed write the same [`Trace`]. What must hold
//! is in [`invariant`], one file each; that each would notice is proved with servers that [`NodeFault`], under seeds that hold
//! without the lie ([`Contrast`]). A [`Sweep`]
//! runs many seeds of one of the [`PLANS`]; the program `simulate` does so from a shell.

mod clock;
mod connection;
mod contrast;
mod event;
mod execution_gate;
mod fault;
mod hearing;
mod holders;
mod host;
pub mod invariant;
mod link;
mod machine;
mod node;
mod node_fault;
mod plans;
mod referee;
mod rng;
mod run;
mod scenario;
mod server;
mod sweep;
mod trace;
mod worker;
mod world;

pub use clock::{Dial, SimClock, Truth};
pub use contrast::{Contrast, Difference, NoDifference};
pub use event::{Belief, Event, TickEnd, TickStart, Working, Write};
pub use fault::{Fault, Halves, Mistake, Parted};
pub use holders::{Held, Holder};
pub use host::{Gate, Host};
pub use link::{Directions, Link, NetworkConditions};
pub use machine::{Machine, NAP};
pub use node::{SimNode, SimSession};
pub use node_fault::NodeFault;
pub use plans::{OPEN_PLANS, PLANS};
pub use referee::{Referee, TickRun, Work};
pub use rng::SeedRng;
pub use run::{Outcome, simulate, simulate_untraced};
pub use scenario::{NODES, Plan, Scenario, WORKERS};
pub use server::{Memory, Server};
pub use sweep::{Failure, Summary, Sweep};
pub use trace::Trace;
pub use world::SimWorld;
