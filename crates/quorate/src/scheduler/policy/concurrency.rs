use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// The limit of the runs that use one thing at the same time, such as a database. It holds for all jobs of the group with
/// the key, on all workers. See [`Job::concurrency`](crate::scheduler::Job::concurrency).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrency {
    /// The key, which names the thing.
    pub key: Arc<str>,
    /// The largest number of active runs of all jobs with the key.
    pub limit: usize,
}

impl fmt::Display for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} at once of {:?}", self.limit, self.key)
    }
}
