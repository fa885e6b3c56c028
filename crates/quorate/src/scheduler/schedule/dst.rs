use crate::scheduler::schedule::error::{InvalidSchedule, shown};
use std::{fmt, str::FromStr};

/// The rule for local times that the clock of a zone skips or shows twice. The rule applies in the same way
/// to both dialects of a [`Cron`](super::Cron) line.
///
/// A job is a **fixed-time** job if neither its minute field nor its hour field (nor its seconds field, if it
/// has one) begins with `*`. Any other job is an **interval** job. [`Dst::Vixie`] is the rule of cronie (Vixie
/// cron), from its manual `cron(8)`, "Daylight Saving Time and other time changes". Each of the other rules
/// differs from it in one case:
///
/// | rule | skipped, fixed-time | skipped, interval | repeated, fixed-time | repeated, interval |
/// | --- | --- | --- | --- | --- |
/// | `vixie` | right after the gap | not | first pass | both passes |
/// | `skip` | **not** | not | first pass | both passes |
/// | `first` | right after the gap | not | first pass | **first pass** |
/// | `both` | right after the gap | not | **both passes** | both passes |
///
/// *Right after the gap*: the job runs once for each skipped time. The first run is at the instant at which the
/// gap ends, and each further run is one second later. Seconds at which the job is due anyway are left out, so
/// that every tick has a different instant. At most 60 skipped times of one gap run. They run only within the
/// time after the gap that is as long as the gap.
///
/// *First pass*: if the clock shows a local time twice because of a change of the offset, that time is a tick
/// only the first time.
///
/// A change of three hours or more is a correction of the calendar. For example, Samoa had no 30 December 2011.
/// The rules do not apply to a correction: no skipped time runs later, and every repeated time is a tick both
/// times.
///
/// ```
/// use quorate::scheduler::{Cron, Dst};
///
/// let twice = Cron::parse("30 1 * * *")?.zone("America/New_York")?.dst(Dst::Both);
/// assert_eq!(twice.to_string(), "30 1 * * * (America/New_York, dst both)");
/// assert_eq!("first".parse(), Ok(Dst::First));
/// # Ok::<(), quorate::scheduler::InvalidSchedule>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Dst {
    /// The rule of cronie. Each tick of a fixed-time job runs once: a skipped tick right after the gap, and a
    /// repeated tick in the first pass. An interval job follows real time.
    #[default]
    Vixie,
    /// Like `Vixie`, but skipped times do not run.
    Skip,
    /// Like `Vixie`, but repeated times are ticks in the first pass only, even for interval jobs.
    First,
    /// Like `Vixie`, but repeated times are ticks in both passes, even for fixed-time jobs.
    Both,
}

impl Dst {
    /// All rules.
    pub const ALL: [Self; 4] = [Self::Vixie, Self::Skip, Self::First, Self::Both];

    /// Returns the name of the rule, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vixie => "vixie",
            Self::Skip => "skip",
            Self::First => "first",
            Self::Both => "both",
        }
    }

    /// Returns whether skipped times of a job run right after the gap. `fixed` is true for a fixed-time job.
    pub(super) const fn runs_skipped(self, fixed: bool) -> bool {
        fixed && !matches!(self, Self::Skip)
    }

    /// Returns whether a repeated time is a tick in its first pass only. `fixed` is true for a fixed-time job.
    pub(super) const fn ignores_second_pass(self, fixed: bool) -> bool {
        match self {
            Self::Vixie | Self::Skip => fixed,
            Self::First => true,
            Self::Both => false,
        }
    }
}

impl fmt::Display for Dst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dst {
    type Err = InvalidSchedule;

    fn from_str(text: &str) -> Result<Self, InvalidSchedule> {
        let found = Self::ALL.into_iter().find(|rule| rule.name() == text);
        found.ok_or_else(|| InvalidSchedule::Dst { text: shown(text) })
    }
}
