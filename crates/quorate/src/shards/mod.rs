//! Balanced shards: a set has numbered shards, and each has exactly one owner among the workers that run the set.
//!
//! ```no_run
//! use quorate::{Quorum, shards::{Shard, Shards}};
//!
//! # async fn service(quorum: Quorum) -> Result<(), Box<dyn std::error::Error>> {
//! let work = |shard: Shard| async move {
//!     while !shard.step_down_token().is_cancelled() {
//!         let token = shard.fencing_token()?; // pass it to each write
//!         println!("a batch of shard {} under {token}", shard.number());
//!         tokio::time::sleep(std::time::Duration::from_secs(1)).await;
//!     }
//!     Ok::<(), quorate::LeaseLost>(())
//! };
//! Shards::new(&quorum, "orders", 64).run(work).until(quorate::shutdown_signal()).await?;
//! quorum.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What is not guaranteed
//!
//! - A shard may have no owner for a time: none is owned without a majority of nodes that may vote, and a shard of a worker that
//!   died has none until its lease is over.
//! - If the assumptions of [`lease`](crate::lease) do not hold, two workers may believe at the same time that they own a shard.
//! - A worker that is paused between [`Shard::fencing_token`] and a write may write after another worker has got the shard. So
//!   the store that receives the write must compare the token.
//! - The shares are equal only once the set is quiet.
//!
//! # Who owns what
//!
//! A worker owns a shard while it holds the shard's lease, and only then. Which worker asks for which lease follows a plan, one
//! record on the nodes. The leader of the set, which is one of its workers, writes it. A plan that is wrong or old leads to
//! another balance, and never to two owners. If the leader dies, the workers keep their shards, and another one leads.
//!
//! Workers of equal weight have shares that differ by at most one. A worker that joins, or that leaves, moves at most its own share.
//!
//! | what happens | then |
//! | --- | --- |
//! | a worker joins | others hand over to it: their work is [asked to stop](Shard::step_down_token), is dropped after the [grace](Shards::grace), and then the shard is released |
//! | a worker is shut down ([`ShardsRun::until`]) | it hands over all of its shards in the same way |
//! | a worker dies | its shards are owned by others once its leases are over, a TTL later at most |
//! | the work of a shard fails, or panics | it begins again on the same worker after a pause ([`Shards::restart_backoff`]). The shard does not move |
//! | the work returns `Ok` | the same, without a warning |
//! | the lease of a shard is lost | the work is dropped, and the worker asks for the lease again |
//!
//! # Another number of shards
//!
//! All workers of a set have the same number of shards. A worker that was given another number waits, owns nothing, and logs a
//! warning with both numbers. Once no worker has the number of the set any more, the set gets the new number: so end the old workers
//! while the new ones wait. No shard of the old number is owned when the first of the new number is. Shards beyond a smaller
//! number have no owner from then on. The fencing token of a shard grows across the change, within
//! [`fence_retention`](crate::QuorumConfig::fence_retention).

mod assignment;
mod balance;
mod builder;
mod leader;
mod member;
mod owner;
mod set;
mod shard;
mod view;

pub use builder::{Shards, ShardsRun};
pub use shard::Shard;
#[doc(hidden)]
pub use view::{ShardSet, ShardSetError, ShardState, ShardWorker};

/// The largest number of shards of a set.
const SHARDS_MAX: usize = 4_096;
