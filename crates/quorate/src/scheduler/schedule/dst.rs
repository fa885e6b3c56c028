use std::{fmt, str::FromStr};

/// What becomes of the local times that a zone's clock skips or shows twice: the same for both dialects of a
/// [`Cron`](super::Cron) line.
///
/// A **fixed-time** job is one whose minute field and hour field (and seconds field, where there is one) do not
/// begin with `*`; any other is an **interval** job. [`Dst::Vixie`] is cronie's rule; each of the others
/// changes one case of it:
///
/// | rule | skipped, fixed-time | skipped, interval | repeated, fixed-time | repeated, interval |
/// | --- | --- | --- | --- | --- |
/// | `vixie` | right after the gap | not | first pass | both passes |
/// | `skip` | **not** | not | first pass | both passes |
/// | `first` | right after the gap | not | first pass | **first pass** |
/// | `both` | right after the gap | not | **both passes** | both passes |
///
/// *Right after the gap*: each skipped time runs, the first at the instant at which the gap ends, the others
/// one second apart, never at a second at which the job is due anyway (so that every tick has an instant of
/// its own); at most 60 for one gap, and no longer after it than the gap was long.
///
/// *First pass*: a local time that the clock has shown before, within the change that repeats it, is no tick.
///
/// A change of three hours or more is a correction of the calendar (Samoa had no 30 December 2011): the new
/// time counts at once, nothing is made up and nothing held back, whatever the rule.
///
/// ```
/// use quorate::scheduler::{Cron, Dst};
///
/// let twice = Cron::parse("30 1 * * *")?.zone("America/New_York")?.dst(Dst::Both);
/// assert_eq!(twice.to_string(), "30 1 * * * (America/New_York, dst both)");
/// assert_eq!("first".parse(), Ok(Dst::First));
/// # Ok::<(), quorate::scheduler::CronError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Dst {
    /// Cronie's: fixed-time jobs run once, right after a gap and in the first pass; interval jobs follow real
    /// time.
    #[default]
    Vixie,
    /// Skipped times are not made up.
    Skip,
    /// Repeated times count in the first pass only, for interval jobs as well.
    First,
    /// Repeated times count in both passes, for fixed-time jobs as well.
    Both,
}

impl Dst {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Vixie, Self::Skip, Self::First, Self::Both];

    /// Its name, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vixie => "vixie",
            Self::Skip => "skip",
            Self::First => "first",
            Self::Both => "both",
        }
    }

    /// Whether skipped times run right after the gap.
    pub(super) const fn makes_up(self, fixed: bool) -> bool {
        fixed && !matches!(self, Self::Skip)
    }

    /// Whether repeated times are no ticks in the second pass.
    pub(super) const fn holds_back(self, fixed: bool) -> bool {
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
    type Err = DstError;

    fn from_str(text: &str) -> Result<Self, DstError> {
        let found = Self::ALL.into_iter().find(|rule| rule.name() == text);
        found.ok_or_else(|| DstError { text: super::crontab::shown(text) })
    }
}

/// A rule that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown rule `{text}` for skipped and repeated hours; use vixie, skip, first or both")]
pub struct DstError {
    text: String,
}
