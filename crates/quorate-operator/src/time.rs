//! Points in time in the format of RFC 3339, for arguments and output.

use jiff::Timestamp;
use quorate::env::WallTime;

/// Returns `at` in UTC. The fraction of a second is left out if it is zero. An instant outside of the calendar
/// is returned as microseconds since the epoch.
pub fn rfc3339(at: WallTime) -> String {
    let micros = at.as_micros();
    match i64::try_from(micros).ok().and_then(|micros| Timestamp::from_microsecond(micros).ok()) {
        Some(time) if micros.is_multiple_of(1_000_000) => format!("{time:.0}"),
        Some(time) => format!("{time:.6}"),
        None => format!("{micros} µs"),
    }
}

/// Reads the format of [`rfc3339`], with any offset.
///
/// # Errors
/// A text that shows the required format.
pub fn parse(text: &str) -> Result<WallTime, String> {
    let fix = "write it like 2026-11-21T03:00:00Z or 2026-11-21T05:00:00+02:00";
    let time: Timestamp = text.parse().map_err(|_| format!("it is no exact time; {fix}"))?;
    let micros = u64::try_from(time.as_microsecond()).map_err(|_| format!("it is before 1970; {fix}"))?;
    Ok(WallTime::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_time_can_be_parsed() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_763_720_135_000_000, "2025-11-21T10:15:35Z"),
            (1_763_720_135_500_000, "2025-11-21T10:15:35.500000Z"),
        ] {
            let at = WallTime::from_micros(micros);
            assert_eq!(rfc3339(at), text);
            assert_eq!(parse(text), Ok(at));
        }
        assert_eq!(parse("2025-11-21T12:15:35+02:00"), Ok(WallTime::from_micros(1_763_720_135_000_000)));
    }

    #[test]
    fn an_invalid_time_is_rejected_with_the_required_format() {
        for text in
            ["", "now", "2025-11-21", "2025-11-21T10:15:35", "1969-12-31T23:59:59Z", "2025-13-01T00:00:00Z"]
        {
            let error = parse(text).unwrap_err();
            assert!(error.contains("write it like 2026-11-21T03:00:00Z"), "{text}: {error}");
        }
        assert_eq!(rfc3339(WallTime::from_micros(u64::MAX)), "18446744073709551615 µs");
    }
}
