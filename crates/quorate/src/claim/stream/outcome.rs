use crate::{claim::ClaimError, node::Owner};
use std::{fmt, sync::Arc, time::Duration};

/// The end of a message, which [`Consume::on_end`](super::Consume::on_end) reports.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended<M> {
    /// The message.
    pub message: Arc<M>,
    /// The message's outcome.
    pub outcome: Outcome,
    /// The result of the ack. `Ok(true)` means that the source accepted the ack, and `Ok(false)` that no ack
    /// was sent. An error has the reason: the ack failed, or the dead-letter hook failed or is missing. The
    /// source may then deliver the message again.
    pub acked: Result<bool, Arc<str>>,
    /// The time since the message was pulled.
    pub took: Duration,
}

/// The outcome of a message at this consumer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The message was handled here, and a majority stores that it is done.
    Handled,
    /// The message had been handled before.
    Duplicate {
        /// The result that the earlier handler returned.
        result: Arc<str>,
    },
    /// Another worker handles the message, and [`Consume::max_wait`](super::Consume::max_wait) is over. The
    /// message is left to the source.
    InProgress {
        /// The other worker, if a majority names the same one.
        holder: Option<Owner>,
    },
    /// The handler failed, or panicked. The message has been abandoned.
    Failed {
        /// The error, or the text of the panic.
        why: Arc<str>,
    },
    /// The message is given up: the attempts of all workers together have reached the limit, and none has
    /// completed the message.
    DeadLettered {
        /// The number of attempts that had begun.
        attempts: u32,
    },
    /// The message's id is not valid for a claim, or was used with another payload.
    Unusable {
        /// The reason.
        why: Arc<str>,
    },
    /// There is nothing left to handle: the source has deleted the message.
    Gone,
    /// The claim was lost while the handler ran. The handler has been dropped.
    Lost,
    /// The handler succeeded, but the message could not be recorded as done.
    Unrecorded {
        /// The reason.
        why: ClaimError,
    },
    /// The consumer was shut down before the message was handled, or its handler did not end within the
    /// grace period.
    Stopped,
}

/// The number of messages with each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Consumed {
    /// The number of messages with [`Outcome::Handled`].
    pub handled: u64,
    /// The number of messages with [`Outcome::Duplicate`].
    pub duplicates: u64,
    /// The number of messages with [`Outcome::InProgress`].
    pub in_progress: u64,
    /// The number of messages with [`Outcome::Failed`].
    pub failed: u64,
    /// The number of messages with [`Outcome::DeadLettered`].
    pub dead_lettered: u64,
    /// The number of messages with [`Outcome::Unusable`].
    pub unusable: u64,
    /// The number of messages with [`Outcome::Gone`].
    pub gone: u64,
    /// The number of messages with [`Outcome::Lost`].
    pub lost: u64,
    /// The number of messages with [`Outcome::Unrecorded`].
    pub unrecorded: u64,
    /// The number of messages with [`Outcome::Stopped`].
    pub stopped: u64,
    /// The number of messages, of all outcomes together, that were acked to the source.
    pub acked: u64,
    /// The number of errors of the source.
    pub source_errors: u64,
}

impl Consumed {
    pub(super) fn count(&mut self, outcome: &Outcome, acked: &Result<bool, Arc<str>>) {
        *match outcome {
            Outcome::Handled => &mut self.handled,
            Outcome::Duplicate { .. } => &mut self.duplicates,
            Outcome::InProgress { .. } => &mut self.in_progress,
            Outcome::Failed { .. } => &mut self.failed,
            Outcome::DeadLettered { .. } => &mut self.dead_lettered,
            Outcome::Unusable { .. } => &mut self.unusable,
            Outcome::Gone => &mut self.gone,
            Outcome::Lost => &mut self.lost,
            Outcome::Unrecorded { .. } => &mut self.unrecorded,
            Outcome::Stopped => &mut self.stopped,
        } += 1;
        self.acked += u64::from(*acked == Ok(true));
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handled => f.write_str("handled"),
            Self::Duplicate { .. } => f.write_str("it had been handled"),
            Self::InProgress { holder: Some(holder) } => {
                write!(f, "{} handles it", crate::plain::plain(holder.worker(), 200))
            }
            Self::InProgress { holder: None } => f.write_str("another worker handles it"),
            Self::Failed { why } => write!(f, "the handler failed: {why}"),
            Self::DeadLettered { attempts } => write!(f, "given up after {attempts} attempts"),
            Self::Unusable { why } => f.write_str(why),
            Self::Gone => f.write_str("the source has deleted it, so there is nothing to handle"),
            Self::Lost => f.write_str("the claim was lost under the handler"),
            Self::Unrecorded { why } => write!(f, "handled, but not recorded as done: {why}"),
            Self::Stopped => f.write_str("the consumer was shut down"),
        }
    }
}
