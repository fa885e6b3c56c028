use crate::{show, table::Cell, terminal::Tone};
use serde::Serialize;
use std::fmt;

/// The longest line that is shown, in bytes.
const LINE_MAX: usize = 8 * 1024;

/// The importance of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
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
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// The node. `None` for a finding about the set of nodes.
    pub(crate) node: Option<String>,
    /// The problem, or the fact.
    pub(crate) problem: String,
    pub(crate) fix: String,
}

impl Finding {
    pub(crate) fn new(
        severity: Severity,
        node: Option<&str>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { severity, node: node.map(str::to_owned), problem: problem.into(), fix: fix.into() }
    }

    /// Returns the rows of a table that show the finding: the problem and the fix.
    pub(super) fn rows(&self) -> [[Cell; 2]; 2] {
        let node = self.node.as_deref().map_or(String::new(), |node| format!("{node}: "));
        let (problem, fix) = (show::line(&self.problem, LINE_MAX), show::line(&self.fix, LINE_MAX));
        let tone = match self.severity {
            Severity::Note => Tone::Plain,
            Severity::Warning => Tone::Caution,
            Severity::Critical => Tone::Trouble,
        };
        [
            [Cell::new(self.severity.to_string(), tone), format!("{node}{problem}").into()],
            ["".into(), format!("fix: {fix}").into()],
        ]
    }
}
