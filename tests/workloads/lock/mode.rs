use std::{fmt, str::FromStr};

/// What guards the set besides the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Nothing.
    Naive,
    /// The worker looks at its lease before it writes.
    Look,
    /// The store refuses a token lower than the largest that it has seen.
    Fenced,
}

impl Mode {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Naive, Self::Look, Self::Fenced];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Naive => "naive",
            Self::Look => "look",
            Self::Fenced => "fenced",
        })
    }
}

impl FromStr for Mode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.to_string() == text);
        found.ok_or_else(|| format!("no mode is called {text}"))
    }
}
