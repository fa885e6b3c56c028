//! A seeded simulation of the shipped code.
//!
//! # What is not guaranteed
//!
//! A seed is one history among very many, and time passes in whole milliseconds: what needs two events
//! within one is not tried, nor is a lost, doubled or reordered byte inside a connection. Workers' clocks
//! never stand still and nodes' clocks step within the stated allowance, since outside of that Quorate
//! promises nothing. The scripts that Redis runs are not simulated: the engine here is the Rust one, and
//! the conformance suite holds the two together.
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
//! | messages late, later than the node timeout, lost either way | [`Weather`], drawn a message |
//! | connections break, with requests that run afterwards | [`Weather`] |
//! | roads cut in one direction or both | [`Fault`] |
//! | servers stop, crash, come back empty or with an old snapshot, are flushed, step their clocks | [`Fault`] |
//! | workers pause, crash (the network goes before the futures are dropped) and start again | [`Fault`] |
//!
//! A seed decides all of it ([`Scenario`]), and two runs of a seed write the same [`Trace`]. What must hold
//! is in [`invariant`], one file each; that each would notice is proved with servers that [`Lie`].

mod clock;
mod connection;
mod event;
mod fault;
mod hearing;
mod held;
mod host;
pub mod invariant;
mod lie;
mod link;
mod machine;
mod node;
mod plans;
mod referee;
mod rng;
mod run;
mod scenario;
mod server;
mod sweep;
mod trace;
mod turnstile;
mod worker;
mod world;

pub use clock::{Dial, SimClock, Truth};
pub use event::{Belief, Event, TickEnd, TickStart, Working, Write};
pub use fault::{Fault, Halves, Mistake, Parted};
pub use held::{Grip, Held};
pub use host::{Gate, Host};
pub use lie::Lie;
pub use link::{Directions, Link, Weather};
pub use machine::Machine;
pub use node::{SimNode, SimSession};
pub use plans::PLANS;
pub use referee::{Referee, TickRun, Work};
pub use rng::SeedRng;
pub use run::{Outcome, simulate, simulate_untraced};
pub use scenario::{NODES, Plan, Scenario, WORKERS};
pub use server::{Memory, Server};
pub use sweep::{Failure, Summary, Sweep};
pub use trace::Trace;
pub use world::SimWorld;
