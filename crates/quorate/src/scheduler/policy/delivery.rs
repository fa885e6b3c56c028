use std::fmt;

/// The rule for a run that has a recorded start in the ledger, but no recorded end. This happens when a leader
/// or a worker crashes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// The run is not repeated: a tick starts once, or not at all.
    AtMostOnce,
    /// The run is repeated until its end is recorded. Two executions may overlap: a leader may be paused
    /// between its last check of its lease and the start of the handler. The handler may then start after
    /// another leader has recorded *done*. So the store to which the handler writes must refuse older fencing
    /// tokens.
    #[default]
    AtLeastOnce,
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AtMostOnce => "at-most-once",
            Self::AtLeastOnce => "at-least-once",
        })
    }
}
