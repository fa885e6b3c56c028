use crate::config::SettingError;
use std::{sync::Arc, time::Duration};

/// The largest number of ticks that a group's ledger keeps. A new leader reads the whole ledger, so this number
/// limits the time of a takeover.
pub(super) const TICKS_MAX: u128 = 200_000;

/// The reason why jobs cannot be run.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// Two jobs have the same name.
    #[error("two jobs are called {name:?}; a job's name keys its ticks: give each job a name of its own")]
    DuplicateJob {
        /// The name.
        name: Arc<str>,
    },
    /// The name of a job cannot be used.
    #[error("a job is called {name:?}; use 1 to 128 bytes without slashes or control characters")]
    JobName {
        /// The name.
        name: Arc<str>,
    },
    /// The ledger would keep too many ticks.
    #[error(
        "the job {name:?} has a misfire window of {window:?}, in which it is due so often that the ledger would keep \
         more than {TICKS_MAX} ticks of all jobs together; shorten the windows or lengthen the periods"
    )]
    TooManyTicks {
        /// The first job with which the number of ticks is above the limit.
        name: Arc<str>,
        /// The misfire window of the job.
        window: Duration,
    },
    /// A rule of a job cannot be used.
    #[error("the job {name:?} has a {field} of {value}; {fix}")]
    Rule {
        /// The job.
        name: Arc<str>,
        /// The name of the rule.
        field: &'static str,
        /// The value of the rule.
        value: String,
        /// The fix.
        fix: &'static str,
    },
    /// A label of the worker cannot be used.
    #[error("the worker has the {value}; {fix}")]
    Labels {
        /// The label, or the number of labels.
        value: String,
        /// The fix.
        fix: &'static str,
    },
    /// The limit of concurrent runs is zero, so no run could start.
    #[error("the limit of concurrent runs is 0; use at least 1, or no limit")]
    NoneAtOnce,
    /// The name of the group cannot be used.
    #[error(transparent)]
    Group(#[from] SettingError),
}
