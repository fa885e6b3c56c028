//! Times in a form that fits into a column.

use crate::time::rfc3339;
use quorate::env::WallTime;
use std::time::Duration;

/// Returns a duration in one unit, as `4 s` or `3 h`.
pub(super) fn span(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..=119 => format!("{s} s"),
        s @ 120..=7_199 => format!("{} min", s / 60),
        s @ 7_200..=172_799 => format!("{} h", s / 3_600),
        s => format!("{} d", s / 86_400),
    }
}

/// Returns the time from `now` to a time, as `in 4 s` or `4 s ago`.
pub(super) fn relative(at: WallTime, now: WallTime) -> String {
    match at > now {
        true => format!("in {}", span(now.until(at))),
        false => format!("{} ago", span(at.until(now))),
    }
}

/// Returns the time from `now` until the end of a state, as `for 3 h`.
pub(super) fn left(until: WallTime, now: WallTime) -> String {
    format!("for {}", span(now.until(until)))
}

/// Returns the time of day, in UTC.
pub(super) fn time_of_day(at: WallTime) -> String {
    let second = WallTime::from_micros(at.as_micros() / 1_000_000 * 1_000_000);
    let text = rfc3339(second);
    text.split_once('T').map_or(text.clone(), |(_, time)| time.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let now = WallTime::from_micros(1_763_720_135_500_000);
        assert_eq!(time_of_day(now), "10:15:35Z");
        let at = |text: &str| crate::time::parse(text).expect("a time");
        assert_eq!(relative(at("2025-11-21T10:15:39.6Z"), now), "in 4 s");
        assert_eq!(relative(at("2025-11-21T10:15:35Z"), now), "0 s ago");
        assert_eq!(relative(at("2025-11-21T13:15:39Z"), now), "in 3 h");
        assert_eq!(left(at("2025-11-21T12:15:39Z"), now), "for 2 h");
        assert_eq!(
            [119, 120, 7_199, 7_200, 172_800].map(|s| span(Duration::from_secs(s))),
            ["119 s", "2 min", "119 min", "2 h", "2 d"]
        );
    }
}
