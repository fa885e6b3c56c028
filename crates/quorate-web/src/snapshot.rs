//! The state that a page shows: what the nodes said at one moment. Text of other parties is made plain here.

use quorate::{
    env::WallTime,
    ledger::{CopyState, LedgerCopies},
    scheduler::{Cron, Explanation, Schedule},
};
pub(crate) use quorate_operator::view::{
    ClientLease, JobState, JobView, NodeView, Pause, RunEnd, ShardSetView, Vote, WorkerView, name, text,
};
use std::{ops::Deref, sync::Arc, time::Duration};

/// The number of runs in a strip.
pub(crate) const STRIP: usize = 20;
/// The length up to which the nodes' list of jobs has the newest end of each: see `quorate::scheduler::Jobs::list`.
const SHORT_LIST: usize = 256;

/// The state of a group and its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The time at which it was read.
    pub(crate) at: WallTime,
    pub(crate) group: Arc<str>,
    /// The name of the worker that serves the page.
    pub(crate) worker: Arc<str>,
    pub(crate) nodes: Vec<SeenNode>,
    pub(crate) leadership: Leadership,
    /// The TTL of the leader's lease, if it is known.
    pub(crate) ttl: Option<Duration>,
    /// `None` if the page shows no jobs. Shared, because a list may be long, and each viewer has a copy of the snapshot.
    pub(crate) jobs: Option<Arc<JobsView>>,
    pub(crate) examination: Option<Arc<crate::source::Examination>>,
    /// The leases of this process's clients; `None` if it serves none.
    pub(crate) leases: Option<Arc<Vec<ClientLease>>>,
    /// The sets of shards. Shared, because a set may have thousands.
    pub(crate) shards: Arc<Vec<ShardSetView>>,
}

/// A node, with what this process remembers of it.
#[derive(Clone, Debug)]
pub(crate) struct SeenNode {
    pub(crate) node: NodeView,
    /// The time at which the quarantine ends.
    pub(crate) votes_at: Option<WallTime>,
    /// The time at which this process first saw the node in this state.
    pub(crate) since: WallTime,
    /// The last round trips, the oldest first.
    pub(crate) trips: Vec<Duration>,
}

impl Deref for SeenNode {
    type Target = NodeView;

    fn deref(&self) -> &NodeView {
        &self.node
    }
}

/// The leader of the group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Leadership {
    Leader {
        worker: String,
        term: Option<u64>,
        /// The time at which this process first saw it lead.
        since: WallTime,
        remaining: Option<Duration>,
    },
    /// There is no leader, as this process has seen since then.
    Vacant { since: WallTime },
    /// Too few nodes answered.
    Unknown,
}

/// The jobs of the group.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobsView {
    pub(crate) list: Vec<JobView>,
    /// The time at which the list was read; `None` if it has not been read yet.
    pub(crate) read_at: Option<WallTime>,
    /// The reason why the list could not be read again.
    pub(crate) error: Option<String>,
    /// The freeze of the group, if it is frozen.
    pub(crate) freeze: Option<Pause>,
    /// The copies that the nodes have of the records of the jobs, if there are any.
    pub(crate) copies: Option<LedgerCopies>,
    /// The live workers.
    pub(crate) workers: Vec<WorkerView>,
    /// The number of jobs whose history has not been read since a viewer looked. A long list is read in parts.
    pub(crate) unread: usize,
}

/// The state that only the page of one job shows.
#[derive(Clone, Debug)]
pub(crate) struct JobDetail {
    pub(crate) job: JobView,
    /// The newest ends of runs; those of the list if the history could not be read.
    pub(crate) ends: Vec<RunEnd>,
    /// The error of the history, if it could not be read.
    pub(crate) unread_history: Option<String>,
    pub(crate) next: Vec<WallTime>,
    pub(crate) why: Option<Explanation>,
}

/// A part of the state that is read only while a viewer looks at it.
#[derive(Clone, Debug)]
pub(crate) enum Detail {
    Job(Result<Box<JobDetail>, Missing>),
    LeadershipPast(Result<crate::changes::LeadershipPast, String>),
    Messages(Result<crate::source::Messages, String>),
    /// There is no such part, or the snapshot has it: the facts about the nodes.
    Nothing,
}

/// The reason why a job cannot be shown.
#[derive(Clone, Debug)]
pub(crate) enum Missing {
    /// There is no such job.
    Unknown(String),
    /// Its state could not be read.
    Unread(String),
}

impl Snapshot {
    pub(crate) fn needed(&self) -> usize {
        quorate::internals::majority(self.nodes.len())
    }

    pub(crate) fn voting(&self) -> usize {
        self.nodes.iter().filter(|node| node.vote == Vote::Votes).count()
    }

    pub(crate) fn has_quorum(&self) -> bool {
        self.voting() >= self.needed()
    }

    /// Returns the copies of the records of the jobs, if there are any.
    pub(crate) fn copies(&self) -> Option<&LedgerCopies> {
        self.jobs.as_ref()?.copies.as_ref()
    }

    /// Returns the copy of the node at this index. `None` if it is not known.
    pub(crate) fn copy(&self, node: usize) -> Option<CopyState> {
        let copy = self.copies()?.nodes().get(node)?.state;
        (copy != CopyState::Unknown).then_some(copy)
    }

    /// Returns the number of voting nodes that may be lost before there is no quorum.
    pub(crate) fn spare(&self) -> usize {
        self.voting().saturating_sub(self.needed())
    }
}

impl JobsView {
    /// Returns whether a list of this length comes without the ends of runs.
    pub(crate) const fn is_long(length: usize) -> bool {
        length > SHORT_LIST
    }
}

/// Returns the meaning in words of a cron schedule that is written as text, such as `0 3 * * * (Europe/Kyiv)`.
pub(crate) fn cron_words(schedule: &str) -> Option<String> {
    let (line, _) = schedule.split_once(" (")?;
    Cron::parse(line).ok().map(|cron| text(&Schedule::from(cron).words()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cron_line_has_words() {
        let words = cron_words("0 3 * * * (Europe/Kyiv)");
        assert!(words.as_deref().is_some_and(|words| words.contains("03:00")), "{words:?}");
        for other in ["every 90s", "my own ( table"] {
            assert_eq!(cron_words(other), None, "{other}");
        }
    }
}
