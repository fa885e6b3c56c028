use crate::{plain::plain, vote::NoMajority};
use std::{
    any::Any,
    fmt::{self, Display},
    time::Duration,
};

/// The maximum number of bytes of the work's error that are logged.
const ERROR_MAX: usize = 1024;

/// The way in which a term ended.
pub(super) enum End<E> {
    /// The lease was lost. `without_notice` is true if less than half of the grace period passed between the
    /// step-down signal and the loss.
    Lost {
        without_notice: bool,
    },
    /// The work returned `Ok`.
    Done,
    /// The leader was asked to resign.
    Resigned,
    Failed(Failure<E>),
    ShutDown,
}

impl<E> End<E> {
    /// Returns the outcome of the term for its span.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Lost { .. } => "lost",
            Self::Done => "done",
            Self::Resigned => "resigned",
            Self::Failed(_) => "failed",
            Self::ShutDown => "shut down",
        }
    }
}

/// The failure of the work: an error or a panic.
pub(super) enum Failure<E> {
    Error(E),
    Panic(Box<dyn Any + Send>),
}

impl<E: Display> Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Some error types include their causes in the alternate form (`{:#}`), so that form is used.
        match self {
            Self::Error(error) => write!(f, "{}", plain(&format!("{error:#}"), ERROR_MAX)),
            Self::Panic(panic) => {
                write!(f, "it panicked: {}", plain(crate::panic::message(&**panic), ERROR_MAX))
            }
        }
    }
}

/// Returns the reason why too few nodes extended the lease of a term, with each node's answer if it is known.
pub(super) fn lost_because(report: Option<&NoMajority>) -> String {
    report.map_or_else(|| "too few nodes extended it in time".to_owned(), NoMajority::to_string)
}

/// A term that is over.
pub(super) struct LedTerm<E> {
    pub(super) end: End<E>,
    /// True if the work was asked to stop because of `max_hold` or a failed health check, even if the lease
    /// was lost afterwards.
    pub(super) by_choice: bool,
    /// True if the leader gave up the lead, because it could not do its work.
    pub(super) gave_up: bool,
    /// True if the work had been asked to stop before it ended.
    pub(super) asked_to_stop: bool,
    /// The time for which the work ran.
    pub(super) ran: Duration,
}

/// The output of the work: its result, or the value of the panic that ended it.
pub(super) type WorkResult<E> = Result<Result<(), E>, Box<dyn Any + Send>>;
