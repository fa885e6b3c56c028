use crate::scheduler::{
    policy::{Concurrency, Delivery, Labels, Misfire, Overlap, Placement, Retry},
    wire,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The default number of history entries of a job.
const HISTORY: usize = 100;

/// The rules of a job: what it has beside its name, its schedule and its work. The functions of [`Job`](super::Job) with the
/// names of the fields explain them. In JSON, a rule with its default is absent, and times are in microseconds.
///
/// A version that does not know a rule cannot run the job as it was meant, so unknown fields are an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobRules {
    /// The misfire rule. `None` for the usual one of the schedule.
    #[serde(skip_serializing_if = "is_default")]
    pub misfire: Option<Misfire>,
    /// The delivery rule.
    #[serde(skip_serializing_if = "is_default")]
    pub delivery: Delivery,
    /// The overlap rule.
    #[serde(skip_serializing_if = "is_default")]
    pub overlap: Overlap,
    /// The workers that may run the ticks.
    #[serde(skip_serializing_if = "is_default")]
    pub placement: Placement,
    /// The labels that a worker must have.
    #[serde(skip_serializing_if = "is_default")]
    pub labels: Labels,
    /// The limit of the active runs that the job shares with others.
    #[serde(skip_serializing_if = "is_default")]
    pub concurrency: Option<Concurrency>,
    /// The number of failed runs in a row after which the leader pauses the job.
    #[serde(skip_serializing_if = "is_default")]
    pub pause_after_failures: Option<u32>,
    /// The longest delay of a run.
    #[serde(skip_serializing_if = "is_default", with = "wire::micros")]
    pub jitter: Duration,
    /// The longest time of an attempt.
    #[serde(skip_serializing_if = "is_default", with = "wire::maybe_micros")]
    pub timeout: Option<Duration>,
    /// The attempts of a run.
    #[serde(skip_serializing_if = "is_default")]
    pub retries: Retry,
    /// The priority.
    #[serde(skip_serializing_if = "is_default")]
    pub priority: i32,
    /// The number of kept history entries.
    #[serde(skip_serializing_if = "is_usual")]
    pub history: usize,
    /// The number of kept bytes of a run's output.
    #[serde(skip_serializing_if = "is_default")]
    pub keep_output: usize,
    /// The time within which the job is expected to succeed again.
    #[serde(skip_serializing_if = "is_default", with = "wire::maybe_micros")]
    pub expect_within: Option<Duration>,
}

impl JobRules {
    /// Returns the default rules of a job that names its handler ([`Job::named`](super::Job::named)).
    pub fn of_named() -> Self {
        Self { placement: Placement::AnyWorker, ..Self::default() }
    }

    pub(super) fn are_of_named(&self) -> bool {
        *self == Self::of_named()
    }
}

impl Default for JobRules {
    fn default() -> Self {
        Self {
            misfire: None,
            delivery: Delivery::default(),
            overlap: Overlap::default(),
            placement: Placement::default(),
            labels: Labels::default(),
            concurrency: None,
            pause_after_failures: None,
            jitter: Duration::ZERO,
            timeout: None,
            retries: Retry::NONE,
            priority: 0,
            history: HISTORY,
            keep_output: 0,
            expect_within: None,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_usual(history: &usize) -> bool {
    *history == HISTORY
}
