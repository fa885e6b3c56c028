//! A job as data: a job that names its handler can be stored on the nodes.

use super::{Job, JobRules, Payload, Work};
use crate::scheduler::schedule::{Schedule, ScheduleSpec};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The longest name of a handler, in bytes.
const HANDLER_MAX: usize = 128;

/// The definition of a job that is stored on the nodes, as JSON. Fields that are absent have the
/// default of [`Job::named`]; within rules that are present, a rule that is absent has that of [`Job::new`].
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
    /// The rules, if they are not those of [`Job::named`].
    #[serde(default = "JobRules::of_named", skip_serializing_if = "JobRules::are_of_named")]
    pub rules: JobRules,
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
        let (name, handler) = (Arc::clone(&job.name), Arc::clone(handler));
        Ok(Self { name, schedule, handler, payload: job.payload.clone(), rules: job.rules.clone() })
    }

    /// Returns the job.
    ///
    /// # Errors
    /// The reason why this version cannot run it.
    pub fn job(&self) -> Result<Job, String> {
        check_handler(&self.handler)?;
        let schedule =
            Schedule::from_spec(&self.schedule).map_err(|error| format!("its schedule: {error}"))?;
        let job = Job::named(&self.name, schedule, &self.handler).with_rules(self.rules.clone());
        Ok(Job { payload: self.payload.clone(), ..job })
    }

    pub(in crate::scheduler) fn priority(&self) -> i32 {
        self.rules.priority
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
        scheduler::{
            policy::{Delivery, Misfire, Overlap, Placement, Retry},
            schedule::{AfterEnd, Cron, Schedule},
        },
    };
    use std::time::Duration;

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
        assert!(read(r#","rules":{"moon":1}"#).unwrap_err().contains("unknown field `moon`"));
        let unknown = read(r#","rules":{"overlap":"dance\u001b"}"#).unwrap_err();
        assert!(unknown.contains("unknown variant `dance") && !unknown.contains('\u{1b}'), "{unknown}");
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
