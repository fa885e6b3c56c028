//! The parts of a simulated cluster: clocks, machines, processes, links and servers.
//! [`Cluster`](crate::Cluster) is built of them, and so is the simulation with which Quorate itself is
//! tested. They may change in any version.

mod changes;
mod clock;
mod connection;
mod execution_gate;
mod host;
mod link;
mod machine;
mod node;
mod rng;
mod server;
mod server_hooks;
mod trace;
mod world;

pub use changes::Changes;
pub use clock::{AdjustableClock, SimClock, Truth};
pub use host::{Gate, Host};
pub use link::{Directions, Link, NetworkConditions};
pub use machine::{Machine, NAP};
pub use node::{SimNode, SimSession};
pub use rng::SeedRng;
pub use server::{ClockChange, Memory, Server, ServerView};
pub use server_hooks::{NoHooks, ServerHooks};
pub use trace::Trace;
pub use world::SimWorld;
