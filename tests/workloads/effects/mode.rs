use std::{fmt, str::FromStr};

/// Whether the effect's transaction records the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It does.
    With,
    /// It does not: the claim alone guards the effect.
    Without,
}

impl Mode {
    pub(crate) const ALL: [Self; 2] = [Self::With, Self::Without];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::With => "with",
            Self::Without => "without",
        })
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of = |mode: &Self| mode.to_string() == text;
        Self::ALL.into_iter().find(of).ok_or_else(|| format!("{text:?} is no mode"))
    }
}
