use crate::{
    env::WallTime,
    scheduler::schedule::{
        crontab,
        dst::Dst,
        error::{InvalidSchedule, shown},
        local,
        zone::Zone,
    },
};
use std::{fmt, sync::Arc};

/// A cron line in a time zone: ticks by the calendar and local time.
///
/// The number of fields selects one of two dialects:
///
/// * **crontab**, 5 fields: `minute hour day-of-month month day-of-week`. Sunday is 0 or 7. Names (`mon`,
///   `jan`), ranges, lists and steps are written as in `crontab(5)`. If neither day field begins with `*`, the
///   line is due on a day that matches *either* field. The words `@hourly`, `@daily` (`@midnight`), `@weekly`,
///   `@monthly` and `@yearly` (`@annually`) are accepted too.
/// * **the `cron` crate's**, 6 or 7 fields: `second minute hour day-of-month month day-of-week [year]`. Sunday
///   is 1. A day must match *both* day fields. With the feature `cron-crate`, a parsed
///   `cron::Schedule` is accepted too.
///
/// Both dialects accept these forms, alone or in a list. A day-of-month may be `L` (the last day of the month),
/// `L-3` (three days before that day), `15W` (the day from Monday to Friday that is nearest to the 15th in the
/// same month) or `LW` (the last day from Monday to Friday of the month). A day-of-week may be `fri#2` (the
/// second Friday of the month) or `friL` (the last one).
///
/// In both dialects, the same rule applies to skipped and repeated local times. [`Cron::dst`] sets this rule. A
/// line has no ticks after the year 9999.
///
/// ```
/// use quorate::scheduler::Cron;
///
/// let nightly = Cron::parse("0 3 * * *")?.zone("Europe/Kyiv")?;
/// assert_eq!(nightly.to_string(), "0 3 * * * (Europe/Kyiv)");
/// assert_eq!(
///     Cron::parse("61 3 * * *").unwrap_err().to_string(),
///     "in `61 3 * * *`: minute `61` is not within 0-59",
/// );
/// # Ok::<(), quorate::scheduler::InvalidSchedule>(())
/// ```
#[derive(Clone)]
pub struct Cron {
    pub(super) text: Arc<str>,
    pub(super) times: Arc<local::LocalTimes>,
    pub(super) zone: Zone,
    pub(super) dst: Dst,
}

impl Cron {
    /// Parses a cron line. The zone is UTC unless [`Cron::zone`] sets another zone.
    ///
    /// # Errors
    /// [`InvalidSchedule`], with the field, the value and the fix. A line that no date matches, such as 30
    /// February, is an error too.
    pub fn parse(text: &str) -> Result<Self, InvalidSchedule> {
        let cron = Self::read(text)?;
        if cron.times.next(0).is_none() {
            return Err(InvalidSchedule::Never { text: shown(&cron.text) });
        }
        Ok(cron)
    }

    /// Parses a line that was valid when it was stored. Unlike [`Cron::parse`], this function accepts a line
    /// that has no more ticks.
    pub(super) fn read(text: &str) -> Result<Self, InvalidSchedule> {
        let times = crontab::read(text)?;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(Self { text: text.into(), times: Arc::new(times), zone: Zone::UTC, dst: Dst::default() })
    }

    /// Sets the zone by its IANA name.
    ///
    /// # Errors
    /// [`InvalidSchedule::Zone`] if there is no such zone. The error has the most similar name.
    pub fn zone(self, name: &str) -> Result<Self, InvalidSchedule> {
        Ok(self.in_zone(Zone::named(name)?))
    }

    /// Sets the zone.
    #[must_use]
    pub fn in_zone(self, zone: Zone) -> Self {
        Self { zone, ..self }
    }

    /// Sets the rule for skipped and repeated local times. Default [`Dst::Vixie`].
    #[must_use]
    pub fn dst(self, rule: Dst) -> Self {
        Self { dst: rule, ..self }
    }

    /// Returns the rule for skipped and repeated local times.
    pub const fn dst_rule(&self) -> Dst {
        self.dst
    }

    /// Returns the time zone in whose local time the fields are read.
    pub const fn zone_of(&self) -> &Zone {
        &self.zone
    }

    /// Returns the cron line.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the first tick strictly later than `after`. Returns `None` if there is no tick up to the year
    /// 9999.
    pub fn next_after(&self, after: WallTime) -> Option<WallTime> {
        let after = i64::try_from(after.as_micros() / 1_000_000).ok()?;
        let tick = u64::try_from(local::next_after(&self.times, &self.zone, self.dst, after)?).ok()?;
        Some(WallTime::from_micros(tick * 1_000_000))
    }

    /// Formats `at` for people, in the zone of the line.
    pub fn format(&self, at: WallTime) -> String {
        self.zone.format(at)
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.zone == other.zone && self.dst == other.dst
    }
}

impl Eq for Cron {}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dst {
            Dst::Vixie => write!(f, "{} ({})", self.text, self.zone),
            dst => write!(f, "{} ({}, dst {dst})", self.text, self.zone),
        }
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({self})")
    }
}
