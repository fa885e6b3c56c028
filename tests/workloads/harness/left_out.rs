use quorate::QuorumConfig;
use serde::{Deserialize, Serialize};

/// A safety mechanism of the library that the workers of a plan leave out. The checks must then find a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LeftOut {
    /// The holder checks its lease without reading the clock.
    ClockCheck,
}

impl LeftOut {
    /// Makes a worker with these settings leave out the mechanism.
    #[cfg(feature = "sabotage")]
    pub(crate) fn leave_out(self, config: &mut QuorumConfig) {
        use quorate::internals::Sabotage;
        config.sabotage.push(match self {
            Self::ClockCheck => Sabotage::ChecksWithoutClock,
        });
    }

    /// Ends the process, because the library can leave out nothing without the feature `sabotage`.
    #[cfg(not(feature = "sabotage"))]
    pub(crate) fn leave_out(self, _: &mut QuorumConfig) {
        panic!("cannot leave out {self:?}: this program was built without the feature `sabotage`");
    }
}
