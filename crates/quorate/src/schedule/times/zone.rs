use crate::{env::WallTime, plain::plain};
use chrono::{DateTime, Offset, TimeZone};
use chrono_tz::Tz;
use std::{fmt, str::FromStr};

/// Names that differ in more letters than this are no suggestion.
const NEAR: usize = 3;

/// The longest name of the tables, in bytes, or somewhat more.
const LONGEST: usize = 40;

/// A time zone of the IANA tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone(Tz);

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Self = Self(Tz::UTC);

    /// The zone of this IANA name, such as `Europe/Kyiv`.
    ///
    /// # Errors
    /// [`ZoneError`] where the tables have no such zone.
    pub fn named(name: &str) -> Result<Self, ZoneError> {
        Tz::from_str(name).map(Self).map_err(|_| ZoneError { name: shortened(name), near: nearest(name) })
    }

    /// The zone's name.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// `at` as people write it: `2025-03-09 03:00:00 -04:00 (America/New_York)`.
    pub fn show(self, at: WallTime) -> String {
        let moment = i64::try_from(at.as_micros()).ok().and_then(DateTime::from_timestamp_micros);
        match moment {
            Some(moment) => {
                format!(
                    "{} ({})",
                    moment.with_timezone(&self.0).format("%Y-%m-%d %H:%M:%S%.f %:z"),
                    self.name()
                )
            }
            None => format!("{at:?} s after the epoch"),
        }
    }

    /// How many seconds the clock on the wall is ahead of UTC at the second `utc` after the epoch.
    pub(super) fn ahead_at(self, utc: i64) -> i64 {
        let moment = DateTime::from_timestamp(utc, 0).unwrap_or_default();
        i64::from(self.0.offset_from_utc_datetime(&moment.naive_utc()).fix().local_minus_utc())
    }
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

/// The zone whose name, or the name of whose city, is nearest.
fn nearest(name: &str) -> Option<&'static str> {
    let wanted = name.trim().to_lowercase();
    // Distances take time and memory by the product of the lengths, and no name is near one twice as long.
    if wanted.len() > LONGEST * 2 {
        return None;
    }
    let distance = |zone: &str| {
        let zone = zone.to_lowercase();
        let city = zone.rsplit('/').next().unwrap_or_default();
        strsim::damerau_levenshtein(&zone, &wanted).min(strsim::damerau_levenshtein(city, &wanted))
    };
    let names = chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
    let (zone, apart) = names.map(|zone| (zone, distance(zone))).min_by_key(|(_, apart)| *apart)?;
    // Half the letters wrong is a guess, not a slip.
    (apart <= NEAR && apart * 2 < wanted.len()).then_some(zone)
}

fn shortened(name: &str) -> String {
    plain(name, 80)
}

/// A zone that the tables do not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown zone `{name}`; {}", mend(*near))]
pub struct ZoneError {
    name: String,
    near: Option<&'static str>,
}

fn mend(near: Option<&str>) -> String {
    match near {
        Some(zone) => format!("did you mean `{zone}`?"),
        None => "use an IANA name such as `Europe/Kyiv`, or `UTC`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_zone_gets_the_nearest_name() {
        let says = |name: &str| Zone::named(name).unwrap_err().to_string();
        assert_eq!(says("Europe/Kyjiv"), "unknown zone `Europe/Kyjiv`; did you mean `Europe/Kyiv`?");
        assert!(says("Europe/Kiew").contains("did you mean `Europe/K"), "{}", says("Europe/Kiew"));
        assert!(says("kyiv").contains("`Europe/Kyiv`"), "the city alone: {}", says("kyiv"));
        assert!(says("america/new_york").contains("`America/New_York`"));
        assert!(says("Middle-earth/Shire").contains("use an IANA name"));
        assert!(says("").contains("use an IANA name"));
    }

    #[test]
    fn an_instant_is_shown_in_its_zone() {
        let at = WallTime::from_micros(1_741_503_600_000_000);
        assert_eq!(Zone::UTC.show(at), "2025-03-09 07:00:00 +00:00 (UTC)");
        let new_york = Zone::named("America/New_York").unwrap();
        assert_eq!(new_york.show(at), "2025-03-09 03:00:00 -04:00 (America/New_York)");
        assert!(new_york.show(WallTime::from_micros(u64::MAX)).contains("after the epoch"));
    }
}
