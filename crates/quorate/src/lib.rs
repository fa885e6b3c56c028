//! Several copies of a service agree, through N independent nodes, on which copy leads, which copy runs a
//! job, and which copy handles a message.
//!
//! # What is not guaranteed
//!
//! A lock cannot give exactly-once effects alone. Between the moment in which a worker looks at its lease
//! and the moment in which its write lands, the worker may be paused for longer than the lease lives. For
//! that there is the fencing token ([`lease::Lease::check`]), which the sink must compare in its own
//! transaction. Exclusion rests on clock *rates* and on nodes that remember; see [`lease`] for the exact
//! conditions and [`round`] for which nodes may vote.
//!
//! # Modules, each using only those above it
//!
//! * [`mod@env`]: clocks, timers, tasks, randomness; the only door to the world
//! * [`node`]: one server: requests, replies, the memory node and the file node
//! * [`round`]: one driver task a node, trust, the pure tally
//! * [`lease`]: the [`Quorum`](lease::Quorum), leases, the keeper that extends them, fencing
//! * [`ledger`]: records on a majority
//! * [`election`]: campaigns, terms, observers
//! * [`schedule`]: jobs, ticks, misfires, the runner
//! * [`claim`]: message and batch claims

pub mod claim;
pub mod election;
pub mod env;
pub mod lease;
pub mod ledger;
pub mod node;
pub mod round;
pub mod schedule;
