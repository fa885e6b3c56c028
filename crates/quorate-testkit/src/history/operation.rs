use std::{fmt, sync::Arc, time::Duration};

/// A moment of a history: nanoseconds since a beginning that all operations of the history share.
///
/// Two operations of which one ends at the moment at which the other begins count as concurrent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Returns the moment that is this many nanoseconds after the beginning.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the moment in the form that the checker requires.
    pub(super) fn as_time(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Duration::from_nanos(self.0), f)
    }
}

/// A call with its result, and the time in which it took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<C> {
    /// The process that made the call, for reports.
    pub process: Arc<str>,
    /// The call, with the result that the process received.
    pub call: C,
    /// The call took effect at this moment or later.
    pub begin: Moment,
    /// The call took effect at this moment or earlier. `None` if that is not known, because the process received no
    /// result. Such an operation may take effect at any later time, so it stays open to the end of the history.
    pub end: Option<Moment>,
}

impl<C> Operation<C> {
    /// Returns an operation that took effect at `at`.
    pub fn at(process: &Arc<str>, call: C, at: Moment) -> Self {
        Self::during(process, call, at, at)
    }

    /// Returns an operation that took effect between `begin` and `end`.
    pub fn during(process: &Arc<str>, call: C, begin: Moment, end: Moment) -> Self {
        Self { process: Arc::clone(process), call, begin, end: Some(end) }
    }

    /// Returns an operation of unknown result.
    pub fn open(process: &Arc<str>, call: C, begin: Moment) -> Self {
        Self { process: Arc::clone(process), call, begin, end: None }
    }
}

impl<C: fmt::Debug> fmt::Display for Operation<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, call, begin, end } = self;
        match end {
            Some(end) => write!(f, "{process} {call:?} from {begin} to {end}"),
            None => write!(f, "{process} {call:?} from {begin}, result unknown"),
        }
    }
}
