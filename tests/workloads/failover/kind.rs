use std::fmt;

/// A kind of fault of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// SIGKILL.
    Killed,
    /// SIGTERM: the leader resigns.
    Terminated,
    /// SIGSTOP.
    Stopped,
    /// The leader reaches no node.
    CutOff,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Killed, Self::Terminated, Self::Stopped, Self::CutOff];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Killed => "SIGKILL",
            Self::Terminated => "SIGTERM",
            Self::Stopped => "SIGSTOP",
            Self::CutOff => "cut off",
        })
    }
}
