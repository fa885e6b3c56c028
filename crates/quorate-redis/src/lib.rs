//! Redis servers as nodes of a Quorate quorum: connections, the handshake, the Lua scripts, and the reading
//! of replies. It decides nothing.
//!
//! # What is not guaranteed
//!
//! A Redis server promises little alone: without `appendfsync always` it forgets on a restart what it had
//! granted, with an eviction policy it may forget at any moment, and its leases end by its wall clock. This
//! crate only reports such facts, in a [`Hello`](quorate::node::Hello); the quorum judges them.
//!
//! A server is reported as durable if `appendonly` is `yes`, `appendfsync` is `always` and
//! `no-appendfsync-on-rewrite` is `no`. A session looks again every [`DURABILITY_CHECK`], and ends where that has
//! changed, so that the next handshake reports it; what the server answers between the change and that look may be
//! lost with it. So may what it answers while `appendonly` is switched off and on again at run time. A disk or file
//! system that acknowledges a sync which it did not do cannot be told from here.
//!
//! A session that is dropped sends what it was given, for at most [`LINGER`]; what has left may run at any
//! later time, until the batch's `not_after` by the server's own clock.
//!
//! # In short
//!
//! ```no_run
//! use quorate::quorum::Quorum;
//! use quorate_redis::Connect;
//!
//! # async fn lead() -> Result<(), Box<dyn std::error::Error>> {
//! let quorum = Quorum::connect(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]).await?;
//! let lease = quorum.lock("invoice-42").acquire().await?;
//! println!("fencing token {}", lease.fencing_token()?);
//! lease.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Keys
//!
//! With the prefix `P` (by default `quorate:`), lock `R` is the plain string `PR`, set with `NX` and `PX`, so
//! that any Redlock client that uses that name excludes and is excluded; its counter is `{PR}:fence`; all of
//! claim `ID` of set `S` is the string `Pclaim/S/ID`; a group's ledger is the hash `Pledger/GROUP`; the node's marker is
//! `Pnode`.
//!
//! # Streams
//!
//! [`streams`] reads a consumer group of a Redis stream, for [`quorate::claim`]: from the user's broker, which is no node.
//!
//! # Which servers
//!
//! Redis 6.2 and later, and what speaks its protocol as well. Each server must be independent of the others:
//! replicas and the shards of a Redis Cluster are not.

mod address;
mod connect;
mod connect_quorum;
mod durability;
mod encode;
mod examine;
mod fault;
mod files;
mod handshake;
mod node;
#[doc(hidden)]
pub mod probe;
mod pubsub;
mod reply;
mod resp;
mod scripts;
mod session;
pub mod streams;
mod tls;
mod wire;

pub use address::UrlError;
pub use connect_quorum::{Connect, ConnectError, RedisQuorumBuilder, builder};
pub use examine::{COMMANDS, Examination, Look, PUSHES};
pub use node::RedisNode;
pub use session::{DURABILITY_CHECK, LINGER, RedisSession};
