use crate::time::parse;
use jiff::{
    Timestamp,
    civil::{Date, DateTime, Time},
    tz::{TimeZone, TimeZoneDatabase},
};
use quorate::{
    env::WallTime,
    scheduler::{Jobs, Zone},
};
use std::{ops::Range, time::Duration};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A time, as a person names it. Without an offset it is in the zone of the job that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// An exact time, as the program shows it.
    Exact(WallTime),
    /// A time of day, and its precision.
    Clock(Time, Duration),
    /// A day.
    Day(Date),
    /// A local time, and its precision.
    Local(DateTime, Duration),
}

impl Moment {
    /// Reads a moment: `2026-11-21T03:00:00Z`, `2026-11-21T03:00` (or with a space), `2026-11-21`, `03:00` or `03:00:30`.
    ///
    /// # Errors
    /// A text that shows the forms.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let precision = |time: &str| if time.matches(':').count() > 1 { SECOND } else { MINUTE };
        // People write 3:00.
        let time_of_day = |time: &str| {
            if time.find(':') == Some(1) { format!("0{time}") } else { time.to_owned() }.parse().ok()
        };
        if let Ok(at) = parse(text) {
            return Ok(Self::Exact(at));
        }
        let parts: Vec<&str> = text.split(['T', ' ']).collect();
        let moment = match parts[..] {
            [time] if time.contains(':') => time_of_day(time).map(|at| Self::Clock(at, precision(time))),
            [day] => day.parse().ok().map(Self::Day),
            [day, time] => {
                let at = day.parse().ok().zip(time_of_day(time));
                at.map(|(day, at): (Date, Time)| Self::Local(day.to_datetime(at), precision(time)))
            }
            _ => None,
        };
        moment.ok_or_else(|| {
            "it is no time; write a time of day (03:00), a day (2026-11-21), both (2026-11-21T03:00), or an exact time as \
             `quorate jobs history` shows it (2026-11-21T03:00:00Z)"
                .to_owned()
        })
    }

    /// Returns the span of time that the moment names: from its begin, included, to its end, excluded. A time of day names
    /// the last one that has begun by `now`.
    pub fn span(self, zone: &Zone, now: WallTime) -> Range<WallTime> {
        let begin = |local| begin(local, zone, now);
        match self {
            Self::Exact(at) => at..at + Duration::from_micros(1),
            Self::Local(at, precision) => begin(at)..begin(at) + precision,
            Self::Day(day) => {
                let next = day.tomorrow().unwrap_or(day);
                begin(day.to_datetime(Time::midnight()))..begin(next.to_datetime(Time::midnight()))
            }
            Self::Clock(time, precision) => {
                let today = today(zone, now);
                let on = |day: Date| begin(day.to_datetime(time));
                let at = match on(today) {
                    later if later > now => on(today.yesterday().unwrap_or(today)),
                    at => at,
                };
                at..at + precision
            }
        }
    }

    /// Returns the time at which a state ends that lasts until this moment: a time of day is the next one after `now`, and a
    /// day its begin.
    pub fn end(self, zone: &Zone, now: WallTime) -> WallTime {
        let Self::Clock(time, _) = self else { return self.span(zone, now).start };
        let today = today(zone, now);
        let on = |day: Date| begin(day.to_datetime(time), zone, now);
        match on(today) {
            past if past <= now => on(today.tomorrow().unwrap_or(today)),
            at => at,
        }
    }

    /// Returns the time itself, if it is exact.
    pub const fn exact(self) -> Option<WallTime> {
        match self {
            Self::Exact(at) => Some(at),
            _ => None,
        }
    }

    /// Returns the tick of the job that the moment names: the last one in its span, or else the first one that has not come
    /// yet, or else the begin of the span. A schedule that cannot be read is no error here: the answer to a question about
    /// the tick says why.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn tick(self, jobs: &Jobs, job: &str, now: WallTime) -> WallTime {
        if let Some(exact) = self.exact() {
            return exact;
        }
        let Ok(schedule) = jobs.schedule(job).await else { return self.span(&Zone::UTC, now).start };
        let span = self.span(schedule.zone(), now);
        let before = |at: WallTime| at - Duration::from_micros(1);
        let has_come = schedule.last_within(before(span.start), before(span.end).min(now));
        let is_to_come = || schedule.next_after(before(span.start)).filter(|tick| *tick < span.end);
        has_come.or_else(is_to_come).unwrap_or(span.start)
    }
}

