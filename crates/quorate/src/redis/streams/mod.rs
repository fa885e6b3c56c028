//! Redis Streams as a source of messages for [`claim`](crate::claim): reads a consumer group as one consumer, and
//! takes over the entries that dead consumers left pending.
//!
//! # Example
//!
//! ```no_run
//! use quorate::{Claims, Quorum, claim::stream::Received, redis::streams::{StreamMessage, StreamSource}};
//!
//! # async fn consume() -> Result<(), Box<dyn std::error::Error>> {
//! let quorum = Quorum::connect(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]).await?;
//! let orders = StreamSource::new("redis://broker.example", "orders", "billing")?.consumer("billing-1");
//! let handle = |order: Received<StreamMessage>| async move {
//!     println!("{:?} under token {}", order.message().text("item"), order.fencing_token()?);
//!     Ok::<_, quorate::lease::LeaseLost>(())
//! };
//! let shutdown = std::future::pending::<()>();
//! Claims::new(&quorum, "orders").try_consume(orders.messages(), handle).until(shutdown).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Redelivery
//!
//! An entry that was delivered to a consumer and not acknowledged is pending. A consumer that restarts under
//! the same name, or reconnects, first receives its own pending entries. It also takes over the pending
//! entries of all consumers, itself included, once they have been idle for [`StreamSource::min_idle`]. So a
//! handler's failure is followed by another attempt. An entry may be delivered many times without an attempt
//! to handle it. This module therefore never gives up on an entry by its number of deliveries. The claim
//! counts the attempts.
//!
//! # What is not guaranteed
//!
//! The stream's server is your message broker: an ordinary Redis server, and not a node of the quorum.
//! Entries that it loses are lost. A group may deliver an entry to several consumers if the first of them is
//! slow. The claim makes sure that only one consumer handles the entry. An entry whose ack did not arrive is
//! delivered again, and the claim then reports that it is done. Entries arrive in the stream's order only as
//! long as no entry is redelivered.

mod acks;
mod broker;
mod entry;
mod message;
mod messages;
mod plan;
mod read;
mod source;

pub use message::{Fields, StreamMessage};
pub use source::{Begin, StreamError, StreamSource};
