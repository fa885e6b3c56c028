use crate::{
    env::BootTime,
    node::{Cause, Owner, Refusal, Reply},
    plain::plain,
    trust::{NodeEpoch, NodeState, VoteRejection},
};
use std::{borrow::Cow, error, fmt, sync::Arc, time::Duration};

/// The vote of one node in a round.
#[derive(Clone, Debug)]
pub struct Vote {
    /// The node's index in the list.
    pub node: usize,
    /// The number that the receiver gave the request, such as that of its round.
    pub ticket: u64,
    /// The number of requests of one message that the vote answers: those with `ticket` and the numbers after it. 1,
    /// but for the extensions of several leases.
    pub requests: u64,
    /// The time on the boot clock just before the request was sent. `None` if the request was certainly not
    /// sent.
    pub sent: Option<BootTime>,
    /// The memory epoch of the node when the request was sent.
    pub memory: NodeEpoch,
    /// The node's answer.
    pub answer: Answer,
}

/// The result of one request to one node.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The node replied.
    Reply(Reply),
    /// The node did not reply.
    Failed(Cause),
    /// The node must not vote, so the request was not sent.
    Untrusted(VoteRejection),
}

/// The outcome of one node in a round that failed, for errors and logs.
#[derive(Clone, Debug)]
pub enum NodeOutcome {
    /// The node agreed.
    Granted,
    /// The request claims a message that is already done.
    Done,
    /// The round ended before the node had answered.
    Pending,
    /// Another owner holds the resource on the node.
    Contended {
        /// The owner that the node named.
        holder: Owner,
        /// The time that is left of the holder's lease, if the node reported it.
        remaining: Option<Duration>,
    },
    /// The node did not answer.
    Unreachable(Cause),
    /// The node must not vote.
    Untrusted(VoteRejection),
    /// The node refused the request.
    Refused(Refusal),
}

impl fmt::Display for NodeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => f.write_str("agreed"),
            Self::Done => f.write_str("done already"),
            Self::Pending => f.write_str("had not answered yet"),
            Self::Contended { holder, remaining: None } if holder.as_str() == Owner::QUEUE => {
                Refusal::Queued.fmt(f)
            }
            Self::Contended { holder, remaining: Some(left) } if holder.as_str() == Owner::READERS => {
                write!(f, "held by readers for another {left:.1?}")
            }
            Self::Contended { holder, remaining: Some(left) } if holder.as_str() == Owner::QUEUE => {
                write!(f, "others come first in its queue, for another {left:.1?} at least")
            }
            Self::Contended { holder, remaining: Some(left) } => {
                write!(f, "held by {} for another {left:.1?}", plain(holder.worker(), 200))
            }
            Self::Contended { holder, remaining: None } => {
                write!(f, "held by {}", plain(holder.worker(), 200))
            }
            Self::Unreachable(cause) => cause.fmt(f),
            Self::Untrusted(why) => write!(f, "not trusted: {why}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
        }
    }
}

impl NodeOutcome {
    /// Returns the outcome of a node in state `state` that was not asked, or has not answered.
    pub(crate) fn of_state(state: &NodeState) -> Self {
        match state {
            NodeState::Connecting | NodeState::Trusted => Self::Pending,
            NodeState::Refused(VoteRejection::Unable(why)) => Self::Refused(Refusal::Unable(Arc::clone(why))),
            NodeState::Quarantined { why, .. } | NodeState::Refused(why) => Self::Untrusted(why.clone()),
            NodeState::Unreachable(cause) => Self::Unreachable(cause.clone()),
        }
    }

    /// Returns whether the node can agree only after an operator has fixed something.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Untrusted(why) => why.is_permanent(),
            Self::Unreachable(cause) => cause.is_permanent(),
            _ => false,
        }
    }

    /// Returns the outcome that an answer means. Any reply that is not known to be a refusal counts as a grant.
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
            Answer::Reply(Reply::MayHold(Refusal::Queued)) => {
                Self::Contended { holder: Owner::from_node(Owner::QUEUE), remaining: None }
            }
            Answer::Reply(Reply::Refused(why) | Reply::MayHold(why)) => Self::Refused(why.clone()),
            Answer::Reply(Reply::Done(_)) => Self::Done,
            Answer::Reply(_) => Self::Granted,
        }
    }
}

/// The error of a round that did not reach a majority, with the outcome of each node.
#[derive(Clone, Debug)]
pub struct NoMajority {
    /// The beginning of the error's text, which says what failed.
    failed: Cow<'static, str>,
    needed: usize,
    nodes: Vec<(Arc<str>, NodeOutcome)>,
}

