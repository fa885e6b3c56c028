use serde::Serialize;
use std::fmt;

/// The importance of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Useful to know.
    Note,
    /// The node set works now, but may fail when another part fails.
    Warning,
    /// The node set does not work, or a guarantee does not hold.
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
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// The node. `None` for a finding about the set of nodes.
    pub(super) node: Option<String>,
    /// The problem, or the fact.
    pub(super) problem: String,
    /// The fix.
    pub(super) fix: String,
}

impl Finding {
    pub(super) fn new(
        severity: Severity,
        node: Option<&str>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { severity, node: node.map(str::to_owned), problem: problem.into(), fix: fix.into() }
    }
}
