use crate::{
    admin::replace::part::{NodePart, Part},
    config::SettingError,
    node::Cause,
    trust::VoteRejection,
};
use std::{fmt::Write, sync::Arc};

/// The reason why a node set was not replaced. Nodes that have already been closed stay closed, so no worker
/// may use them until the same replacement is run again.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplaceError {
    /// The node lists or the timings cannot be used.
    #[error(transparent)]
    QuorumConfig(#[from] SettingError),
    /// A node that joins cannot be reached.
    #[error(
        "the new node {node} cannot be reached: {cause}; nothing has been opened: start it, or leave it out"
    )]
    NewNodeAway {
        /// The node.
        node: Arc<str>,
        /// The reason.
        cause: Cause,
    },
    /// A node may not vote, or its marker names another node set or other settings.
    #[error("{node}: {why}")]
    Unfit {
        /// The node.
        node: Arc<str>,
        /// The reason.
        why: VoteRejection,
    },
    /// Another replacement has closed this node and is not finished.
    #[error(
        "{node} was closed to replace [{from}] by [{to}], and that is not finished; run that again to its end first, \
         then this"
    )]
    Unfinished {
        /// The node.
        node: Arc<str>,
        /// The old set of that other replacement.
        from: Arc<str>,
        /// The new set of that other replacement.
        to: Arc<str>,
    },
    /// Two nodes of the lists are one server.
    #[error("{one} and {other} are one server (one run id); name each server once")]
    Twins {
        /// The first node.
        one: Arc<str>,
        /// The second node.
        other: Arc<str>,
    },
    /// Fewer than a majority of the old set can be closed.
    #[error(
        "{shut} of the old set's nodes can be closed, {needed} are needed: workers could still lead by the others. \
         Bring them back, and run this again{}", unreachable(.parts, true)
    )]
    NotClosed {
        /// The number of nodes that can be closed.
        shut: usize,
        /// The number of nodes that must be closed.
        needed: usize,
        /// The state of each node.
        parts: Vec<NodePart>,
    },
    /// Fewer than a majority of the new set were opened.
    #[error("the old set is closed, but too few nodes of the new one could be opened; run this again{}", unreachable(.parts, false))]
    NotOpened {
        /// The state of each node.
        parts: Vec<NodePart>,
    },
}

/// Returns one line with the cause for each unreachable node: of the old set if `old` is true, otherwise of the
/// new set.
fn unreachable(parts: &[NodePart], old: bool) -> String {
    let mut text = String::new();
    let theirs = |part: Part| if old { part != Part::Joins } else { part != Part::Leaves };
    for NodePart { name, found, .. } in parts.iter().filter(|part| theirs(part.part)) {
        if let Err(cause) = found {
            // `write!` to a string never fails.
            let _ = write!(text, "\n  {name}: {cause}");
        }
    }
    text
}
