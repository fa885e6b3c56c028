//! Claims for a stream of messages: an adaptor between any source and a handler.
//!
//! # What is not guaranteed
//!
//! A message is handled again where its worker ended between the handler's effect and *done*, and where *done* has
//! been forgotten: what must not happen twice compares [`Delivery::fencing_token`]'s token in its own transaction. What is
//! not acked comes again only if the source brings it again: the adaptor keeps nothing over a restart. Messages are
//! handled in no order.
//!
//! With a source that brings each message only once, a message is lost to this worker if it ends without being done:
//! where its handler fails, its claim is lost, its attempts are used up, its patience is over, or the consumer is shut
//! down. Each such message is logged as a warning and reported to [`Consume::on_end`], and [`Consumed`] counts them.
//! Let the handler retry what may succeed later, and set [`Consume::patience`] to `Duration::MAX`. Where every worker is
//! given every message, a message of a killed worker waits at the others and is handled there.
//!
//! # In short
//!
//! ```
//! use futures_util::stream;
//! use quorate::claim::{Claims, stream::{Delivery, Ended}};
//! # use quorate::{node::MemoryNode, quorum::Quorum};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
//! # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
//! // Any stream: here of ids and payloads, and one message is there twice.
//! let source = stream::iter([("order-1", "tea"), ("order-2", "milk"), ("order-1", "tea")]);
//! let handle = |order: Delivery<(&'static str, &'static str)>| async move {
//!     println!("{} under token {}", order.message().1, order.fencing_token()?);
//!     Ok::<_, quorate::lease::LeaseLost>(())
//! };
//! let consumed = Claims::new(&quorum, "orders")
//!     .consume(source, handle)
//!     .concurrency(8)
//!     .on_end(|ended: &Ended<_>| println!("{}: {}", ended.message.0, ended.outcome))
//!     .until(std::future::pending::<()>())
//!     .await?;
//! assert_eq!((consumed.handled, consumed.duplicates), (2, 1));
//! # quorum.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What becomes of a message
//!
//! | outcome | acked | what comes next |
//! | --- | --- | --- |
//! | handled: *done* is at a majority | yes | |
//! | duplicate: it was done before | yes | |
//! | in progress: another worker handles it, and [`Consume::patience`] is over | no | logged and left to the source |
//! | failed: the handler said so, or panicked | no | abandoned: whoever is brought it again may claim it at once |
//! | poisoned: its [attempts](crate::claim::Claims::max_attempts) are used up | once the dead-letter hook has it | |
//! | unusable: no claim can have its id, or the id was another payload's | once the dead-letter hook has it | |
//! | gone: the source has nothing left of it | yes | |
//! | lost: the claim was lost under the handler, which was dropped | no | another handles it, or has |
//! | unrecorded: handled, but *done* is at no majority | no | it is handled again, unless a later look finds it done |
//! | stopped: at the shut-down | no | abandoned |
//!
//! A message that another worker handles waits until it is done or free. While as many wait as
//! [may](Consume::max_waiting), or too few nodes answer, nothing more is pulled from the source, and nothing ends.

mod consume;
mod delivery;
mod in_flight;
mod message;
mod one;
mod outcome;
mod run;

pub use consume::Consume;
pub use delivery::Delivery;
pub use message::{BadId, Incoming, Message};
pub use outcome::{Acked, Consumed, DeadMessage, Ended, Outcome};
