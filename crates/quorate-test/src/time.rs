use jiff::{Timestamp, Zoned};
use quorate::env::WallTime;

/// Reads a time: `2026-03-29T01:30:00Z`, with an offset `2026-03-29T02:30:00+01:00`, or in a zone
/// `2026-03-29T03:30[Europe/Berlin]`. A local time that a change of the clocks skips or repeats is read as
/// `jiff` does: a skipped one is moved by the length of the gap, and of two the earlier one counts.
///
/// ```
/// use quorate_test::time;
///
/// assert_eq!(time("2026-03-29T03:30[Europe/Berlin]"), time("2026-03-29T01:30:00Z"));
/// ```
///
/// # Panics
/// If the text is no such time.
#[track_caller]
pub fn time(text: &str) -> WallTime {
    let read = if text.contains('[') {
        text.parse::<Zoned>().map(|zoned| zoned.timestamp())
    } else {
        text.parse::<Timestamp>()
    };
    match read {
        Ok(at) => WallTime::from_micros(u64::try_from(at.as_microsecond()).unwrap_or_default()),
        Err(error) => panic!("{text:?} is no time: {error}"),
    }
}