impl NoMajority {
    /// Returns the error of a round in which `needed` nodes had to agree.
    #[doc(hidden)]
    pub fn new(needed: usize, nodes: Vec<(Arc<str>, NodeOutcome)>) -> Self {
        Self { failed: Cow::Borrowed(""), needed, nodes }
    }

    /// Returns this error with `failed` at the beginning of its text.
    pub(crate) fn of(self, failed: impl Into<Cow<'static, str>>) -> Self {
        Self { failed: failed.into(), ..self }
    }

    /// Returns the text that says what failed. The text is empty if another error contains this one and says
    /// what failed.
    pub fn failed(&self) -> &str {
        &self.failed
    }

    /// Returns the size of a majority.
    pub fn needed(&self) -> usize {
        self.needed
    }

    /// Returns each node's name and its outcome as text, in the order of the list.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, String)> {
        self.nodes.iter().map(|(name, outcome)| (&**name, outcome.to_string()))
    }

    /// Returns each node's name and its outcome.
    #[doc(hidden)]
    pub fn outcomes(&self) -> &[(Arc<str>, NodeOutcome)] {
        &self.nodes
    }

    /// Returns the number of nodes for whose outcome `kind` returns true.
    #[doc(hidden)]
    pub fn count(&self, kind: impl Fn(&NodeOutcome) -> bool) -> usize {
        self.nodes.iter().filter(|(_, outcome)| kind(outcome)).count()
    }

    /// Returns the holder of the resource if a majority names the same one.
    pub fn holder(&self) -> Option<&Owner> {
        let named = || {
            self.nodes.iter().filter_map(|(_, outcome)| match outcome {
                NodeOutcome::Contended { holder, .. } => Some(holder),
                _ => None,
            })
        };
        named().find(|owner| named().filter(|other| other == owner).count() >= self.needed)
    }

    /// Returns the outcome that names the holder, for the beginning of the text: that of the owner that most nodes
    /// name. The other nodes of a round that found a holder may not have been asked.
    fn contention(&self) -> Option<&NodeOutcome> {
        let named = || {
            self.nodes.iter().filter_map(|(_, outcome)| match outcome {
                NodeOutcome::Contended { holder, .. } => Some((holder, outcome)),
                _ => None,
            })
        };
        let times = |holder: &Owner| named().filter(|(other, _)| *other == holder).count();
        named().rev().max_by_key(|(holder, _)| times(holder)).map(|(_, outcome)| outcome)
    }

    /// Returns the time after which the resource may be free on a majority of the nodes, by the remaining
    /// times that the nodes reported. Returns `None` if this time is unknown.
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

    /// Returns whether so many nodes were not able to carry the request out that no majority was left. A node that
    /// refused because of what it stores was able to.
    pub(crate) fn is_inability(&self) -> bool {
        let unable = |outcome: &NodeOutcome| {
            matches!(
                outcome,
                NodeOutcome::Unreachable(_)
                    | NodeOutcome::Untrusted(_)
                    | NodeOutcome::Refused(
                        Refusal::Unable(_) | Refusal::Failed(_) | Refusal::WrongType(_) | Refusal::Incomplete
                    )
            )
        };
        self.nodes.len() - self.count(unable) < self.needed
    }

    /// Returns whether a node refused because a leader must first copy the ledger to it. Another leader would meet the same
    /// refusal.
    pub(crate) fn waits_for_copies(&self) -> bool {
        self.count(|outcome| matches!(outcome, NodeOutcome::Refused(Refusal::Incomplete))) > 0
    }

    /// Returns the text of the error without the outcome of each node.
    pub fn short(&self) -> String {
        let agreed = self.count(|outcome| matches!(outcome, NodeOutcome::Granted));
        let failed = if self.failed.is_empty() { String::new() } else { format!("{}: ", self.failed) };
        let holder = self.contention().map_or_else(String::new, |outcome| format!("{outcome}; "));
        format!("{failed}{holder}{agreed} of {} nodes agreed, {} needed", self.nodes.len(), self.needed)
    }

    /// Returns whether only an operator can fix the failure. This is so if fewer nodes than a majority have a
    /// cause that may end by itself.
    pub fn is_permanent(&self) -> bool {
        self.nodes.len() - self.count(NodeOutcome::is_permanent) < self.needed
    }
}

impl fmt::Display for NoMajority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())?;
        for (name, outcome) in &self.nodes {
            write!(f, "; {name}: {outcome}")?;
        }
        Ok(())
    }
}

impl error::Error for NoMajority {}
