use super::{MaybeFineMillis, MaybeMillis, text};
use quorate::{
    env::BootTime,
    plain::plain,
    quorum::{NodeState, NodeStatus},
};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// The longest reason that is shown, in bytes. It may name two lists of nodes.
const REASON_MAX: usize = 4_096;

/// A node, as this process sees it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Node")]
pub struct NodeView {
    /// The name: the address, without secrets.
    pub name: String,
    /// True if the node is connected.
    pub reachable: bool,
    /// True if the node votes.
    pub votes: bool,
    /// The reason why it does not vote.
    pub reason: Option<String>,
    /// The time until the quarantine ends, in milliseconds.
    #[serde(rename = "votes_in_ms", with = "MaybeMillis")]
    pub votes_in: Option<Duration>,
    /// The version of the server.
    pub version: Option<String>,
    /// The duration of the last round trip, in milliseconds.
    #[serde(rename = "round_trip_ms", with = "MaybeFineMillis")]
    pub round_trip: Option<Duration>,
    /// An estimate of the 99th percentile of the round trips, in milliseconds.
    #[serde(rename = "round_trip_p99_ms", with = "MaybeFineMillis")]
    pub round_trip_p99: Option<Duration>,
    /// The state in one word.
    #[serde(skip)]
    pub vote: Vote,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// It votes.
    Votes,
    /// It has lost its memory, and votes again soon.
    Quarantine,
    /// It may not vote.
    Refused,
    /// It does not answer.
    Unreachable,
    /// Its first handshake is under way.
    Connecting,
}

impl NodeView {
    /// Returns the view of a node at a time of the boot clock.
    pub fn new(node: &NodeStatus, now: BootTime) -> Self {
        Self {
            name: text(&node.name),
            reachable: !node.is_away(),
            votes: node.votes(),
            reason: node.reason().map(|reason| plain(&reason, REASON_MAX)),
            votes_in: node.quarantined_until().map(|until| now.until(until)),
            version: node.version.as_deref().map(text),
            round_trip: node.round_trip,
            round_trip_p99: node.round_trip_p99,
            vote: Vote::of(&node.state),
        }
    }

    /// Returns the version for people.
    pub fn version_text(&self) -> &str {
        self.version.as_deref().unwrap_or("-")
    }

    /// Returns a measured time for people.
    pub fn time_text(time: Option<Duration>) -> String {
        time.map_or_else(|| "-".to_owned(), |time| format!("{:.2} ms", time.as_secs_f64() * 1e3))
    }

    /// Returns whether the node votes, and if not, the reason, without the name of the node.
    pub fn state_text(&self) -> String {
        let Some(reason) = &self.reason else { return "votes".to_owned() };
        let reason = without_name(&self.name, reason);
        if self.reachable { format!("does not vote: {reason}") } else { reason }
    }
}

/// Removes the name of the node from a reason, which is shown next to the name.
pub fn without_name(node: &str, why: &str) -> String {
    why.replace(&format!("{node}: "), "").replace(&format!("{node}/0: "), "")
}

impl Vote {
    /// Returns the state of a node in one word.
    pub fn of(state: &NodeState) -> Self {
        match state {
            NodeState::Trusted => Self::Votes,
            NodeState::Quarantined { .. } => Self::Quarantine,
            NodeState::Refused(_) => Self::Refused,
            NodeState::Connecting => Self::Connecting,
            NodeState::Unreachable(_) => Self::Unreachable,
        }
    }

    /// Returns the word that the commands, the page and their JSON have for the state.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Votes => "votes",
            Self::Quarantine => "quarantine",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Connecting => "connecting",
        }
    }
}
