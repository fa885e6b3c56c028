//! Several copies of a service agree, through N independent nodes, on which copy leads, which copy runs a
//! job, and which copy handles a message.
//!
//! # What is not guaranteed
//!
//! A lock cannot give exactly-once effects alone. Between the moment in which a worker looks at its lease
//! and the moment in which its write lands, the worker may be paused for longer than the lease lives. For
//! that there is the fencing token ([`lease::Lease::fencing_token`]), which the sink must compare in its own
//! transaction. Exclusion rests on clock *rates* and on nodes that remember; see [`lease`] for the exact
//! conditions and `docs/design/lease-and-trust.md` for which nodes may vote.
//!
//! # In short
//!
//! ```
//! use quorate::{claim::{Claims, Processed}, election::Election, node::MemoryNode, quorum::Quorum, schedule::{Cron, Job, RunOnce, Scheduler}};
//! use std::{convert::Infallible, time::Duration};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Five nodes in memory; `quorate-redis` has those that several processes share.
//! let nodes = (0..5).map(|i| MemoryNode::new(&format!("memory-{i}")));
//! let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
//!
//! // One lock, signed, fenced, extended until it is released.
//! let lease = quorum.lock("invoice-42").ttl(Duration::from_secs(10)).acquire().await?;
//! let token = lease.fencing_token()?; // pass it to the write
//! lease.release().await?;
//!
//! // One copy at a time, until the shutdown. Work that fails is restarted; here its error ends the campaign.
//! let billing = Election::new(&quorum, "billing").end_on_error();
//! let led = billing.run(|term| async move { Err::<(), _>(term.token()) });
//! assert!(led.until(std::future::pending()).await.is_err());
//!
//! // Singleton cron.
//! let nightly = Cron::parse("0 3 * * *")?.zone("Europe/Kyiv")?;
//! let nightly = Job::new("nightly", nightly, |tick| async move {
//!     println!("due at {:?}, under token {:?}", tick.at(), tick.fencing_token());
//!     Ok::<(), Infallible>(())
//! });
//! let nightly = nightly.misfire(RunOnce::within(Duration::from_secs(3600)));
//! let scheduler = Scheduler::new(&quorum, "billing").job(nightly);
//! scheduler.run().until(std::future::ready(())).await?;
//!
//! // Every copy sees every message; one handles it.
//! let claims = Claims::new(&quorum, "orders");
//! let handle = |_claim| async { Ok::<_, Infallible>("shipped") };
//! assert_eq!(claims.process("order-1", handle).await?, Processed::Handled);
//! let again = claims.process("order-1", handle).await?;
//! assert!(matches!(again, Processed::AlreadyDone(done) if &*done.result == "shipped"));
//!
//! quorum.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Modules, each using only those above it
//!
//! * [`mod@env`]: clocks, timers, tasks, randomness; the only door to the world
//! * [`node`]: one server: requests, replies, the memory node and the file node
//! * `config`, `trust`, `vote`, `driver`: the settings, which nodes may vote, what votes mean, one task for each node
//! * [`lease`]: leases, the task that renews them, fencing
//! * [`quorum`]: the [`Quorum`](quorum::Quorum) and its status
//! * [`admin`]: replacing the node set, releasing a lock by force
//! * [`ledger`]: records on a majority
//! * [`election`]: campaigns, terms, observers
//! * [`schedule`]: jobs, ticks, misfires, the runner
//! * [`claim`]: message and batch claims

pub mod admin;
mod backoff;
pub mod claim;
mod config;
mod driver;
pub mod election;
pub mod env;
#[doc(hidden)]
pub mod internals;
pub mod lease;
pub mod ledger;
mod log_limit;
pub mod node;
mod panic;
#[doc(hidden)]
pub mod plain;
pub mod quorum;
mod sabotage;
pub mod schedule;
mod trust;
mod vote;
