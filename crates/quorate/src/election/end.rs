//! How a term ended, and how its work did.

use crate::plain::plain;
use std::{
    any::Any,
    fmt::{self, Display},
    time::Duration,
};

/// How much of an error of the work is logged, in bytes.
const ERROR_MAX: usize = 1024;

/// What ended a term.
pub(super) enum End<E> {
    Lost,
    Done,
    /// It was to resign before its work was done.
    Left,
    Failed(Failure<E>),
    ShutDown,
}

/// How the work failed.
pub(super) enum Failure<E> {
    Error(E),
    Panic(Box<dyn Any + Send>),
}

impl<E: Display> Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The alternate form of some errors tells their causes as well.
        match self {
            Self::Error(error) => write!(f, "{}", plain(&format!("{error:#}"), ERROR_MAX)),
            Self::Panic(panic) => {
                write!(f, "it panicked: {}", plain(crate::panic::message(&**panic), ERROR_MAX))
            }
        }
    }
}

/// A term that is over.
pub(super) struct Led<E> {
    pub(super) end: End<E>,
    /// The worker itself caused the end, though the lease was lost.
    pub(super) rests: bool,
    /// The work had been told to stop when it ended.
    pub(super) told_to_stop: bool,
    /// How long the work ran.
    pub(super) ran: Duration,
}

pub(super) type Outcome<E> = Result<Result<(), E>, Box<dyn Any + Send>>;
