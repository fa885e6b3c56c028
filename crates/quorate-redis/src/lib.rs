//! Redis servers as nodes of a Quorate quorum: connections, the handshake, the Lua scripts, and the parsing
//! of replies. This crate makes no decisions about votes.
//!
//! # Example
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
//! # Which servers
//!
//! This crate works with Redis 6.2 and later, and with servers that implement its protocol. Each server must be
//! independent of the others: replicas and the shards of a Redis Cluster are not.
//!
//! # Keys
//!
//! With the prefix `P` (by default `quorate:`), these are the keys:
//!
//! * A lock `R` is the plain string `PR`, set with `NX` and `PX`, so that Quorate and any Redlock client that
//!   uses this key exclude each other. Its counter is `{PR}:fence`.
//! * Everything about the claim `ID` of the set `S` is in the string `Pclaim/S/ID`.
//! * The ledger of a group is the hash `Pledger/GROUP`.
//! * The node's marker is `Pnode`.
//!
//! A waiter for the lock `R` subscribes to the channel `PR:freed`. Every session with a waiter is also subscribed to
//! `Pnode:waiters`: a server publishes releases only while that channel has a subscriber.
//!
//! # Streams
//!
//! [`streams`] reads a consumer group of a Redis stream for [`quorate::claim`]. It reads from the user's
//! broker, which is not a node.
//!
//! # What is not guaranteed
//!
//! A single Redis server promises little. Without `appendfsync always` it loses recent grants on a restart. With an
//! eviction policy it may lose any key at any moment. Its leases end by its wall clock. This crate only reports such
//! facts in a [`Hello`](quorate::node::Hello); the quorum judges them.
//!
//! A server is reported as durable if `appendonly` is `yes`, `appendfsync` is `always` and `no-appendfsync-on-rewrite`
//! is `no`. A session checks this again every [`DURABILITY_CHECK`], and ends if it has changed, so that the next
//! handshake reports the change. Writes that the server acknowledges between the change and that check may be lost in
//! a restart. The same holds for replies that the server sends while `appendonly` is switched off and on again at run
//! time. This crate cannot detect a disk or file system that acknowledges a sync without performing it.
//!
//! A dropped session continues to send the requests that it was given, for at most [`LINGER`]. A request that
//! has been sent may run at any later time, until the batch's `not_after` by the server's own clock.

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

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
