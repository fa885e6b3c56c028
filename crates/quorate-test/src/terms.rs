use quorate::election::PastTerm;
use std::{fmt, sync::Arc};

/// The terms of a group, read by [`Cluster::terms`](crate::Cluster::terms). The nodes keep about the newest 200.
///
/// The assertions panic with the whole history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    group: Arc<str>,
    terms: Vec<PastTerm>,
}

impl Terms {
    /// `terms` are the newest first.
    pub(crate) fn new(group: &str, mut terms: Vec<PastTerm>) -> Self {
        terms.reverse();
        Self { group: group.into(), terms }
    }

    /// Returns the number of terms.
    pub fn len(&self) -> usize {
        self.terms.len()
    }

    /// Returns `true` if no worker has led.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the names of the leaders, the oldest first.
    pub fn leaders(&self) -> Vec<&str> {
        self.terms.iter().map(|term| &*term.holder).collect()
    }

    /// Returns the fencing tokens of the terms, the oldest first.
    pub fn tokens(&self) -> Vec<u64> {
        self.terms.iter().map(|term| term.term.get()).collect()
    }

    /// Asserts that these workers have led, in this order.
    ///
    /// # Panics
    /// If others have.
    #[track_caller]
    pub fn assert_leaders(&self, leaders: &[&str]) {
        assert!(self.leaders() == leaders, "expected the leaders {leaders:?}, but {self}");
    }

    /// Asserts that each term ended before the next one began, and that each has a larger fencing token.
    ///
    /// # Panics
    /// If two terms overlap.
    #[track_caller]
    pub fn assert_one_at_a_time(&self) {
        for pair in self.terms.windows(2) {
            let (earlier, later) = (&pair[0], &pair[1]);
            let ended = earlier.end.as_ref().is_some_and(|end| end.at <= later.began);
            assert!(
                ended && earlier.term < later.term,
                "the term {} is not over before {}: {self}",
                earlier.term,
                later.term
            );
        }
    }
}

/// Formats the history with one line for each term.
impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the group {:?} has had {} terms", self.group, self.terms.len())?;
        for PastTerm { term, holder, began, end, .. } in &self.terms {
            write!(f, "\n  {term} of {holder} from {began}")?;
            if let Some(end) = end {
                write!(f, " until {} ({:?} {})", end.at, end.cause, end.reason)?;
            }
        }
        Ok(())
    }
}
