use crate::plain::plain;
use std::{fmt, time::Duration};

/// The largest number of bytes of a line that an error repeats.
const SHOWN_MAX: usize = 160;

/// A schedule, or a part of one, that cannot be used: the value, the reason, and the fix.
///
/// ```
/// use quorate::scheduler::{Cron, InvalidSchedule, Schedule};
/// use std::time::Duration;
///
/// let error = Cron::parse("61 3 * * *").unwrap_err();
/// assert!(matches!(error, InvalidSchedule::Field { field: "minute", .. }));
/// assert_eq!(error.to_string(), "in `61 3 * * *`: minute `61` is not within 0-59");
/// assert!(matches!(Schedule::every(Duration::ZERO), Err(InvalidSchedule::Interval { .. })));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSchedule {
    /// The number of fields of a cron line fits neither dialect.
    #[error(
        "`{text}` has {fields} field(s); write 5 (minute hour day-of-month month day-of-week), or 6 or 7 \
         (second minute hour day-of-month month day-of-week [year]){hint}"
    )]
    Fields {
        /// The line.
        text: String,
        /// The number of fields of the line.
        fields: usize,
        /// A suggestion, or an empty text.
        hint: &'static str,
    },
    /// One field of a cron line has a value that this field does not allow.
    #[error("in `{text}`: {field} `{value}` {reason}")]
    Field {
        /// The line.
        text: String,
        /// The name of the field.
        field: &'static str,
        /// The value in the line.
        value: String,
        /// The reason, and the fix.
        reason: String,
    },
    /// An unknown `@word`.
    #[error("`{text}` is unknown; use @hourly, @daily, @weekly, @monthly or @yearly{hint}")]
    Word {
        /// The word.
        text: String,
        /// A suggestion, or an empty text.
        hint: &'static str,
    },
    /// No date between 1970 and 9999 matches the cron line.
    #[error("`{text}` never fires: no date meets its day, month and year; change one of them")]
    Never {
        /// The line.
        text: String,
    },
    /// The time zone tables do not have this zone.
    #[error("unknown zone `{name}`; {}", ZoneFix(nearest))]
    Zone {
        /// The name.
        name: String,
        /// The most similar name that the tables have.
        nearest: Option<String>,
    },
    /// An unknown name of a [`Dst`](super::Dst) rule.
    #[error("unknown rule `{text}` for skipped and repeated hours; use vixie, skip, first or both")]
    Dst {
        /// The name.
        text: String,
    },
    /// A period or a delay that is too short or too long, or has a fraction of a microsecond.
    #[error("the {name} {time:?} cannot be kept; use at least 1ms, in whole microseconds")]
    Interval {
        /// The name of the setting: `period` or `delay`.
        name: &'static str,
        /// The value.
        time: Duration,
    },
    /// A day on which a schedule has no ticks, or its first or last day, cannot be used.
    #[error("`{field}` {value:?} {reason}")]
    Day {
        /// The name of the field: `except`, `from` or `until`.
        field: &'static str,
        /// The value.
        value: String,
        /// The reason, and the fix.
        reason: String,
    },
    /// The schedule has no days on which it could be left out.
    #[error("a {kind} has no days; remove `except`, `from` and `until`, or write a cron line or `every`")]
    NoDays {
        /// The kind of the schedule.
        kind: &'static str,
    },
    /// A schedule in the ledger is of a kind that this version does not know.
    #[error("the schedule is of a kind that this version does not know; update this program")]
    UnknownKind,
    /// The ledger does not contain the schedule: the schedule is a [`Timetable`](super::Timetable), or an old
    /// version registered the job.
    #[error(
        "the ledger does not hold the schedule; it is a timetable in the code of the worker, or an older version \
         registered the job"
    )]
    NotStored,
}

struct ZoneFix<'a>(&'a Option<String>);

impl fmt::Display for ZoneFix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // `TZ=GMT+3`, and so the `CRON_TZ` of cron, is behind UTC: the sign is that of POSIX.
            Some(zone) if zone.starts_with("Etc/GMT") => {
                let ahead = zone.contains('-');
                let (is, posix) = if ahead { ("ahead of", "behind") } else { ("behind", "ahead of") };
                write!(
                    f,
                    "did you mean `{zone}`, which is {is} UTC? In `TZ`, cron reads this sign as {posix} UTC"
                )
            }
            Some(zone) => write!(f, "did you mean `{zone}`?"),
            None => f.write_str("use an IANA name such as `Europe/Kyiv`, or `UTC`"),
        }
    }
}

/// Returns the part of an input that an error repeats: all of a short input, and the beginning of a long one.
pub(super) fn shown(text: &str) -> String {
    plain(text, SHOWN_MAX)
}
