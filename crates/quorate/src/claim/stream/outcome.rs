use crate::{
    claim::{ClaimHandle, CompleteError},
    node::Owner,
};
use std::{fmt, sync::Arc, time::Duration};

/// How a message ended, for [`Consume::on_end`](super::Consume::on_end).
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended<M> {
    /// The message.
    pub message: Arc<M>,
    /// What became of it.
    pub outcome: Outcome,
    /// What the source knows of that.
    pub acked: Acked,
    /// From when it was pulled.
    pub took: Duration,
}

/// What became of a message here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Handled here; a majority has recorded it.
    Handled,
    /// It had been handled.
    Duplicate {
        /// What came of it then.
        result: Arc<str>,
    },
    /// Another worker handles it and [`Consume::patience`](super::Consume::patience) is over: it is left to the source.
    InProgress {
        /// The other worker, where a majority names the same one.
        holder: Option<Owner>,
    },
    /// The handler failed, or panicked. The message has been abandoned.
    Failed {
        /// What it said.
        why: Arc<str>,
    },
    /// As many attempts as may have begun, here and elsewhere, and none completed it: it is given up.
    DeadLettered {
        /// How many had begun.
        attempts: u32,
    },
    /// No claim can have its id, or its id was another payload's.
    Unusable {
        /// Why.
        why: Arc<str>,
    },
    /// Nothing is left of it to handle: the source has deleted it.
    Gone,
    /// The claim was lost while the handler ran, which has been dropped.
    Lost,
    /// The handler succeeded, but that could not be recorded.
    Unrecorded {
        /// Why.
        why: CompleteError,
    },
    /// The consumer was shut down before it was handled, or its handler did not end within the grace.
    Stopped,
}

/// What the source was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acked {
    /// That the message is done.
    Yes,
    /// Nothing: it may bring the message again.
    No,
    /// It could not be told, or the dead-letter hook failed or is missing: it may bring the message again.
    Failed(Arc<str>),
}

/// A message that cannot be handled, for [`Consume::on_dead`](super::Consume::on_dead).
#[derive(Debug)]
#[non_exhaustive]
pub struct DeadMessage<M> {
    /// The message.
    pub message: Arc<M>,
    /// Why, for people.
    pub why: Arc<str>,
    /// How many attempts had begun. None where no claim can have its id.
    pub attempts: u32,
    /// The claim under which it is handed over, so that one worker does it. None where no claim can have its id.
    pub claim: Option<ClaimHandle>,
}

/// How many messages ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Consumed {
    /// [`Outcome::Handled`].
    pub handled: u64,
    /// [`Outcome::Duplicate`].
    pub duplicates: u64,
    /// [`Outcome::InProgress`].
    pub in_progress: u64,
    /// [`Outcome::Failed`].
    pub failed: u64,
    /// [`Outcome::DeadLettered`].
    pub poisoned: u64,
    /// [`Outcome::Unusable`].
    pub unusable: u64,
    /// [`Outcome::Gone`].
    pub gone: u64,
    /// [`Outcome::Lost`].
    pub lost: u64,
    /// [`Outcome::Unrecorded`].
    pub unrecorded: u64,
    /// [`Outcome::Stopped`].
    pub stopped: u64,
    /// Of all these, how many the source was told of.
    pub acked: u64,
    /// How often the source failed.
    pub source_errors: u64,
}

impl Consumed {
    pub(super) fn count(&mut self, outcome: &Outcome, acked: &Acked) {
        *match outcome {
            Outcome::Handled => &mut self.handled,
            Outcome::Duplicate { .. } => &mut self.duplicates,
            Outcome::InProgress { .. } => &mut self.in_progress,
            Outcome::Failed { .. } => &mut self.failed,
            Outcome::DeadLettered { .. } => &mut self.poisoned,
            Outcome::Unusable { .. } => &mut self.unusable,
            Outcome::Gone => &mut self.gone,
            Outcome::Lost => &mut self.lost,
            Outcome::Unrecorded { .. } => &mut self.unrecorded,
            Outcome::Stopped => &mut self.stopped,
        } += 1;
        self.acked += u64::from(*acked == Acked::Yes);
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
