//! A job as data: a job that names its handler can be stored on the nodes.

use super::{Job, Payload, Work};
use crate::scheduler::{
    policy::{Concurrency, Delivery, Labels, Misfire, Overlap, Placement, Retry},
    schedule::{Schedule, ScheduleSpec},
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// The longest name of a handler, in bytes.
const HANDLER_MAX: usize = 128;

/// The definition of a job that is stored on the nodes, as JSON. Fields that are absent have the default of [`Job::named`].
///
/// A version that does not know a field cannot run the job as it was meant, so unknown fields are an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobDefinition {
    /// The name of the job.
    pub name: Arc<str>,
    /// The schedule.
    pub schedule: ScheduleSpec,
    /// The name of the handler.
    pub handler: Arc<str>,
    /// The payload of its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// The misfire rule, if it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire: Option<MisfireData>,
    /// The delivery rule.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delivery: Delivery,
    /// The overlap rule, if it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Arc<str>>,
    /// The placement, if it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Arc<str>>,
    /// The labels that a worker must have.
    #[serde(default, skip_serializing_if = "is_default")]
    pub labels: Labels,
    /// The key and the limit of the runs that the job shares with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    /// The number of failed runs in a row after which the leader pauses the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_after_failures: Option<u32>,
    /// The longest delay of a run, in microseconds, as the other times.
    #[serde(default, skip_serializing_if = "is_default")]
    pub jitter: u64,
    /// The longest time of an attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// The attempts, if there is more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<RetryData>,
    /// The priority.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// The number of kept history entries, if it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<usize>,
    /// The number of kept bytes of a run's output.
    #[serde(default, skip_serializing_if = "is_default")]
    pub keep_output: usize,
    /// The time within which the job is expected to succeed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_within: Option<u64>,
}

/// The misfire rule of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case", deny_unknown_fields)]
pub enum MisfireData {
    /// See [`Misfire::Skip`].
    Skip,
    /// See [`Misfire::RunOnce`].
    RunOnce {
        /// The window.
        within: u64,
    },
    /// See [`Misfire::RunAll`].
    RunAll {
        /// The window.
        within: u64,
    },
}

/// The retries of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryData {
    /// The number of attempts.
    pub attempts: u32,
    /// The first pause.
    pub first: u64,
    /// The longest pause.
    pub max: u64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl JobDefinition {
    /// Returns the definition of a job that names its handler.
    ///
    /// # Errors
    /// The reason why the job cannot be stored.
    pub fn of(job: &Job) -> Result<Self, String> {
        let (Work::Named(handler) | Work::Found(handler, _)) = &job.work else {
            return Err("its handler is a function of this program; use Job::named".to_owned());
        };
        let Some(schedule) = job.schedule.spec() else {
            return Err(
                "its schedule is a timetable of this program; use every, delay, at or a cron line".to_owned()
            );
        };
        let usual = Self::plain(job, &schedule, handler)?;
        let misfire = match job.misfire {
            Misfire::Skip => MisfireData::Skip,
            Misfire::RunOnce { within } => MisfireData::RunOnce { within: micros(within) },
            Misfire::RunAll { within } => MisfireData::RunAll { within: micros(within) },
        };
        let retries = RetryData {
            attempts: job.retries.attempts(),
            first: micros(job.retries.first_backoff()),
            max: micros(job.retries.max_backoff()),
        };
        Ok(Self {
            name: Arc::clone(&job.name),
            handler: Arc::clone(handler),
            payload: job.payload.clone(),
            misfire: (job.misfire != usual.misfire).then_some(misfire),
            delivery: job.delivery,
            overlap: (job.overlap != usual.overlap).then(|| job.overlap.to_string().into()),
            placement: (job.placement != usual.placement).then(|| job.placement.to_string().into()),
            labels: job.labels.clone(),
            concurrency: job.concurrency.clone(),
            pause_after_failures: job.pause_after_failures,
            jitter: micros(job.jitter),
            timeout: job.timeout.map(micros),
            retries: (job.retries != usual.retries).then_some(retries),
            priority: job.priority,
            history: (job.history != usual.history).then_some(job.history),
            keep_output: job.keep_output,
            expect_within: job.expect_within.map(micros),
            schedule,
        })
    }

    /// Returns the job with this name, schedule and handler, and the default rules.
    fn plain(job: &Job, schedule: &ScheduleSpec, handler: &str) -> Result<Job, String> {
        let schedule = Schedule::from_spec(schedule).map_err(|error| error.to_string())?;
        Ok(Job::named(&job.name, schedule, handler))
    }

    /// Returns the job.
    ///
    /// # Errors
    /// The reason why this version cannot run it.
    pub fn job(&self) -> Result<Job, String> {
        check_handler(&self.handler)?;
        let schedule =
            Schedule::from_spec(&self.schedule).map_err(|error| format!("its schedule: {error}"))?;
        let mut job = Job::named(&self.name, schedule, &self.handler);
        job.payload.clone_from(&self.payload);
        if let Some(misfire) = &self.misfire {
            job.misfire = match misfire {
                MisfireData::Skip => Misfire::Skip,
                MisfireData::RunOnce { within } => Misfire::run_once(Duration::from_micros(*within)),
                MisfireData::RunAll { within } => Misfire::run_all(Duration::from_micros(*within)),
            };
        }
        let find = |field: &str, name: &Arc<str>| {
            format!(
                "its {field} {:?} is not one that this version knows; update this worker",
                crate::plain::plain(name, 40)
            )
        };
        if let Some(name) = &self.overlap {
            let all = [Overlap::Skip, Overlap::Queue, Overlap::CancelOld, Overlap::Allow];
            let found = all.into_iter().find(|overlap| overlap.to_string() == **name);
            job.overlap = found.ok_or_else(|| find("overlap", name))?;
        }
        if let Some(name) = &self.placement {
            let found = Placement::ALL.into_iter().find(|placement| placement.to_string() == **name);
            job.placement = found.ok_or_else(|| find("placement", name))?;
        }
        if let Some(RetryData { attempts, first, max }) = &self.retries {
            let (first, max) = (Duration::from_micros(*first), Duration::from_micros(*max));
            job.retries = Retry::new(*attempts).backoff(first, max);
        }
        job.labels.clone_from(&self.labels);
        job.concurrency.clone_from(&self.concurrency);
        job.pause_after_failures = self.pause_after_failures;
        job.delivery = self.delivery;
        job.jitter = Duration::from_micros(self.jitter);
        job.timeout = self.timeout.map(Duration::from_micros);
        job.priority = self.priority;
        job.history = self.history.unwrap_or(job.history);
        job.keep_output = self.keep_output;
        job.expect_within = self.expect_within.map(Duration::from_micros);
        Ok(job)
    }

    pub(in crate::scheduler) fn priority(&self) -> i32 {
        self.priority
    }

    /// Returns the JSON of the definition.
    pub fn to_text(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }

    /// Reads the JSON of a definition.
    ///
    /// # Errors
    /// The reason why this version cannot read it.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| crate::plain::plain(&error.to_string(), 200))
    }
}

