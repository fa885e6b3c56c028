use serde::Serialize;
use std::fmt;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Weight {
    /// Good to know.
    Note,
    /// It works now, and may not on a bad day.
    Warning,
    /// It does not work, or a promise does not hold.
    Critical,
}

impl fmt::Display for Weight {
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
    pub(super) weight: Weight,
    /// The node; none where it is the set's.
    pub(super) node: Option<String>,
    /// What is so.
    pub(super) what: String,
    /// What to do.
    pub(super) mend: String,
}

impl Finding {
    pub(super) fn new(
        weight: Weight,
        node: Option<&str>,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { weight, node: node.map(str::to_owned), what: what.into(), mend: mend.into() }
    }
}
