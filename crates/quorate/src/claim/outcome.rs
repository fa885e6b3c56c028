use super::{Claim, DeadLettered, Done};
use crate::node::Owner;
use std::{sync::Arc, time::Duration};

/// The outcome of a claim.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClaimOutcome {
    /// This worker may handle the message.
    Claimed(Claim),
    /// Another worker is handling the message. This outcome is also returned in three cases in which nodes
    /// granted this claim: another worker completed the message at the same time, another worker counted as
    /// many attempts, or the claim was granted by a majority and then lost. Claim the message again to learn
    /// its state.
    InProgress {
        /// The time after which the message may be free, by the remaining TTLs that the nodes reported. `None`
        /// if that is not known.
        retry_after: Option<Duration>,
        /// The other worker, if a majority names the same one.
        holder: Option<Owner>,
    },
    /// The message has been handled.
    Done(Done),
    /// The message is given up: the attempt limit is reached, and no attempt has completed the message.
    DeadLettered(DeadLettered),
}

/// The outcome of [`Claims::process`](super::Claims::process). Only some outcomes allow the caller to
/// acknowledge the message to its source: see [`Processed::may_ack`].
///
/// ```
/// # use quorate::{Claims, Quorum, claim::Processed, node::MemoryNode};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let quorum = Quorum::builder().node(MemoryNode::new("a")).trust_new_nodes(true).build()?;
/// # let claims = Claims::new(&quorum, "orders");
/// let handle = |_claim| async { Ok::<_, std::convert::Infallible>("shipped") };
/// match claims.process("order-1", handle).await? {
///     Processed::Handled => {}                  // ack
///     Processed::AlreadyDone(_done) => {}       // ack: a redelivery
///     Processed::DeadLettered(dead) => assert!(dead.at.is_some()), // ack once the hook has taken it
///     Processed::InProgress { .. } => {}        // do not ack: the worker that has it may crash
///     other => assert!(!other.may_ack()),
/// }
/// # quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a message that is in progress must not be acknowledged to its source: check `may_ack`"]
#[non_exhaustive]
pub enum Processed {
    /// The message was handled by this call, and recorded as done.
    Handled,
    /// Another worker is handling the message, or the claim was lost while it was being acquired: see
    /// [`ClaimOutcome::InProgress`].
    InProgress {
        /// The time after which the message may be free, by the remaining TTLs that the nodes reported. `None`
        /// if that is not known.
        retry_after: Option<Duration>,
    },
    /// The message had been handled before.
    AlreadyDone(Done),
    /// The message has been given up.
    DeadLettered(DeadLettered),
}

impl Processed {
    /// Returns whether the message may be acknowledged to its source. This is the case if this call or an
    /// earlier one has handled the message, or if a dead-letter hook has handled it. A message that is in
    /// progress must not be acknowledged: if the worker that handles it crashes, only the source can deliver
    /// it again.
    pub fn may_ack(&self) -> bool {
        match self {
            Self::Handled | Self::AlreadyDone(_) => true,
            Self::DeadLettered(dead) => dead.at.is_some(),
            Self::InProgress { .. } => false,
        }
    }
}

/// A handler's result: nothing, or a short text that the nodes store in the done record.
pub trait ClaimResult {
    /// Returns the text.
    fn text(&self) -> &str;
}

impl ClaimResult for () {
    fn text(&self) -> &str {
        ""
    }
}

impl ClaimResult for String {
    fn text(&self) -> &str {
        self
    }
}

impl ClaimResult for &str {
    fn text(&self) -> &str {
        self
    }
}

impl ClaimResult for Arc<str> {
    fn text(&self) -> &str {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{env::WallTime, node::FencingToken};

    #[test]
    fn a_message_may_be_acked_only_once_it_is_done_or_taken_by_the_hook() {
        let dead = |at| Processed::DeadLettered(DeadLettered { attempts: 3, at, note: "".into() });
        let done = Done { result: "".into(), at: WallTime::default(), token: FencingToken::new(1) };
        assert!(Processed::Handled.may_ack() && Processed::AlreadyDone(done).may_ack());
        assert!(dead(Some(WallTime::default())).may_ack());
        assert!(!dead(None).may_ack(), "no hook has taken it");
        assert!(!Processed::InProgress { retry_after: None }.may_ack());
    }
}
