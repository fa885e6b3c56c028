use quorate::{
    env::WallTime,
    scheduler::{HistoryEntry, RunOutcome},
};
use std::{fmt, sync::Arc};

/// The history of a job, read by [`Cluster::runs`](crate::Cluster::runs). It has an entry for each tick whose
/// run has ended, and for each tick that did not run. The nodes keep the newest entries: 100, if the job does
/// not set another number ([`quorate::Job::history`]).
///
/// The assertions panic with the whole history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    job: Arc<str>,
    entries: Vec<HistoryEntry>,
}

impl Runs {
    /// `entries` are the newest first.
    pub(crate) fn new(job: &str, mut entries: Vec<HistoryEntry>) -> Self {
        entries.reverse();
        Self { job: job.into(), entries }
    }

    /// Returns the entries, the oldest first.
    pub fn entries(&self) -> &[HistoryEntry] {
        &self.entries
    }

    /// Returns the ticks whose runs succeeded, in the order in which they ended.
    pub fn done(&self) -> Vec<WallTime> {
        self.with(RunOutcome::Done).map(|entry| entry.tick).collect()
    }

    /// Returns the names of the workers whose runs succeeded, in the order in which the runs ended.
    pub fn workers(&self) -> Vec<&str> {
        self.with(RunOutcome::Done).map(|entry| &*entry.worker).collect()
    }

    /// Asserts that exactly these ticks succeeded, each once.
    ///
    /// # Panics
    /// If other ticks did.
    #[track_caller]
    pub fn assert_done(&self, ticks: &[WallTime]) {
        let (mut done, mut expected) = (self.done(), ticks.to_vec());
        done.sort_unstable();
        expected.sort_unstable();
        assert!(done == expected, "expected runs at {}, but {self}", times(&expected));
    }

    /// Asserts that no tick has two successful runs.
    ///
    /// # Panics
    /// If one does.
    #[track_caller]
    pub fn assert_none_twice(&self) {
        let mut done = self.done();
        done.sort_unstable();
        let twice = done.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        assert!(twice.is_none(), "the tick {} has two runs: {self}", times(twice.as_slice()));
    }

    /// Asserts that every entry is a successful run: none failed, was lost or was skipped.
    ///
    /// # Panics
    /// If one is not.
    #[track_caller]
    pub fn assert_all_done(&self) {
        let other = self.entries.iter().find(|entry| entry.end != RunOutcome::Done);
        assert!(other.is_none(), "not every tick has succeeded: {self}");
    }

    fn with(&self, end: RunOutcome) -> impl Iterator<Item = &HistoryEntry> {
        self.entries.iter().filter(move |entry| entry.end == end)
    }
}

fn times(times: &[WallTime]) -> String {
    let times: Vec<String> = times.iter().map(ToString::to_string).collect();
    format!("[{}]", times.join(", "))
}

/// Formats the history with one line for each entry.
impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the history of {:?} has {} entries", self.job, self.entries.len())?;
        for HistoryEntry { tick, end, worker, term, reason, attempts, .. } in &self.entries {
            write!(f, "\n  {tick} {end} by {worker} in term {term}, attempts: {attempts}")?;
            if !reason.is_empty() {
                write!(f, " ({reason})")?;
            }
        }
        Ok(())
    }
}
