//! Redis Streams as a source of messages for [`quorate::claim`]: the entries that a consumer group gives to one
//! consumer, with what dead consumers have left being claimed over.
//!
//! # What is not guaranteed
//!
//! The server of a stream is the user's broker, an ordinary Redis: what it forgets is lost, and it is no node of the
//! quorum. A group brings an entry to several consumers where one is slow: that it is handled by one is what the claim
//! is for. An entry whose ack did not arrive comes again, and is known to be done then. Entries come in the
//! stream's order only while none comes again.
//!
//! # In short
//!
//! ```no_run
//! use quorate::{claim::{Claims, stream::Delivery}, quorum::Quorum};
//! use quorate_redis::{Connect, streams::{StreamMessage, StreamSource}};
//!
//! # async fn consume() -> Result<(), Box<dyn std::error::Error>> {
//! let quorum = Quorum::connect(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]).await?;
//! let orders = StreamSource::new("redis://broker.example", "orders", "billing")?.consumer("billing-1");
//! let handle = |order: Delivery<StreamMessage>| async move {
//!     println!("{:?} under token {}", order.message().text("item"), order.fencing_token()?);
//!     Ok::<_, quorate::lease::LeaseLost>(())
//! };
//! let shutdown = std::future::pending();
//! Claims::new(&quorum, "orders").consume(orders.messages(), handle).until(shutdown).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What comes again, and when
//!
//! An entry that was given to a consumer and not acked is pending. A consumer that is started again under its name, or
//! connects again, is given its own pending entries first. The pending entries of all consumers, its own as well, it
//! takes over once nobody has touched them for [`StreamSource::min_idle`]: so a handler's failure is followed by another
//! attempt. How often an entry was *delivered* says little about how often it was *tried*, so nothing here gives up on
//! one: that is the claim's to count.

mod acks;
mod entry;
mod link;
mod message;
mod plan;
mod read;
mod source;

pub use message::{Fields, StreamMessage};
pub use source::{Begin, StreamError, StreamSource};
