//! Redis servers as nodes of a quorum: [`Quorum::connect`](crate::Quorum::connect) and [`RedisNode`]. Needs the feature
//! `redis`.
//!
//! This module has the connections, the handshake, the Lua scripts, and the parsing of replies. The rest of the crate decides
//! which nodes may vote, and knows nothing of Redis.
//!
//! # Example
//!
//! ```no_run
//! use quorate::Quorum;
//! use std::time::Duration;
//!
//! # async fn lead() -> Result<(), Box<dyn std::error::Error>> {
//! let quorum = Quorum::connect(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]).await?;
//! quorum.ready(Duration::from_secs(5)).await?; // an error says what a majority lacks: new servers are in quarantine at first
//! let lease = quorum.lock("invoice-42").acquire().await?;
//! println!("fencing token {}", lease.fencing_token()?);
//! lease.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Which servers
//!
//! This module works with Redis 6.2 and later, and with servers that implement its protocol, such as Valkey. An older
//! server is refused at the handshake, with its version and the reason. Each server must be
//! independent of the others: replicas and the shards of a Redis Cluster are not.
//!
//! # Keys
//!
//! With the prefix `P` (by default `quorate:`), these are the keys:
//!
//! * A lock `R` is the plain string `PR`, which contains the owner token and expires after the TTL. So
//!   Quorate and any Redlock client that uses this key exclude each other. The lock's counter is
//!   `{PR}:fence`, its readers are in `{PR}:readers`, and its queue is in `{PR}:queue`, `{PR}:queue:w` and `{PR}:queue:r`.
//! * The leadership of a group is the lock `election/GROUP`. A resign request to the holder of a lock `R` is
//!   the string `Presign/R`.
//! * The claim `ID` of the set `S` is the string `Pclaim/S/ID`, with `{`, `}` and `%` in the id escaped as in a URL. It contains everything that is stored about
//!   the claim.
//! * The ledger of a group is the hash `Pledger/GROUP`. Its parts are hashes of their own, such as
//!   `Pledger/GROUP{jobs}`.
//! * The node's marker is `Pnode`.
//!
//! A claim, and a lock that a session has acquired by a script, are acquired by plain commands in a transaction, on Redis 7.0
//! and later and on Valkey.
//!
//! A waiter for the lock `R` subscribes to the channel `PR:freed`. Every session with a waiter is also subscribed to
//! `Pnode:waiters`: a server publishes releases only while that channel has a subscriber.
//!
//! # Streams
//!
//! [`streams`] reads a consumer group of a Redis stream, as a source of messages for [`claim`](crate::claim). The
//! stream's server is your message broker, and not a node of the quorum.
//!
//! # What is not guaranteed
//!
//! A single Redis server promises little. Without `appendfsync always` it loses recent grants in a restart.
//! With an eviction policy it may lose any key at any moment. Its leases end by its wall clock. This module
//! reports such facts in a [`Hello`](crate::node::Hello), and the quorum decides from them whether the node
//! may vote.
//!
//! A server is reported as durable if `appendonly` is `yes`, `appendfsync` is `always` and
//! `no-appendfsync-on-rewrite` is `no`. This module cannot detect a disk or file system that acknowledges a sync
//! without performing it.
//!
//! These settings, the server's role and its eviction policy may change while a session is open. A session reads them
//! again every [`FACT_CHECK`]. If one has changed, the session ends, so that the next handshake decides again. Until
//! that check, a lease on the server may be evicted, and a restart may lose what the server has acknowledged. A change
//! that is undone before the check is not noticed.
//!
//! A dropped session continues to send the requests that it was given, for at most [`LINGER`]. The server may
//! execute a request long after it was sent, until the server's own clock is past the batch's `not_after`. Plain commands run
//! even later, but the key that they set ends one TTL after `not_after`.

mod address;
mod call;
mod command;
mod connect;
mod connect_quorum;
mod durability;
mod encode;
mod encoded;
mod examine;
mod fault;
mod files;
mod groups;
mod handshake;
mod item;
mod keys;
mod ledger_page;
mod link;
mod names;
mod node;
mod open;
mod plain_acquires;
#[doc(hidden)]
pub mod probe;
mod pubsub;
mod replies;
mod reply;
mod resp;
mod scripts;
mod server_facts;
mod server_version;
mod session;
mod session_io;
pub mod streams;
mod tls;
mod transaction;
mod wire;

#[doc(hidden)]
pub use examine::{Examination, Look};
pub use node::RedisNode;
#[doc(hidden)]
pub use session::RedisSession;
pub use session::{FACT_CHECK, LINGER};
