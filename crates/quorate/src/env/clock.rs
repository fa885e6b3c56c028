use std::{
    fmt,
    ops::{Add, Sub},
    time::{Duration, SystemTime},
};

/// A point on a worker's own boot clock (`CLOCK_BOOTTIME` on Linux): the time since boot, including sleep.
///
/// Points on the boot clocks of two machines cannot be compared. Only durations may be sent to another machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootTime(u64);

impl BootTime {
    /// Creates the point `nanos` nanoseconds after boot.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since boot.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the duration from this point until `later`, or zero if `later` is before it.
    pub const fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }

    /// Returns the duration since `earlier`, or zero if `earlier` is after this point.
    pub const fn since(self, earlier: Self) -> Duration {
        earlier.until(self)
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;
    /// Adds a duration. The result saturates at the end of the clock, 584 years after boot.
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for BootTime {
    type Output = Self;
    /// Subtracts a duration. The result saturates at boot.
    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for BootTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot+{:?}", Duration::from_nanos(self.0))
    }
}

/// A point on a wall clock, in microseconds since 1970-01-01T00:00:00Z. The point is serialized as the number
/// of microseconds. A wall clock may step forward or back.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct WallTime(u64);

impl WallTime {
    /// Creates the point `micros` microseconds after the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the duration from this point until `later`, or zero if `later` is before it.
    pub const fn until(self, later: Self) -> Duration {
        Duration::from_micros(later.0.saturating_sub(self.0))
    }

    /// Returns the duration since `earlier`, or zero if `earlier` is after this point.
    pub const fn since(self, earlier: Self) -> Duration {
        earlier.until(self)
    }

    /// Returns the distance between two points, in either order.
    pub const fn distance(self, other: Self) -> Duration {
        Duration::from_micros(self.0.abs_diff(other.0))
    }
}

impl Add<Duration> for WallTime {
    type Output = Self;
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for WallTime {
    type Output = Self;
    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// Returns the duration since `earlier`, or zero if `earlier` is after this point, as [`WallTime::since`] does.
impl Sub for WallTime {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// Formats the time by RFC 3339, in UTC: `2026-11-22T14:16:36.000001Z`.
impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if micros > 0 {
            write!(f, ".{micros:06}")?;
        }
        f.write_str("Z")
    }
}

/// Returns the year, month and day of the date that is `days` days after 1970-01-01, in the Gregorian
/// calendar. The algorithm counts in eras of 400 years that begin on the first of March (`civil_from_days` by
/// Howard Hinnant).
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

impl From<WallTime> for SystemTime {
    fn from(at: WallTime) -> Self {
        Self::UNIX_EPOCH + Duration::from_micros(at.0)
    }
}

/// Truncates to microseconds. A time before 1970 becomes 1970.
impl From<SystemTime> for WallTime {
    fn from(at: SystemTime) -> Self {
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}

/// Converts the time. A time after the last that `jiff` can express, in the year 9999, becomes that last
/// time.
#[cfg(feature = "jiff")]
impl From<WallTime> for jiff::Timestamp {
    fn from(at: WallTime) -> Self {
        i64::try_from(at.0).ok().and_then(|micros| Self::from_microsecond(micros).ok()).unwrap_or(Self::MAX)
    }
}

/// Truncates to microseconds. A time before 1970 becomes 1970.
#[cfg(feature = "jiff")]
impl From<jiff::Timestamp> for WallTime {
    fn from(at: jiff::Timestamp) -> Self {
        Self(u64::try_from(at.as_microsecond()).unwrap_or_default())
    }
}

impl fmt::Debug for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_time_is_shown_in_utc_and_survives_its_conversions() {
        let at = WallTime::from_micros(1_795_443_396_000_001);
        assert_eq!(at.to_string(), "2026-11-23T14:16:36.000001Z");
        assert_eq!(WallTime::from_micros(0).to_string(), "1970-01-01T00:00:00Z");
        assert_eq!(WallTime::from_micros(951_782_400_000_000).to_string(), "2000-02-29T00:00:00Z");
        assert_eq!(WallTime::from_micros(4_107_542_399_000_000).to_string(), "2100-02-28T23:59:59Z");
        assert_eq!(WallTime::from(SystemTime::from(at)), at);
        let minute = Duration::from_secs(60);
        assert_eq!(((at + minute) - at, at - (at + minute)), (minute, Duration::ZERO));
        assert_eq!(WallTime::from(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), WallTime::default());
    }

    #[cfg(feature = "jiff")]
    #[test]
    fn a_wall_time_is_a_timestamp_of_jiff_and_back() {
        let at = WallTime::from_micros(1_795_443_396_000_001);
        assert_eq!(WallTime::from(jiff::Timestamp::from(at)), at);
        for day in 0..200_000 {
            let noon = WallTime::from_micros((day * 86_400 + 43_200) * 1_000_000);
            assert_eq!(noon.to_string(), jiff::Timestamp::from(noon).to_string());
        }
        assert_eq!(jiff::Timestamp::from(WallTime::from_micros(u64::MAX)), jiff::Timestamp::MAX);
        assert_eq!(WallTime::from(jiff::Timestamp::MIN), WallTime::default());
    }
}
