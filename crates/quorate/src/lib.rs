//! Coordination for the copies of a service. Through N independent nodes they agree which copy leads, which
//! copy runs a job, and which copy handles a message.
//!
//! A service: every copy is this program. One of them charges the cards and runs each tick of the job, and each order
//! is shipped by one of them, until SIGTERM or Ctrl-C:
//!
//! ```no_run
//! use quorate::{Claims, Cron, Election, Job, Quorum, Scheduler, Term, claim::ClaimHandle, node::MemoryNode};
//! use quorate::{scheduler::RunContext, shutdown_signal};
//!
//! type Failure = Box<dyn std::error::Error + Send + Sync>;
//!
//! /// The work of the leader, until it must step down.
//! async fn charge_cards(term: Term) -> Result<(), Failure> {
//!     println!("charging cards under token {}", term.fencing_token()?); // pass the token to each write
//!     term.step_down_token().cancelled().await;
//!     Ok(())
//! }
//!
//! /// One run of the job.
//! async fn report(run: RunContext) -> Result<(), Failure> {
//!     println!("the report of {}, under token {}", run.scheduled_at(), run.fencing_token()?);
//!     Ok(())
//! }
//!
//! /// One message, which every copy may receive.
//! async fn ship(claim: ClaimHandle) -> Result<&'static str, Failure> {
//!     println!("shipping under token {}", claim.fencing_token()?);
//!     Ok("shipped")
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Failure> {
//!     // Nodes of this process alone. With the feature `redis`: Quorum::connect(["redis://a", "redis://b", "redis://c"]).await?
//!     let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
//!     let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
//!
//!     let nightly = Job::new("nightly-report", Cron::parse("0 3 * * *")?.zone("Europe/Kyiv")?, report);
//!     let billing = Election::new(&quorum, "billing").run(charge_cards).until(shutdown_signal());
//!     let reports = Scheduler::new(&quorum, "reports").job(nightly).run().until(shutdown_signal());
//!     let orders = async {
//!         let shipped = Claims::new(&quorum, "orders").process("order-1", ship).await?;
//!         println!("acknowledge order-1 to its broker: {}", shipped.may_ack());
//!         Ok::<_, Failure>(())
//!     };
//!     let (billing, reports, orders) = tokio::join!(billing, reports, orders);
//!     quorum.close().await; // releases what is still held
//!     billing?;
//!     reports?;
//!     orders
//! }
//! ```
//!
//! A lock alone, extended until it is released:
//!
//! ```
//! # use quorate::{Quorum, node::MemoryNode};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let quorum = Quorum::builder().node(MemoryNode::new("memory")).trust_new_nodes(true).build()?;
//! let lease = quorum.lock("invoice-42").acquire().await?;
//! println!("writing under token {}", lease.fencing_token()?);
//! lease.release().await?;
//! # quorum.close().await;
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
//! * [`node`]: one server. The memory node and the file node; Redis servers are in [`redis`]
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
mod error;
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
#[cfg(feature = "redis")]
pub mod redis;
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
pub use error::Error;
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
/// let job = Job::new("heartbeat", quorate::scheduler::Schedule::every(Duration::from_secs(5))?, |tick| async move {
///     println!("due at {}", tick.scheduled_at());
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
