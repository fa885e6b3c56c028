//! The state that a page shows: what the nodes said at one moment. Text of other parties is made plain here.

use super::{Examination, LeadershipPast, Messages};
use crate::view::{
    ClientLease, JobView, LeaderView, NodeView, Pause, RunEnd, ShardSetView, Vote, WhyView, WorkerView, text,
};
use quorate::{
    env::WallTime,
    ledger::{CopyState, LedgerCopies},
    scheduler::{Cron, Schedule},
};
use std::{ops::Deref, sync::Arc, time::Duration};

/// The number of runs in a strip.
pub const STRIP: usize = 20;
/// The length up to which the nodes' list of jobs has the newest end of each: see `quorate::scheduler::Jobs::list`.
const SHORT_LIST: usize = 256;

/// The state of a group and its nodes.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time at which it was read.
    pub at: WallTime,
    /// The name of the group.
    pub group: Arc<str>,
    /// The name of the worker that serves the page.
    pub worker: Arc<str>,
    /// The nodes, in the order of the node list.
    pub nodes: Vec<SeenNode>,
    /// The leader of the group.
    pub leadership: Leadership,
    /// The reason why it is not known who leads.
    pub unread_leader: Option<String>,
    /// The TTL of the leader's lease, if it is known.
    pub ttl: Option<Duration>,
    /// `None` if the page shows no jobs. Shared, because a list may be long, and each viewer has a copy of the snapshot.
    pub jobs: Option<Arc<JobsView>>,
    /// The facts about the nodes, while a viewer looks at them.
    pub examination: Option<Arc<Examination>>,
    /// The leases of this process's clients; `None` if it serves none.
    pub leases: Option<Arc<Vec<ClientLease>>>,
    /// The sets of shards. Shared, because a set may have thousands.
    pub shards: Arc<Vec<ShardSetView>>,
}

/// A node, with what this process remembers of it.
#[derive(Clone, Debug)]
pub struct SeenNode {
    /// The node.
    pub node: NodeView,
    /// The time at which the quarantine ends.
    pub votes_at: Option<WallTime>,
    /// The time at which this process first saw the node in this state.
    pub since: WallTime,
    /// The last round trips, the oldest first.
    pub trips: Vec<Duration>,
}

impl Deref for SeenNode {
    type Target = NodeView;

    fn deref(&self) -> &NodeView {
        &self.node
    }
}

/// The leader of the group.
#[derive(Clone, Debug, PartialEq)]
pub enum Leadership {
    /// A worker leads.
    Leader {
        /// The worker.
        leader: LeaderView,
        /// The time at which this process first saw it lead.
        since: WallTime,
    },
    /// There is no leader, as this process has seen since then.
    Vacant {
        /// The time at which this process first saw no leader.
        since: WallTime,
    },
    /// Too few nodes answered.
    Unknown,
}

/// The jobs of the group.
#[derive(Clone, Debug, Default)]
pub struct JobsView {
    /// The jobs.
    pub list: Vec<JobView>,
    /// The time at which the list was read; `None` if it has not been read yet.
    pub read_at: Option<WallTime>,
    /// The reason why the list could not be read again.
    pub error: Option<String>,
    /// The freeze of the group, if it is frozen.
    pub freeze: Option<Pause>,
    /// The copies that the nodes have of the records of the jobs, if there are any.
    pub copies: Option<LedgerCopies>,
    /// The live workers.
    pub workers: Vec<WorkerView>,
    /// The number of jobs whose history has not been read since a viewer looked. A long list is read in parts.
    pub unread: usize,
}

/// The state that only the page of one job shows.
#[derive(Clone, Debug)]
pub struct JobDetail {
    /// The job.
    pub job: JobView,
    /// The newest ends of runs; those of the list if the history could not be read.
    pub ends: Vec<RunEnd>,
    /// The error of the history, if it could not be read.
    pub unread_history: Option<String>,
    /// The times of the next runs.
    pub next: Vec<WallTime>,
    /// The reason why the job did or did not run; `None` if it is not known.
    pub why: Option<WhyView>,
}

/// A part of the state that is read only while a viewer looks at it.
#[derive(Clone, Debug)]
pub enum Detail {
    /// A job, or the reason why it cannot be shown.
    Job(Result<Box<JobDetail>, Missing>),
    /// The past of the group, or the error.
    LeadershipPast(Result<LeadershipPast, String>),
    /// The messages of a set, or the error.
    Messages(Result<Messages, String>),
    /// There is no such part, or the snapshot has it: the facts about the nodes.
    Nothing,
}

/// The reason why a job cannot be shown.
#[derive(Clone, Debug)]
pub enum Missing {
    /// There is no such job.
    Unknown(String),
    /// Its state could not be read.
    Unread(String),
}

impl Snapshot {
    /// Returns the number of nodes that must vote.
    pub fn needed(&self) -> usize {
        quorate::internals::majority(self.nodes.len())
    }

    /// Returns the number of nodes that vote.
    pub fn voting(&self) -> usize {
        self.nodes.iter().filter(|node| node.vote == Vote::Votes).count()
    }

    /// Returns whether enough nodes vote.
    pub fn has_quorum(&self) -> bool {
        self.voting() >= self.needed()
    }

    /// Returns the copies of the records of the jobs, if there are any.
    pub fn copies(&self) -> Option<&LedgerCopies> {
        self.jobs.as_ref()?.copies.as_ref()
    }

    /// Returns the copy of the node at this index. `None` if it is not known.
    pub fn copy(&self, node: usize) -> Option<CopyState> {
        let copy = self.copies()?.nodes().get(node)?.state;
        (copy != CopyState::Unknown).then_some(copy)
    }

    /// Returns the number of voting nodes that may be lost before there is no quorum.
    pub fn spare(&self) -> usize {
        self.voting().saturating_sub(self.needed())
    }
}

impl JobsView {
    /// Returns whether a list of this length comes without the ends of runs.
    pub const fn is_long(length: usize) -> bool {
        length > SHORT_LIST
    }
}

/// Returns the meaning in words of a cron schedule that is written as text, such as `0 3 * * * (Europe/Kyiv)`.
pub fn cron_words(schedule: &str) -> Option<String> {
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