/// Returns the point in time of a local time in `zone`.
fn begin(local: DateTime, zone: &Zone, now: WallTime) -> WallTime {
    local.to_zoned(time_zone(zone)).map_or(now, |at| wall(at.timestamp()))
}

/// Returns the day that it is in `zone`.
fn today(zone: &Zone, now: WallTime) -> Date {
    timestamp(now).to_zoned(time_zone(zone)).date()
}

fn time_zone(zone: &Zone) -> TimeZone {
    TimeZoneDatabase::bundled().get(zone.name()).unwrap_or(TimeZone::UTC)
}

fn wall(at: Timestamp) -> WallTime {
    WallTime::from_micros(u64::try_from(at.as_microsecond()).unwrap_or_default())
}

fn timestamp(at: WallTime) -> Timestamp {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(text: &str, zone: &str, now: &str) -> (String, Duration) {
        let zone = Zone::named(zone).expect("a zone");
        let span = Moment::parse(text).expect(text).span(&zone, parse(now).expect("a time"));
        (zone.rfc3339(span.start), span.start.until(span.end))
    }

    #[test]
    fn a_time_of_day_is_the_last_one_in_the_zone() {
        let berlin = |now| span("03:00", "Europe/Berlin", now);
        assert_eq!(berlin("2026-11-21T02:00:00Z"), ("2026-11-21T03:00:00+01:00".to_owned(), MINUTE));
        assert_eq!(berlin("2026-11-21T01:59:59Z"), ("2026-11-20T03:00:00+01:00".to_owned(), MINUTE));
        // It is a new day in the zone already.
        assert_eq!(berlin("2026-06-20T22:30:00Z"), ("2026-06-20T03:00:00+02:00".to_owned(), MINUTE));
        assert_eq!(
            span("23:59:30", "UTC", "2026-01-01T00:00:00Z"),
            ("2025-12-31T23:59:30Z".to_owned(), SECOND)
        );
    }

    #[test]
    fn a_day_has_the_length_that_it_has_in_the_zone() {
        let now = "2026-11-21T12:00:00Z";
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        assert_eq!(span("2026-11-20", "UTC", now), ("2026-11-20T00:00:00Z".to_owned(), hours(24)));
        let autumn = span("2026-10-25", "Europe/Berlin", now);
        assert_eq!(autumn, ("2026-10-25T00:00:00+02:00".to_owned(), hours(25)));
    }

    #[test]
    fn a_local_time_and_an_exact_time_are_what_they_say() {
        let now = "2026-11-21T12:00:00Z";
        for text in ["2026-11-20T03:00", "2026-11-20 03:00"] {
            assert_eq!(
                span(text, "Asia/Tokyo", now),
                ("2026-11-20T03:00:00+09:00".to_owned(), MINUTE),
                "{text}"
            );
        }
        let exact = span("2026-11-20T03:00:00.5Z", "Asia/Tokyo", now);
        assert_eq!(exact, ("2026-11-20T12:00:00.5+09:00".to_owned(), Duration::from_micros(1)));
        assert_eq!(
            Moment::parse(" 2026-11-20T03:00:00+02:00 ").map(Moment::exact),
            Ok(parse("2026-11-20T01:00:00Z").ok())
        );
    }

    #[test]
    fn the_end_of_a_state_is_the_next_time_of_day_or_the_begin_of_a_day() {
        let end = |text: &str, now: &str| {
            let zone = Zone::named("Europe/Berlin").expect("a zone");
            zone.rfc3339(Moment::parse(text).expect(text).end(&zone, parse(now).expect("a time")))
        };
        for (text, expected) in [
            ("03:00", "2026-11-22T03:00:00+01:00"),
            ("3:00", "2026-11-22T03:00:00+01:00"),
            ("06:30", "2026-11-21T06:30:00+01:00"),
            ("2026-12-24", "2026-12-24T00:00:00+01:00"),
            ("2026-12-24 18:00", "2026-12-24T18:00:00+01:00"),
            ("2026-12-24T18:00:00Z", "2026-12-24T19:00:00+01:00"),
        ] {
            assert_eq!(end(text, "2026-11-21T02:00:00Z"), expected, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_time_is_refused_with_the_forms() {
        for text in [
            "",
            "now",
            "3",
            "25:00",
            "2026-13-01",
            "2026-11-21T",
            "2026-11-21T03:00 x",
            "1969-12-31T23:59:59Z",
        ] {
            let error = Moment::parse(text).expect_err(text);
            assert!(error.contains("a time of day (03:00)"), "{text}: {error}");
        }
    }
}