/// Checks the name of a handler.
fn check_handler(name: &str) -> Result<(), String> {
    let is_usable = !name.is_empty() && name.len() <= HANDLER_MAX && !name.chars().any(char::is_control);
    is_usable.then_some(()).ok_or_else(|| {
        let shown = crate::plain::plain(name, HANDLER_MAX);
        format!("its handler is called {shown:?}; use 1 to {HANDLER_MAX} bytes without control characters")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        env::WallTime,
        scheduler::schedule::{AfterEnd, Cron, Schedule},
    };

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_job_is_read_back_with_all_its_rules() {
        let cron: Schedule = Cron::parse("0 3 * * *").unwrap().zone("Europe/Kyiv").unwrap().into();
        let all = Job::named("nightly", cron, "report")
            .payload(Payload::json(&["eu"]).unwrap())
            .misfire(Misfire::run_all(60 * SECOND))
            .delivery(Delivery::AtMostOnce)
            .overlap(Overlap::CancelOld)
            .placement(Placement::Leader)
            .concurrency("database", 2)
            .pause_after_failures(5)
            .jitter(5 * SECOND)
            .timeout(30 * SECOND)
            .retries(Retry::new(3).backoff(2 * SECOND, 9 * SECOND))
            .priority(-4)
            .history(7)
            .keep_output(100)
            .expect_within(86_400 * SECOND);
        for job in [
            all,
            Job::named("often", Schedule::every(SECOND).unwrap(), "beat"),
            Job::named("there", Schedule::every(SECOND).unwrap(), "beat").on_workers_with(["eu", "gpu"]),
            Job::named("load", Schedule::after("extract", AfterEnd::Success), "beat"),
            Job::named("once", Schedule::at(WallTime::from_micros(9)), "h"),
        ] {
            let text = JobDefinition::of(&job).unwrap().to_text();
            let read = JobDefinition::parse(&text).unwrap().job().unwrap();
            assert!(read.is_like(&job), "{text}");
            assert_eq!(JobDefinition::of(&read).unwrap().to_text(), text);
        }
        let plain = JobDefinition::of(&Job::named("often", Schedule::every(SECOND).unwrap(), "beat"))
            .unwrap()
            .to_text();
        assert_eq!(
            &*plain,
            r#"{"name":"often","schedule":{"kind":"every","micros":1000000},"handler":"beat"}"#
        );
    }

    #[test]
    fn a_definition_of_a_newer_version_has_a_reason() {
        let read = |more: &str| {
            let text = format!(
                r#"{{"name":"n","schedule":{{"kind":"every","micros":1000000}},"handler":"h"{more}}}"#
            );
            JobDefinition::parse(&text).and_then(|definition| definition.job().map(drop))
        };
        assert_eq!(read(""), Ok(()));
        assert!(read(r#","moon":1"#).unwrap_err().contains("unknown field `moon`"));
        assert!(read(r#","overlap":"dance""#).unwrap_err().contains("overlap \"dance\" is not one"));
        assert!(read(r#","placement":"moon\u001b""#).unwrap_err().contains("update this worker"));
        let own = Job::new("own", Schedule::every(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        assert!(JobDefinition::of(&own).unwrap_err().contains("a function of this program"));
        assert!(
            Job::named("n", Schedule::every(SECOND).unwrap(), "a\nb")
                .definition()
                .unwrap_err()
                .contains("handler is called")
        );
    }
}
