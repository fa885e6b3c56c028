//! Coordination for the copies of a service. Through N independent nodes they agree which copy leads, which
//! copy runs a job, and which copy handles a message.
//!
//! ```
//! use quorate::{Claims, Cron, Election, Job, Quorum, Scheduler, node::MemoryNode};
//! use std::{convert::Infallible, time::Duration};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Five nodes in this process. For nodes that several processes share, see `quorate-redis`.
//! let nodes = (0..5).map(|i| MemoryNode::new(&format!("memory-{i}")));
//! let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
//!
//! // A lock with a fencing token, extended until it is released.
//! let lease = quorum.lock("invoice-42").ttl(Duration::from_secs(10)).acquire().await?;
//! let token = lease.fencing_token()?; // pass it to the write
//! lease.release().await?;
//!
//! // One copy leads at a time. Work that fails is restarted; here its error ends the campaign.
//! let billing = Election::new(&quorum, "billing").end_on_error();
//! let led = billing.run(|term| async move { Err::<(), _>(term.token()) }).await;
//! assert!(led.is_err());
//!
//! // One copy runs each tick of a job.
//! let nightly = Cron::parse("0 3 * * *")?.zone("Europe/Kyiv")?;
//! let nightly = Job::new("nightly", nightly, |tick| async move {
//!     println!("due at {}, under token {:?}", tick.at(), tick.fencing_token());
//!     Ok::<(), Infallible>(())
//! });
//! let scheduler = Scheduler::new(&quorum, "reports").job(nightly); // another group: it has an election, too
//! scheduler.run().until(std::future::ready(())).await?; // a service passes its shutdown signal
//!
//! // Every copy receives every message; one handles it.
//! let claims = Claims::new(&quorum, "orders");
//! let processed = claims.process("order-1", |_claim| async { Ok::<_, Infallible>("shipped") }).await?;
//! assert!(processed.may_ack());
//!
//! quorum.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What is not guaranteed
//!
//! A lock alone cannot make an effect happen exactly once. After a worker has checked its lease, the worker
//! may be paused for longer than the lease is valid. Its write then arrives too late. The fencing token
//! ([`Lease::fencing_token`]) closes this gap: the store that receives the write must compare the token in
//! its own transaction. Mutual exclusion depends on the rates of clocks, and on nodes that keep their memory.
//! See [`lease`] for the exact conditions, and `docs/design/lease-and-trust.md` for the rules on which nodes
//! may vote.
//!
//! # Modules, each using only those above it
//!
//! * [`mod@env`]: points in time
//! * `measure`: counters, gauges and histograms (feature `metrics`)
//! * [`node`]: one server. The memory node and the file node are here; Redis servers are in `quorate-redis`
//! * `config`: the settings; `trust`: the rules on which nodes may vote; `vote`: the count of votes;
//!   `driver`: one task for each node
//! * [`lease`]: leases, the task that renews them, fencing
//! * [`quorum`]: the [`Quorum`] and its status
//! * `ledger`: records that a majority of the nodes keeps for the scheduler
//! * [`election`]: campaigns, terms, observers
//! * [`claim`]: claims of messages (feature `claims`)
//! * [`shards`]: numbered shards, each with one owner (feature `scheduler`)
//! * [`scheduler`]: jobs, ticks, misfires, the scheduler (feature `scheduler`)
//!
//! The names that a first program needs are at the root.

// A function fits on a screen. The tables of tests do not.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![cfg_attr(
    not(all(feature = "claims", feature = "scheduler", feature = "file-node")),
    allow(dead_code, unused_imports, reason = "some items are used by the optional modules only")
)]

#[doc(hidden)]
pub mod admin;
mod backoff;
#[cfg(feature = "claims")]
pub mod claim;
mod config;
mod driver;
pub mod election;
pub mod env;
#[doc(hidden)]
pub mod internals;
pub mod lease;
#[doc(hidden)]
pub mod ledger;
mod measure;
pub mod node;
mod panic;
#[doc(hidden)]
pub mod plain;
pub mod quorum;
mod sabotage;
#[cfg(feature = "scheduler")]
pub mod scheduler;
#[cfg(feature = "scheduler")]
mod session;
mod setting_error;
#[cfg(feature = "scheduler")]
pub mod shards;
mod shutdown_signal;
mod trust;
mod vote;

#[cfg(feature = "claims")]
pub use claim::{Claim, ClaimError, Claims, Processed};
pub use election::{Election, ElectionError, Term};
pub use lease::{AcquireError, Lease, LeaseLost, LeaseOptions, Lock, TryAcquire};
pub use node::FencingToken;
pub use quorum::{Quorum, QuorumBuilder, QuorumConfig, SettingError};
/// A schedule that a cron expression describes, in a time zone:
///
/// ```
/// use quorate::Cron;
///
/// let nightly = Cron::parse("0 3 * * *")?.zone("Europe/Kyiv")?;
/// let every_ten_seconds = Cron::parse("*/10 * * * * *")?; // six fields: seconds first
/// # drop((nightly, every_ten_seconds));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "scheduler")]
pub use scheduler::Cron;
/// A job runs at each tick of its schedule:
///
/// ```
/// use quorate::Job;
/// use std::{convert::Infallible, time::Duration};
///
/// let job = Job::new("heartbeat", quorate::scheduler::every(Duration::from_secs(5))?, |tick| async move {
///     println!("due at {}", tick.at());
///     Ok::<(), Infallible>(())
/// });
/// # drop(job);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "scheduler")]
pub use scheduler::Job;
/// A scheduler runs the jobs of a group, each tick on one worker:
///
/// ```
/// use quorate::{Cron, Job, Quorum, Scheduler, node::MemoryNode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let quorum = Quorum::builder().node(MemoryNode::new("a")).trust_new_nodes(true).build()?;
/// let report = Job::new("report", Cron::parse("0 3 * * *")?, |_tick| async { Ok::<(), String>(()) });
/// let scheduler = Scheduler::new(&quorum, "billing").job(report);
/// scheduler.run().until(std::future::ready(())).await?; // a service passes its shutdown signal
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "scheduler")]
pub use scheduler::Scheduler;
#[cfg(feature = "scheduler")]
pub use shards::Shards;
pub use shutdown_signal::shutdown_signal;

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
