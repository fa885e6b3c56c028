use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, RequestId},
        policy::{Concurrency, Labels, Placement},
        schedule::ScheduleSpec,
        store::{
            RecordError,
            health::{FailedRuns, JobHealth},
            record_life,
        },
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{sync::Arc, time::Duration};

/// The largest number of request ids that a row stores.
const REQUESTS_MAX: usize = 8;

/// The row of a job in its group's ledger, under `job/NAME`. The leader writes the row, and any client may read
/// it. A job that is stored on the nodes has none until it has something beside its definition, such as a pause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRow {
    /// No tick before this time is due. A leader sets this time when it first has the job, when the schedule or
    /// the placement of the job changes, when a pause of the job ends, and when the job is added again.
    pub since: WallTime,
    /// The schedule, as a text for people.
    pub schedule: Arc<str>,
    /// The pause, if the job is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Paused>,
    /// The rules of the job, such as its misfire and overlap rules, as a text for people.
    #[serde(default)]
    pub rules: Arc<str>,
    /// The workers that may run the ticks.
    #[serde(default)]
    pub placement: Placement,
    /// The end of the last run, if the job's next tick counts from that end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<WallTime>,
    /// The time for which the ledger keeps the records of the job's ticks, even under a leader that does not
    /// have the job. It is the sum of the misfire window, the jitter, and the time by which runs are opened
    /// ahead. In JSON, in microseconds.
    #[serde(default, with = "crate::scheduler::wire::maybe_micros", skip_serializing_if = "Option::is_none")]
    pub window: Option<Duration>,
    /// The schedule, as data for programs. `None` for a custom timetable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ScheduleSpec>,
    /// The time within which the job is expected to succeed again. In JSON, in microseconds.
    #[serde(default, with = "crate::scheduler::wire::maybe_micros", skip_serializing_if = "Option::is_none")]
    pub expect_within: Option<Duration>,
    /// The time at which a leader first found the job with an `expect_within`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_from: Option<WallTime>,
    /// The end of the last successful run, if the job has an `expect_within`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<WallTime>,
    /// The condition of the job, and its unreported alerts. `None` until the first alert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<JobHealth>,
    /// The labels that a worker must have to run the ticks.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The limit of the active runs that the job shares with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    /// The failed runs in a row, if the leader pauses the job after some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedRuns>,
    /// The last eight requests that changed the row, the newest last. If a leader crashes before it answers a
    /// request, the next leader receives the request again. The next leader then sees here that the request was
    /// already carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestId>,
}

/// The pause of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// The requester of the pause.
    pub by: Arc<str>,
    /// The time at which the pause began.
    pub at: WallTime,
    /// The reason, as the requester gave it. The rows of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// The time at which the pause ends. A tick at that time runs. `None` if the pause lasts until the job is
    /// resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<WallTime>,
}

impl Paused {
    /// Returns the end of the pause, if it is not later than `now`.
    pub fn ended(&self, now: WallTime) -> Option<WallTime> {
        self.until.filter(|until| *until <= now)
    }
}

impl JobRow {
    /// The prefix of the keys of rows.
    pub const PREFIX: &str = "job/";

    /// Returns the key of a job's row.
    pub fn key(job: &str) -> Arc<str> {
        format!("{}{job}", Self::PREFIX).into()
    }

    /// Returns the row of a job that is stored on the nodes and has nothing beside its definition. Its ticks count from `since`
    /// on.
    pub(in crate::scheduler) fn of_stored(job: &Job, since: WallTime) -> Self {
        Self { since, ..Self::default() }.described_by(job, since)
    }

    /// Returns the row with the schedule and the rules of `job`.
    pub(in crate::scheduler) fn described_by(&self, job: &Job, now: WallTime) -> Self {
        let expected = job.rules.expect_within.is_some();
        Self {
            schedule: job.schedule.to_string().into(),
            rules: job.rules().into(),
            spec: job.schedule.spec(),
            placement: job.rules.placement,
            labels: job.rules.labels.clone(),
            concurrency: job.rules.concurrency.clone(),
            window: Some(record_life::window(job)),
            expect_within: job.rules.expect_within,
            expected_from: expected.then(|| self.expected_from.unwrap_or(now)),
            succeeded: self.succeeded.filter(|_| expected),
            failed: self.failed.clone().filter(|_| job.rules.pause_after_failures.is_some()),
            ..self.clone()
        }
    }

    /// Adds a request to the requests that have changed the row.
    pub(in crate::scheduler) fn changed_by(&mut self, request: RequestId) {
        note_request(&mut self.requests, request);
    }

    /// Returns the value of the row's record.
    pub fn to_value(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }

    /// Reads a row from the value of a record.
    ///
    /// # Errors
    /// [`RecordError`] if [`JobRow::to_value`] could not have written the value.
    pub fn parse(value: &str) -> Result<Self, RecordError> {
        parse("job row", value)
    }
}

/// Adds a request to the last requests that changed a row.
pub(super) fn note_request(requests: &mut Vec<RequestId>, request: RequestId) {
    note_requests(requests, request, REQUESTS_MAX);
}

/// Adds a request to a list of the last `most` requests.
pub(super) fn note_requests(requests: &mut Vec<RequestId>, request: RequestId, most: usize) {
    requests.push(request);
    let excess = requests.len().saturating_sub(most);
    requests.drain(..excess);
}

/// Reads a row from the value of a record. `what` names the row in the error.
pub(super) fn parse<T: DeserializeOwned>(what: &'static str, value: &str) -> Result<T, RecordError> {
    serde_json::from_str(value).map_err(|error| RecordError::new(what, value, &error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_a_round_trip() {
        let mut row = JobRow {
            since: WallTime::from_micros(7),
            schedule: "every 1s".into(),
            rules: "skip".into(),
            ..JobRow::default()
        };
        let text = r#"{"since":7,"schedule":"every 1s","rules":"skip","placement":"leader"}"#;
        assert_eq!(&*row.to_value(), text);
        assert_eq!(JobRow::parse(text).unwrap(), row);
        row.paused = Some(Paused { by: "me".into(), at: WallTime::from_micros(9), ..Paused::default() });
        assert!(row.to_value().contains(r#""paused":{"by":"me","at":9}"#));
        assert_eq!(JobRow::parse(&row.to_value()).unwrap(), row);
        row.paused = Some(Paused {
            by: "me".into(),
            at: WallTime::from_micros(9),
            reason: Some("the disk is full".into()),
            until: Some(WallTime::from_micros(20)),
        });
        let text = r#""paused":{"by":"me","at":9,"reason":"the disk is full","until":20}"#;
        assert!(row.to_value().contains(text), "{}", row.to_value());
        assert_eq!(JobRow::parse(&row.to_value()).unwrap(), row);
        let paused = row.paused.as_ref().unwrap();
        let ended = [19, 20, 21].map(|at| paused.ended(WallTime::from_micros(at)).is_some());
        assert_eq!(ended, [false, true, true]);
        row.window = Some(Duration::from_millis(1_500));
        assert!(row.to_value().contains(r#""window":1500000"#));
        (1..=20).for_each(|id| row.changed_by(RequestId::from_u128(id)));
        assert_eq!((row.requests.len(), row.requests.last()), (8, Some(&RequestId::from_u128(20))));
        assert_eq!(JobRow::parse(&row.to_value()).unwrap(), row);
        assert!(JobRow::parse("{}").unwrap_err().to_string().contains("cannot be read"));
    }
}
