//! Facts that the quorum itself does not have: those of each node, and the messages of a set.

use crate::view::{ClientLease, MessageView};
use quorate::env::WallTime;
use serde::Serialize;
use std::{fmt, pin::Pin, sync::Arc, time::Duration};

/// A future that a [`NodeSource`] returns.
pub type SourceFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Reads the facts about the nodes beyond their votes. It is asked only while a viewer looks at the page
/// that shows it, and never twice at the same time.
pub trait NodeSource: fmt::Debug + Send + Sync + 'static {
    /// Examines each node.
    fn examine(&self) -> SourceFuture<'_, Examination>;

    /// Lists at most `limit` messages of a set of claims. The error is a text for people.
    fn messages<'a>(&'a self, set: &'a str, limit: usize) -> SourceFuture<'a, Result<Messages, String>>;

    /// Returns the leases that this process holds for clients, by client. Returns `None` if it serves no clients. It is
    /// called for each update of a viewer, so it must return at once.
    fn client_leases(&self) -> Option<Vec<ClientLease>> {
        None
    }
}

/// The leases that this process holds for clients, if it is a sidecar.
pub(super) fn client_leases(source: Option<&dyn NodeSource>) -> Option<Arc<Vec<ClientLease>>> {
    source?.client_leases().map(Arc::new)
}

/// The facts of all nodes.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// The facts of each node, in the order of the node list.
    pub nodes: Vec<NodeFacts>,
    /// The problems that an operator should know, the most severe first.
    pub findings: Vec<Finding>,
}

/// The facts of one node. `None` stands for a fact that is not known.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// The time since when the node has its memory: its memory epoch.
    pub remembers_since: Option<WallTime>,
    /// The time for which the server has run.
    pub uptime: Option<Duration>,
    /// The node's clock minus the clock of this machine, in milliseconds.
    pub clock_ahead_ms: Option<f64>,
    /// The memory that the server uses, in bytes.
    pub memory: Option<u64>,
}

/// The importance of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Useful to know.
    Note,
    /// The nodes work now, but may fail when another part fails.
    Warning,
    /// The nodes do not work, or a guarantee does not hold.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Critical => "CRITICAL",
        })
    }
}

/// A problem, or a fact that an operator should know, with its fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The importance.
    pub severity: Severity,
    /// The node. `None` for a finding about all nodes.
    pub node: Option<String>,
    /// The problem.
    pub problem: String,
    /// The fix.
    pub fix: String,
}

/// The ids of the messages of a set that the nodes store.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    /// The messages.
    pub list: Vec<MessageView>,
    /// False if more messages are stored than the limit permits.
    pub complete: bool,
    /// The nodes that could not be asked, each with the reason.
    pub missing: Vec<String>,
}
