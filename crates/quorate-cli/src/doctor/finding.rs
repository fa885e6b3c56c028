use serde::Serialize;
use std::fmt;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Good to know.
    Note,
    /// It works now, and may not on a bad day.
    Warning,
    /// It does not work, or a promise does not hold.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Critical => "GRAVE",
        })
    }
}

/// Something that an operator should know, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// The node; none where it is the set's.
    pub(super) node: Option<String>,
    /// What is so.
    pub(super) what: String,
    /// What to do.
    pub(super) fix: String,
}

impl Finding {
    pub(super) fn new(
        severity: Severity,
        node: Option<&str>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { severity, node: node.map(str::to_owned), what: what.into(), fix: fix.into() }
    }
}
