//! Consumption of a stream of messages under claims: an adaptor between any source of messages and a handler.
//!
//! # What is not guaranteed
//!
//! A message is handled again if its worker ended between the handler's effect and the done record, or if the
//! done record was lost. If an effect must not happen twice, its transaction must compare the token of
//! [`Received::fencing_token`]. The adaptor stores nothing across a restart. So a message that is not
//! acknowledged to its source (*acked*) returns only if the source delivers it again. Messages are handled in
//! no particular order.
//!
//! Some sources deliver each message only once. Then a message is lost to this worker if it ends here without
//! being done. There are five such ends: its handler fails, its claim is lost, its attempts are used up, its
//! patience is over, or the consumer is shut down. Each such message is logged as a warning and reported to
//! [`Consume::on_end`], and [`Consumed`] counts it. To lose fewer messages, let the handler itself retry work
//! that may succeed later. For a source that [does not redeliver](Message::REDELIVERED), patience has no limit unless
//! [`Consume::patience`] sets one. If every worker receives every
//! message and one worker is killed, its messages wait at the other workers and are handled there.
//!
//! # Example
//!
//! ```
//! use futures_util::stream;
//! use quorate::claim::{Claims, stream::{Received, Ended}};
//! # use quorate::{node::MemoryNode, quorum::Quorum};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
//! # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
//! // Any stream: here of ids and payloads. One message is delivered twice.
//! let source = stream::iter([("order-1", "tea"), ("order-2", "milk"), ("order-1", "tea")]);
//! let handle = |order: Received<(&'static str, &'static str)>| async move {
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
//! # Outcomes
//!
//! | outcome | acked | consequence |
//! | --- | --- | --- |
//! | handled: a majority stores the done record | yes | |
//! | duplicate: it was done before | yes | |
//! | in progress: another worker handles it, and [`Consume::patience`] is over | no | logged and left to the source |
//! | failed: the handler returned an error, or panicked | no | abandoned: a worker that receives it again may claim it at once |
//! | dead-lettered: its [attempts](crate::claim::Claims::max_attempts) are used up | once the dead-letter hook has taken it | |
//! | unusable: its id is not valid for a claim, or was used with another payload | once the dead-letter hook has taken it | |
//! | gone: the source has deleted it | yes | |
//! | lost: the claim was lost while the handler ran, and the handler was dropped | no | another worker may handle it, or has handled it |
//! | unrecorded: handled, but no majority stores the done record | no | it is handled again, unless a later claim finds it done |
//! | stopped: the consumer was shut down | no | abandoned |
//!
//! A message that another worker handles waits until it is done or free. While [the
//! maximum](Consume::max_waiting) of messages wait, or too few nodes answer, no more messages are pulled from
//! the source. Messages that were pulled before continue to wait.

mod consume;
mod received;
mod in_flight;
mod message;
mod one;
mod outcome;
mod run;

pub use consume::Consume;
pub use received::Received;
pub use message::Message;
pub use outcome::{Consumed, Ended, Outcome};
