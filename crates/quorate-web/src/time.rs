//! Times and durations for people. All functions are pure.

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use maud::{Markup, html};
use quorate::{env::WallTime, scheduler};
use quorate_operator::time::rfc3339;
use std::time::Duration;

/// The name of the zone of a viewer who has not chosen one.
pub(crate) const DEFAULT_ZONE: &str = "UTC";
/// The longest name of a zone, in bytes.
const NAME_MAX: usize = 64;

/// The time zone of a viewer or of a job.
#[derive(Clone, Debug)]
pub(crate) struct Zone {
    name: String,
    zone: TimeZone,
}

impl Zone {
    /// Returns the zone of this name; `None` if the tables do not have it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        if name.len() > NAME_MAX {
            return None;
        }
        let zone = TimeZone::get(name).ok()?;
        Some(Self { name: zone.iana_name()?.to_owned(), zone })
    }

    /// Returns the zone of a job.
    pub(crate) fn of(zone: &scheduler::Zone) -> Self {
        Self::named(zone.name()).unwrap_or_else(Self::utc)
    }

    pub(crate) fn utc() -> Self {
        Self { name: DEFAULT_ZONE.to_owned(), zone: TimeZone::UTC }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns `at` as short as its distance from `now` permits: a time of today, a day of this week, or a date.
    pub(crate) fn short(&self, at: WallTime, now: WallTime) -> String {
        let (Some(at), Some(now)) = (self.local(at), self.local(now)) else { return "?".to_owned() };
        let days = distance(at.date(), now.date());
        let format = match days {
            0 => "%H:%M:%S",
            1..=6 => "%a %H:%M",
            _ if at.year() == now.year() => "%-d %b %H:%M",
            _ => "%-d %b %Y %H:%M",
        };
        at.strftime(format).to_string()
    }

    /// Returns `at` with its day of the week, its date, and its time. The year and the second are left out where they say nothing.
    pub(crate) fn long(&self, at: WallTime, now: WallTime) -> String {
        let (Some(at), Some(now)) = (self.local(at), self.local(now)) else { return "?".to_owned() };
        let day = if at.year() == now.year() { "%a %-d %b" } else { "%a %-d %b %Y" };
        let time = if at.second() == 0 { "%H:%M" } else { "%H:%M:%S" };
        at.strftime(&format!("{day} {time}")).to_string()
    }

    /// Reads the value of an input of the type `datetime-local`, in this zone.
    pub(crate) fn parse(&self, text: &str) -> Option<WallTime> {
        let civil: jiff::civil::DateTime = text.parse().ok()?;
        let at = civil.to_zoned(self.zone.clone()).ok()?.timestamp();
        Some(WallTime::from_micros(u64::try_from(at.as_microsecond()).ok()?))
    }

    fn local(&self, at: WallTime) -> Option<jiff::Zoned> {
        Some(timestamp(at)?.to_zoned(self.zone.clone()))
    }
}

fn distance(one: Date, other: Date) -> i32 {
    one.since(other).map_or(i32::MAX, |span| span.get_days().abs())
}

fn timestamp(at: WallTime) -> Option<Timestamp> {
    Timestamp::from_microsecond(i64::try_from(at.as_micros()).ok()?).ok()
}

pub(crate) fn element(at: WallTime, text: &str) -> Markup {
    html! { time datetime=(rfc3339(at)) { (text) } }
}

/// Returns a duration in one or two units.
pub(crate) fn span(time: Duration) -> String {
    let (micros, seconds) = (time.as_micros(), time.as_secs());
    let two = |first: u64, unit: &str, second: u64, of: &str| match second {
        0 => format!("{first} {unit}"),
        _ => format!("{first} {unit} {second} {of}"),
    };
    match seconds {
        0 if micros < 1_000 => format!("{micros} µs"),
        0 => format!("{} ms", micros / 1_000),
        1..=9 if time.subsec_millis() >= 100 => format!("{:.1} s", time.as_secs_f64()),
        1..=9 => format!("{seconds} s"),
        10..=59 => format!("{seconds} s"),
        60..=599 => two(seconds / 60, "min", seconds % 60, "s"),
        600..=3_599 => format!("{} min", seconds / 60),
        3_600..=86_399 => two(seconds / 3_600, "h", seconds / 60 % 60, "min"),
        86_400..=345_599 => two(seconds / 86_400, "d", seconds / 3_600 % 24, "h"),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Returns how long ago a time is, in whole seconds.
pub(crate) fn ago(at: WallTime, now: WallTime) -> String {
    match at.until(now) {
        time if time < Duration::from_secs(1) => "just now".to_owned(),
        time => format!("{} ago", span(whole(time))),
    }
}

/// Returns how soon a time is, in whole seconds.
pub(crate) fn until(at: WallTime, now: WallTime) -> String {
    match now.until(at) {
        time if time < Duration::from_secs(1) => "now".to_owned(),
        time => format!("in {}", span(whole(time))),
    }
}

/// Returns a duration without its fraction of a second. Below ten seconds, [`span`] would show it.
fn whole(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> WallTime {
        let at: Timestamp = text.parse().unwrap();
        WallTime::from_micros(at.as_microsecond().try_into().unwrap())
    }

    #[test]
    fn a_duration_has_at_most_two_units() {
        for (millis, text) in [
            (0, "0 µs"),
            (12, "12 ms"),
            (1_400, "1.4 s"),
            (48_900, "48 s"),
            (60_000, "1 min"),
            (249_000, "4 min 9 s"),
            (1_320_000, "22 min"),
            (82_020_000, "22 h 47 min"),
            (162_000_000, "1 d 21 h"),
            (518_400_000, "6 d"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_time_is_as_short_as_its_distance_permits() {
        let (berlin, now) = (Zone::named("Europe/Berlin").unwrap(), at("2026-11-22T02:12:40Z"));
        for (time, text) in [
            ("2026-11-22T02:08:31Z", "03:08:31"),
            ("2026-11-21T16:02:00Z", "Sat 17:02"),
            ("2026-10-03T08:14:00Z", "3 Oct 10:14"),
            ("2027-01-01T00:00:00Z", "1 Jan 2027 01:00"),
        ] {
            assert_eq!(berlin.short(at(time), now), text);
        }
        assert_eq!(berlin.long(at("2026-11-23T01:00:00Z"), now), "Mon 23 Nov 02:00");
        assert_eq!(berlin.short(WallTime::from_micros(u64::MAX), now), "?");
    }

    #[test]
    fn relative_times_have_no_fraction() {
        let now = at("2026-11-22T02:12:40Z");
        assert_eq!(ago(at("2026-11-22T02:12:35.200Z"), now), "4 s ago");
        assert_eq!(ago(now, now), "just now");
        assert_eq!(until(at("2026-11-22T02:15:00Z"), now), "in 2 min 20 s");
        assert_eq!(until(at("2026-11-22T02:12:00Z"), now), "now", "a time that has passed");
    }

    #[test]
    fn only_zones_of_the_tables_are_zones() {
        for name in ["", "Mars/Olympus", "../etc/passwd", "<script>", "x".repeat(500).as_str()] {
            assert!(Zone::named(name).is_none(), "{name}");
        }
        let berlin = Zone::named("Europe/Berlin").unwrap();
        assert_eq!(berlin.name(), "Europe/Berlin");
        assert_eq!(berlin.parse("2026-11-22T03:12"), Some(at("2026-11-22T02:12:00Z")));
        assert_eq!(berlin.parse("soon"), None);
    }
}
