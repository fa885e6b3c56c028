use std::fmt;

/// What to do with a tick of which nobody can say whether it ran to its end.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// Not again: a tick starts once, or not at all.
    AtMostOnce,
    /// Again, until it is recorded done. (A pause between a leader's last look at its lease and the start of
    /// the work may start a tick after another leader's *done*: the sink must compare fencing tokens.)
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
