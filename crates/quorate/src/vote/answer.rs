use crate::{
    env::BootTime,
    node::{Cause, Owner, Refusal, Reply},
    plain::plain,
    trust::{NodeEpoch, NodeState, VoteRejection},
    vote::VoteSender,
};
use std::{fmt, sync::Arc, time::Duration};

/// Where a driver sends the vote for one post.
#[derive(Clone, Debug)]
pub(crate) struct ReplyTo {
    pub(crate) sender: VoteSender,
    /// Given back with the vote, for a receiver of many rounds.
    pub(crate) ticket: u64,
}

/// One node's part in a round.
#[derive(Clone, Debug)]
pub struct Vote {
    /// The node's place in the list.
    pub node: usize,
    /// The round it belongs to, for a receiver of many rounds.
    pub ticket: u64,
    /// The boot clock just before the request left; `None` if it certainly never left.
    pub sent: Option<BootTime>,
    /// The memory of the node that was asked.
    pub memory: NodeEpoch,
    /// What came of it.
    pub answer: Answer,
}

/// What came of one request to one node.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The node replied.
    Reply(Reply),
    /// It did not.
    Failed(Cause),
    /// It has no vote, so it was not asked.
    Untrusted(VoteRejection),
}

/// What one node said in a round that came to nothing, for errors and logs.
#[derive(Clone, Debug)]
pub enum NodeOutcome {
    /// It agreed.
    Granted,
    /// What was asked for is done already.
    Done,
    /// It had not answered when the verdict was settled.
    Pending,
    /// Someone else holds the resource there.
    Contended {
        /// Who, by this node's word.
        holder: Owner,
        /// For how long yet.
        remaining: Option<Duration>,
    },
    /// No answer.
    Unreachable(Cause),
    /// No vote.
    Untrusted(VoteRejection),
    /// It would not.
    Refused(Refusal),
}

impl fmt::Display for NodeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => f.write_str("agreed"),
            Self::Done => f.write_str("done already"),
            Self::Pending => f.write_str("had not answered yet"),
            Self::Contended { holder, remaining: Some(left) } if holder.as_str() == Owner::READERS => {
                write!(f, "held by readers for {left:.1?}")
            }
            Self::Contended { holder, remaining: Some(left) } if holder.as_str() == Owner::QUEUE => {
                write!(f, "others come first in its queue, for {left:.1?} at least")
            }
            Self::Contended { holder, remaining: Some(left) } => {
                write!(f, "held by {} for {left:.1?}", plain(holder.worker(), 200))
            }
            Self::Contended { holder, remaining: None } => {
                write!(f, "held by {} without an end", plain(holder.worker(), 200))
            }
            Self::Unreachable(cause) => cause.fmt(f),
            Self::Untrusted(why) => write!(f, "not trusted: {why}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
        }
    }
}

impl NodeOutcome {
    /// The outcome of a node that was not asked, or has not answered.
    pub(crate) fn of_state(state: &NodeState) -> Self {
        match state {
            NodeState::Connecting | NodeState::Trusted => Self::Pending,
            NodeState::Quarantined { why, .. } | NodeState::Refused(why) => Self::Untrusted(why.clone()),
            NodeState::Unreachable(cause) => Self::Unreachable(cause.clone()),
        }
    }

    /// Whether only an operator can fix what kept the node from agreeing.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Untrusted(why) => why.is_permanent(),
            Self::Unreachable(cause) => cause.is_permanent(),
            _ => false,
        }
    }

    /// What an answer means where the grant would have been another reply.
    pub(crate) fn of(answer: &Answer) -> Self {
        match answer {
            Answer::Failed(cause) => Self::Unreachable(cause.clone()),
            Answer::Untrusted(why) => Self::Untrusted(why.clone()),
            Answer::Reply(Reply::Held { owner, remaining }) => {
                Self::Contended { holder: owner.clone(), remaining: *remaining }
            }
            Answer::Reply(Reply::Refused(Refusal::Clock { apart })) => {
                Self::Untrusted(VoteRejection::Clock { apart: *apart })
            }
            Answer::Reply(Reply::Refused(why)) => Self::Refused(why.clone()),
            Answer::Reply(Reply::Done(_)) => Self::Done,
            Answer::Reply(_) => Self::Granted,
        }
    }
}

/// What every node said in a round that did not reach a majority.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many nodes are a majority.
    pub needed: usize,
    /// The nodes by name, in the order of the list.
    pub nodes: Vec<(Arc<str>, NodeOutcome)>,
}

impl Report {
    /// How many nodes had an outcome of this kind.
    pub fn count(&self, kind: impl Fn(&NodeOutcome) -> bool) -> usize {
        self.nodes.iter().filter(|(_, outcome)| kind(outcome)).count()
    }

    /// Who holds the resource, where a majority names the same one.
    pub fn holder(&self) -> Option<&Owner> {
        let named = || {
            self.nodes.iter().filter_map(|(_, outcome)| match outcome {
                NodeOutcome::Contended { holder, .. } => Some(holder),
                _ => None,
            })
        };
        named().find(|owner| named().filter(|other| other == owner).count() >= self.needed)
    }

    /// Returns the time after which so many of the nodes that name a holder are free that a majority may be; `None` where they
    /// cannot tell.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let held = self.count(|outcome| matches!(outcome, NodeOutcome::Contended { .. }));
        let free = self.count(|outcome| matches!(outcome, NodeOutcome::Granted | NodeOutcome::Pending));
        let needed = self.needed.saturating_sub(free).clamp(1, held.max(1));
        let mut remaining: Vec<Duration> = self
            .nodes
            .iter()
            .filter_map(|(_, outcome)| match outcome {
                NodeOutcome::Contended { remaining, .. } => *remaining,
                _ => None,
            })
            .collect();
        remaining.sort_unstable();
        remaining.get(needed - 1).copied()
    }

    /// Whether only an operator can fix it: so many nodes refuse this worker for good that the others are no
    /// majority.
    pub fn is_permanent(&self) -> bool {
        self.nodes.len() - self.count(NodeOutcome::is_permanent) < self.needed
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agreed = self.count(|outcome| matches!(outcome, NodeOutcome::Granted));
        write!(f, "{agreed} of {} nodes agreed, {} needed", self.nodes.len(), self.needed)?;
        for (name, outcome) in &self.nodes {
            write!(f, "; {name}: {outcome}")?;
        }
        Ok(())
    }
}
