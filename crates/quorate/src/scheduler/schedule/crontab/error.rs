use crate::scheduler::schedule::ZoneError;

/// A cron line that cannot be used, why, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CronError {
    /// The number of fields fits neither dialect.
    #[error(
        "`{text}` has {fields} field(s); write 5 (minute hour day-of-month month day-of-week), or 6 or 7 \
         (second minute hour day-of-month month day-of-week [year]){hint}"
    )]
    Fields {
        /// The line.
        text: String,
        /// How many it has.
        fields: usize,
        /// What the writer may have meant.
        hint: &'static str,
    },
    /// One field holds something that it cannot.
    #[error("in `{text}`: {field} `{value}` {why}")]
    Field {
        /// The line.
        text: String,
        /// The field.
        field: &'static str,
        /// What stands there.
        value: String,
        /// What is wrong with it, and the fix.
        why: String,
    },
    /// An `@word` that is none of ours.
    #[error("`{text}` is unknown; use @hourly, @daily, @weekly, @monthly or @yearly{hint}")]
    Word {
        /// The word.
        text: String,
        /// What the writer may have meant.
        hint: &'static str,
    },
    /// No date between 1970 and 9999 meets the line.
    #[error("`{text}` never fires: no date meets its day, month and year; change one of them")]
    Never {
        /// The line.
        text: String,
    },
    /// There is no such zone.
    #[error(transparent)]
    Zone(#[from] ZoneError),
}
